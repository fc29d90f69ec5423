// SPDX-License-Identifier: Apache-2.0
#include "engine/collectives.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "compiler/custom_op.h"
#include "compiler/storage.h"
#include "engine/numbers.h"
#include "runtime/report.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::engine {
namespace {

using compiler::CustomCall;
using compiler::Node;
using compiler::RunTensor;

// The functions of libhccl.so that operators call.
struct Hccl {
  decltype(&HcclCommGetHandleWithName) find = nullptr;
  decltype(&HcclGetRankSize) rank_size = nullptr;
  decltype(&HcclAllReduce) all_reduce = nullptr;
  decltype(&HcclReduce) reduce = nullptr;
  decltype(&HcclReduceScatter) reduce_scatter = nullptr;
  decltype(&HcclReduceScatterV) reduce_scatter_v = nullptr;
  decltype(&HcclAllGather) all_gather = nullptr;
  decltype(&HcclAllGatherV) all_gather_v = nullptr;
  decltype(&HcclBroadcast) broadcast = nullptr;
  decltype(&HcclAlltoAll) all_to_all = nullptr;
  decltype(&HcclAlltoAllV) all_to_all_v = nullptr;
  decltype(&HcclAlltoAllVC) all_to_all_vc = nullptr;
  decltype(&HcclSend) send = nullptr;
  decltype(&HcclRecv) receive = nullptr;
  std::string failure;  ///< empty: all are there
};

const Hccl& TheHccl() {
  static const Hccl hccl = [] {
    Hccl made;
    // The program's own, where it has one.
    void* library = dlopen("libhccl.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) library = dlopen("libhccl.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      made.failure = dlerror();
      return made;
    }
    const auto look_up = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) made.failure = fmt::format("libhccl.so has no {}", name);
    };
    look_up(made.find, "HcclCommGetHandleWithName");
    look_up(made.rank_size, "HcclGetRankSize");
    look_up(made.all_reduce, "HcclAllReduce");
    look_up(made.reduce, "HcclReduce");
    look_up(made.reduce_scatter, "HcclReduceScatter");
    look_up(made.reduce_scatter_v, "HcclReduceScatterV");
    look_up(made.all_gather, "HcclAllGather");
    look_up(made.all_gather_v, "HcclAllGatherV");
    look_up(made.broadcast, "HcclBroadcast");
    look_up(made.all_to_all, "HcclAlltoAll");
    look_up(made.all_to_all_v, "HcclAlltoAllV");
    look_up(made.all_to_all_vc, "HcclAlltoAllVC");
    look_up(made.send, "HcclSend");
    look_up(made.receive, "HcclRecv");
    return made;
  }();
  return hccl;
}

Status Bad(const Node& node, std::string what, std::string hint) {
  return Error(kParamInvalid, fmt::format("node {} ({}) {}", node.name, node.type, what))
      .Culprit(fmt::format("node {}", node.name))
      .Hint(std::move(hint));
}

const std::string& TextOf(const Node& node, std::string_view name) {
  static const std::string none;
  const auto found = node.attributes.find(name);
  const auto* const text = found == node.attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text != nullptr ? *text : none;
}

std::optional<int64_t> IntOf(const Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  const auto* const number = found == node.attributes.end() ? nullptr : std::get_if<int64_t>(&found->second);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

struct Group {
  HcclComm comm = nullptr;
  uint32_t ranks = 0;
};

StatusOr<Group> GroupOf(const Node& node) {
  const Hccl& hccl = TheHccl();
  if (!hccl.failure.empty()) {
    return Bad(node, fmt::format("needs libhccl.so: {}", hccl.failure),
               "source set_env.sh, which tells where the libraries are");
  }
  const std::string& name = TextOf(node, "group");
  Group group;
  if (name.empty() || hccl.find(name.c_str(), &group.comm) != HCCL_SUCCESS) {
    (void)runtime::TakeRecentMessage();
    return Bad(node, fmt::format("names the group \"{}\", and this process has no communicator of that name", name),
               "create it first (HcclCommInitRootInfoConfig with hcclCommName; torch: get_hccl_comm_name of the "
               "group's backend), and compile the graph with its name");
  }
  (void)hccl.rank_size(group.comm, &group.ranks);
  const std::optional<int64_t> told = IntOf(node, "rank_size");
  if (told && *told != group.ranks) {
    return Bad(node, fmt::format("says rank_size {}, and the group {} has {} ranks", *told, name, group.ranks),
               "compile the graph for the group that it runs in");
  }
  return group;
}

StatusOr<HcclReduceOp> ReductionOf(const Node& node) {
  constexpr std::pair<std::string_view, HcclReduceOp> kWords[] = {
      {"sum", HCCL_REDUCE_SUM}, {"prod", HCCL_REDUCE_PROD}, {"max", HCCL_REDUCE_MAX}, {"min", HCCL_REDUCE_MIN}};
  const std::string& word = TextOf(node, "reduction");
  for (const auto& [name, op] : kWords) {
    if (word == name) return op;
  }
  return Bad(node, fmt::format("has the reduction \"{}\"", word), "write sum, prod, max or min");
}

// By aclDataType. Truth values travel as bytes.
StatusOr<HcclDataType> TypeOf(const Node& node, int32_t dtype) {
  constexpr std::pair<int32_t, HcclDataType> kTypes[] = {
      {0, HCCL_DATA_TYPE_FP32},  {1, HCCL_DATA_TYPE_FP16},    {2, HCCL_DATA_TYPE_INT8},   {3, HCCL_DATA_TYPE_INT32},
      {4, HCCL_DATA_TYPE_UINT8}, {6, HCCL_DATA_TYPE_INT16},   {7, HCCL_DATA_TYPE_UINT16}, {8, HCCL_DATA_TYPE_UINT32},
      {9, HCCL_DATA_TYPE_INT64}, {10, HCCL_DATA_TYPE_UINT64}, {11, HCCL_DATA_TYPE_FP64},  {12, HCCL_DATA_TYPE_UINT8},
      {27, HCCL_DATA_TYPE_BFP16}};
  for (const auto& [number, type] : kTypes) {
    if (number == dtype) return type;
  }
  return Bad(node, fmt::format("has the type {}, which no collective moves", opdef::TypeName(dtype)),
             "cast the tensor first");
}

uint64_t ElementsOf(std::span<const int64_t> shape) {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

// One run of one node.
class Call {
 public:
  Call(CustomCall& call, const Group& group) : call_(call), node_(call.node), group_(group) {}

  Status Run() {
    using Function = Status (Call::*)();
    constexpr std::pair<std::string_view, Function> kFunctions[] = {{"HcomAllReduce", &Call::AllReduce},
                                                                    {"HcomReduce", &Call::Reduce},
                                                                    {"HcomReduceScatter", &Call::ReduceScatter},
                                                                    {"HcomReduceScatterV", &Call::ReduceScatterV},
                                                                    {"HcomAllGather", &Call::AllGather},
                                                                    {"HcomAllGatherV", &Call::AllGatherV},
                                                                    {"HcomBroadcast", &Call::Broadcast},
                                                                    {"HcomAllToAll", &Call::AllToAll},
                                                                    {"HcomAllToAllV", &Call::AllToAllV},
                                                                    {"HcomAllToAllVC", &Call::AllToAllVC},
                                                                    {"HcomSend", &Call::Send},
                                                                    {"HcomReceive", &Call::Receive}};
    for (const auto& [type, function] : kFunctions) {
      if (type == node_.type) return (this->*function)();
    }
    return Bad(node_, "is of a type that is not here", "see docs/graph-operators.md");
  }

 private:
  HcclComm comm() const { return group_.comm; }
  void* stream() const { return call_.stream.handle(); }
  const RunTensor& in(size_t i) const { return call_.inputs[i]; }
  uint64_t count(size_t i) const { return ElementsOf(in(i).shape); }

  Status Answer(const char* function, HcclResult result) const {
    if (result == HCCL_SUCCESS) return {};
    std::string text = runtime::TakeRecentMessage();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return Error(kFailed, fmt::format("node {} ({}): {} returns {}: {}", node_.name, node_.type, function,
                                      static_cast<int>(result), text))
        .Culprit(fmt::format("node {}", node_.name))
        .Hint("the message of the call says what to do");
  }

  // Memory for output `i`, of the type of input 0.
  StatusOr<void*> Output(size_t i, std::vector<int64_t> shape, int32_t dtype) {
    RunTensor& output = call_.outputs[i];
    output.dtype = dtype;
    output.shape = std::move(shape);
    compiler::Tensor tensor;
    tensor.dtype = dtype;
    tensor.shape = opdef::Shape::Of(output.shape);
    const std::optional<uint64_t> bytes = compiler::BytesOf(tensor);
    if (!bytes) return Bad(node_, "has a result without a size", "describe its shape");
    output.bytes = *bytes;
    REPRISE_ASSIGN_OR_RETURN(output.data, call_.allocate(output.bytes));
    return output.data;
  }
  StatusOr<void*> LikeInput() { return Output(0, in(0).shape, in(0).dtype); }

  // The first dim such that there are `elements`; a row where that is none of whole rows.
  std::vector<int64_t> WithElements(uint64_t elements) const {
    const std::span<const int64_t> shape = in(0).shape;
    const uint64_t row = shape.empty() ? 1 : ElementsOf(shape.subspan(1));
    std::vector<int64_t> made(shape.begin(), shape.end());
    if (row == 0 || elements % row != 0 || made.empty()) return {static_cast<int64_t>(elements)};
    made[0] = static_cast<int64_t>(elements / row);
    return made;
  }

  StatusOr<std::span<const uint64_t>> Counts(size_t i, const char* what, size_t wanted) const {
    const RunTensor& tensor = in(i);
    const uint64_t found = ElementsOf(tensor.shape);
    if (tensor.dtype != 9 || found != wanted) {
      return Bad(
          node_,
          fmt::format("has {} {} of {}, and needs {} of int64", found, what, opdef::TypeName(tensor.dtype), wanted),
          "pass one number for each rank of the group");
    }
    const auto* const numbers = static_cast<const int64_t*>(tensor.data);
    for (size_t k = 0; k < wanted; ++k) {
      if (numbers[k] < 0)
        return Bad(node_, fmt::format("has {} {} for rank {}", what, numbers[k], k), "pass 0 or more");
    }
    return std::span(static_cast<const uint64_t*>(tensor.data), wanted);
  }
  bool has(size_t i) const { return i < call_.inputs.size() && in(i).dtype >= 0; }

  static std::vector<uint64_t> BackToBack(std::span<const uint64_t> counts) {
    std::vector<uint64_t> places;
    uint64_t at = 0;
    for (const uint64_t count : counts) {
      places.push_back(at);
      at += count;
    }
    return places;
  }
  StatusOr<std::vector<uint64_t>> Places(size_t i, const char* what, std::span<const uint64_t> counts) const {
    if (!has(i)) return BackToBack(counts);
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> told, Counts(i, what, counts.size()));
    return std::vector<uint64_t>(told.begin(), told.end());
  }
  // Behind the last block.
  static uint64_t EndOf(std::span<const uint64_t> counts, std::span<const uint64_t> places) {
    uint64_t end = 0;
    for (size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] != 0) end = std::max(end, places[k] + counts[k]);
    }
    return end;
  }
  // The result that such blocks make. What lies between them is zero, as in the eager forms.
  StatusOr<void*> OutputOf(std::span<const uint64_t> counts, std::span<const uint64_t> places) {
    const uint64_t end = EndOf(counts, places);
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, WithElements(end), in(0).dtype));
    if (std::accumulate(counts.begin(), counts.end(), uint64_t{0}) < end) {
      REPRISE_RETURN_IF_ERROR(
          runtime::SubmitClosure(call_.stream, "result of a collective operator",
                                 [to, bytes = call_.outputs[0].bytes](device::RunContext&) -> Status {
                                   std::memset(to, 0, bytes);
                                   return {};
                                 }));
    }
    return to;
  }
  Status CheckFits(const char* what, std::span<const uint64_t> counts, std::span<const uint64_t> places,
                   uint64_t elements) const {
    for (size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] == 0 || (places[k] <= elements && counts[k] <= elements - places[k])) continue;
      return Bad(node_,
                 fmt::format("has a block of {} elements at {} for rank {} in {}, which has {}", counts[k], places[k],
                             k, what, elements),
                 "pass counts and displacements that lie in the tensor, in elements");
    }
    return {};
  }
  StatusOr<uint32_t> RankOf(const char* attribute) const {
    const int64_t rank = IntOf(node_, attribute).value_or(-1);
    if (rank >= 0 && rank < group_.ranks) return static_cast<uint32_t>(rank);
    return Bad(node_, fmt::format("says {} {}, and its group has {} ranks", attribute, rank, group_.ranks),
               "pass a position in the group");
  }
  StatusOr<HcclDataType> Type() const { return TypeOf(node_, in(0).dtype); }

  Status AllReduce() {
    REPRISE_ASSIGN_OR_RETURN(const HcclReduceOp op, ReductionOf(node_));
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_ASSIGN_OR_RETURN(void* const to, LikeInput());
    return Answer("HcclAllReduce", TheHccl().all_reduce(in(0).data, to, count(0), type, op, comm(), stream()));
  }

  Status Reduce() {
    REPRISE_ASSIGN_OR_RETURN(const HcclReduceOp op, ReductionOf(node_));
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_ASSIGN_OR_RETURN(const uint32_t root, RankOf("root_rank"));
    REPRISE_ASSIGN_OR_RETURN(void* const to, LikeInput());
    REPRISE_RETURN_IF_ERROR(Copy(in(0), to));  // what other ranks than the root have
    return Answer("HcclReduce", TheHccl().reduce(in(0).data, to, count(0), type, op, root, comm(), stream()));
  }

  Status ReduceScatter() {
    REPRISE_ASSIGN_OR_RETURN(const HcclReduceOp op, ReductionOf(node_));
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_RETURN_IF_ERROR(CheckParts());
    std::vector<int64_t> shape = in(0).shape;
    shape[0] /= group_.ranks;
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, std::move(shape), in(0).dtype));
    return Answer("HcclReduceScatter",
                  TheHccl().reduce_scatter(in(0).data, to, count(0) / group_.ranks, type, op, comm(), stream()));
  }

  Status CheckParts() const {
    if (!in(0).shape.empty() && in(0).shape[0] % group_.ranks == 0) return {};
    return Bad(node_, fmt::format("has no equal parts for {} ranks in its first dim", group_.ranks),
               "pass a first dim that the number of ranks divides");
  }

  Status ReduceScatterV() {
    REPRISE_ASSIGN_OR_RETURN(const HcclReduceOp op, ReductionOf(node_));
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> own, Counts(1, "recv_count", 1));
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> counts, Counts(2, "send_counts", group_.ranks));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint64_t> places, Places(3, "send_displacements", counts));
    REPRISE_RETURN_IF_ERROR(CheckFits("x", counts, places, count(0)));
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, WithElements(own[0]), in(0).dtype));
    return Answer("HcclReduceScatterV", TheHccl().reduce_scatter_v(in(0).data, counts.data(), places.data(), to, own[0],
                                                                   type, op, comm(), stream()));
  }

  Status AllGather() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    std::vector<int64_t> shape = in(0).shape;
    if (shape.empty()) shape.push_back(1);
    shape[0] *= group_.ranks;
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, std::move(shape), in(0).dtype));
    return Answer("HcclAllGather", TheHccl().all_gather(in(0).data, to, count(0), type, comm(), stream()));
  }

  Status AllGatherV() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> own, Counts(1, "send_count", 1));
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> counts, Counts(2, "recv_counts", group_.ranks));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint64_t> places, Places(3, "recv_displacements", counts));
    if (own[0] > count(0)) {
      return Bad(node_, fmt::format("sends {} elements of {}", own[0], count(0)),
                 "pass the elements of x as send_count");
    }
    REPRISE_ASSIGN_OR_RETURN(void* const to, OutputOf(counts, places));
    return Answer("HcclAllGatherV",
                  TheHccl().all_gather_v(in(0).data, own[0], to, counts.data(), places.data(), type, comm(), stream()));
  }

  Status Broadcast() {
    REPRISE_ASSIGN_OR_RETURN(const uint32_t root, RankOf("root_rank"));
    for (size_t i = 0; i < call_.inputs.size() && i < call_.outputs.size(); ++i) {
      REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, TypeOf(node_, in(i).dtype));
      REPRISE_ASSIGN_OR_RETURN(void* const to, Output(i, in(i).shape, in(i).dtype));
      REPRISE_RETURN_IF_ERROR(Copy(in(i), to));
      REPRISE_RETURN_IF_ERROR(Answer("HcclBroadcast", TheHccl().broadcast(to, count(i), type, root, comm(), stream())));
    }
    return {};
  }

  Status AllToAll() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_RETURN_IF_ERROR(CheckParts());
    REPRISE_ASSIGN_OR_RETURN(void* const to, LikeInput());
    const uint64_t part = count(0) / group_.ranks;
    return Answer("HcclAlltoAll", TheHccl().all_to_all(in(0).data, part, type, to, part, type, comm(), stream()));
  }

  Status AllToAllV() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    const uint32_t n = group_.ranks;
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> out, Counts(1, "send_counts", n));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint64_t> out_at, Places(2, "send_displacements", out));
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> from, Counts(3, "recv_counts", n));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint64_t> from_at, Places(4, "recv_displacements", from));
    REPRISE_RETURN_IF_ERROR(CheckFits("send_data", out, out_at, count(0)));
    REPRISE_ASSIGN_OR_RETURN(void* const to, OutputOf(from, from_at));
    return Answer("HcclAlltoAllV", TheHccl().all_to_all_v(in(0).data, out.data(), out_at.data(), type, to, from.data(),
                                                          from_at.data(), type, comm(), stream()));
  }

  Status AllToAllVC() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    const uint32_t n = group_.ranks;
    REPRISE_ASSIGN_OR_RETURN(const uint32_t own, RankOf("rank"));
    REPRISE_ASSIGN_OR_RETURN(const std::span<const uint64_t> matrix, Counts(1, "send_count_matrix", size_t{n} * n));
    uint64_t sent = 0;
    uint64_t received = 0;
    for (uint32_t k = 0; k < n; ++k) {
      sent += matrix[size_t{own} * n + k];
      received += matrix[size_t{k} * n + own];
    }
    if (sent > count(0))
      return Bad(node_, fmt::format("sends {} elements of {}", sent, count(0)), "pass a smaller row");
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, WithElements(received), in(0).dtype));
    return Answer("HcclAlltoAllVC",
                  TheHccl().all_to_all_vc(in(0).data, matrix.data(), type, to, type, comm(), stream()));
  }

  Status Send() {
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, Type());
    REPRISE_ASSIGN_OR_RETURN(const uint32_t rank, RankOf("dest_rank"));
    return Answer("HcclSend", TheHccl().send(in(0).data, count(0), type, rank, comm(), stream()));
  }

  Status Receive() {
    const compiler::Tensor& told = call_.told[0];
    REPRISE_ASSIGN_OR_RETURN(const HcclDataType type, TypeOf(node_, told.dtype));
    REPRISE_ASSIGN_OR_RETURN(const uint32_t rank, RankOf("src_rank"));
    if (!told.shape.is_static()) return Bad(node_, "has a shape with open sizes", "give all sizes in shape");
    REPRISE_ASSIGN_OR_RETURN(void* const to, Output(0, told.shape.numbers(), told.dtype));
    return Answer("HcclRecv", TheHccl().receive(to, ElementsOf(call_.outputs[0].shape), type, rank, comm(), stream()));
  }

  Status Copy(const RunTensor& from, void* to) const {
    if (from.bytes == 0) return {};
    return runtime::SubmitClosure(call_.stream, "input of a collective operator",
                                  [from = from.data, to, bytes = from.bytes](device::RunContext&) -> Status {
                                    std::memcpy(to, from, bytes);
                                    return {};
                                  });
  }

  CustomCall& call_;
  const Node& node_;
  const Group group_;
};

class Collective final : public compiler::CustomOp {
 public:
  explicit Collective(bool counts) : counts_(counts) {}
  bool ReadsValue(const Node&, uint32_t input) const override { return counts_ && input > 0; }
  Status Run(CustomCall& call) const override {
    REPRISE_ASSIGN_OR_RETURN(const Group group, GroupOf(call.node));
    return Call(call, group).Run();
  }

 private:
  const bool counts_;  ///< all inputs but the first are counts, which are read before the call
};

}  // namespace

void RegisterCollectives() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* type : {"HcomAllReduce", "HcomReduce", "HcomReduceScatter", "HcomAllGather", "HcomBroadcast",
                             "HcomAllToAll", "HcomSend", "HcomReceive"}) {
      compiler::RegisterCustomOp(type, std::make_shared<Collective>(false));
    }
    for (const char* type : {"HcomReduceScatterV", "HcomAllGatherV", "HcomAllToAllV", "HcomAllToAllVC"}) {
      compiler::RegisterCustomOp(type, std::make_shared<Collective>(true));
    }
  });
}

Status CheckGroups(const compiler::Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.is_removed) continue;
    if (compiler::IsCollective(node)) {
      auto group = GroupOf(node);
      if (!group.ok()) return std::move(group).status();
    }
    for (const auto& called : node.graphs) {
      if (called != nullptr) REPRISE_RETURN_IF_ERROR(CheckGroups(*called));
    }
  }
  return {};
}

}  // namespace reprise::engine
