// SPDX-License-Identifier: Apache-2.0
#include "compiler/strided_views.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "compiler/constant.h"
#include "compiler/passes/writes.h"
#include "compiler/views.h"

namespace reprise::compiler {
namespace {

using Key = std::pair<NodeId, uint32_t>;
using Values = std::map<Key, StridedValue>;

constexpr std::string_view kAttention[] = {"FlashAttentionScore", "FusedInferAttentionScore", "IncreFlashAttention",
                                           "PromptFlashAttention"};
constexpr std::string_view kHeads[] = {"query", "key", "key0", "value", "value0"};
constexpr std::string_view kGathers[] = {"Gather", "GatherV2"};
// Whose kernels write rows at any distance as fast as rows that lie back to back.
constexpr std::string_view kProducts[] = {"BatchMatMul", "BatchMatMulV2", "MatMul", "MatMulV2"};
constexpr std::string_view kElementwise[] = {"Add", "GeluV2", "Mul", "Relu", "Sigmoid", "Sub", "Swish", "Tanh"};
// aclDataType
constexpr int32_t kFloat = 0;
constexpr int32_t kFloat16 = 1;
constexpr int32_t kBFloat16 = 27;

template <size_t N>
bool IsAmong(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool IsHead(const Node& node, uint32_t input) {
  return IsAmong(node.type, kAttention) && IsAmong(node.inputs[input].name, kHeads);
}

// Operands that kernels read at any distance as fast as such that lie back to back.
bool TakesStrides(const Node& node, uint32_t input) {
  return IsHead(node, input) || (IsAmong(node.type, kGathers) && node.inputs[input].name == "indices");
}

bool IsTranspose(const Node& node) {
  return node.type == "Transpose" || node.type == "TransposeD" || node.type == "Permute";
}

uint32_t MovedInput(const Node& node) { return IsReshape(node) ? 0 : SlicedInput(node); }

std::optional<int64_t> Whole(const Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return std::nullopt;
  const auto* number = std::get_if<int64_t>(&found->second);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

// The dims of a transpose, from the front.
std::optional<std::vector<int64_t>> PermutationOf(const Graph& graph, const Node& node, size_t rank) {
  std::optional<std::vector<int64_t>> perm;
  if (node.type == "Transpose") {
    perm = NumbersOf(graph, node, "perm");
  } else if (const auto found = node.attributes.find(node.type == "Permute" ? "order" : "perm");
             found != node.attributes.end()) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(&found->second)) perm = *list;
  }
  if (!perm || perm->size() != rank) return std::nullopt;
  for (int64_t& dim : *perm) {
    dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
    if (dim < 0 || dim >= static_cast<int64_t>(rank)) return std::nullopt;
  }
  return perm;
}

// The dim that a split cuts, or that Unpack takes away, from the front.
std::optional<size_t> CutDim(const Graph& graph, const Node& node, size_t rank) {
  std::optional<int64_t> dim;
  if (node.type == "Unpack") {
    dim = Whole(node, "axis").value_or(0);
  } else if (node.type == "SplitD") {
    dim = Whole(node, "split_dim");
  } else if (const auto numbers = NumbersOf(graph, node, "split_dim"); numbers && numbers->size() == 1) {
    dim = numbers->front();
  }
  if (!dim) return std::nullopt;
  if (*dim < 0) *dim += static_cast<int64_t>(rank);
  if (*dim < 0 || *dim >= static_cast<int64_t>(rank)) return std::nullopt;
  return static_cast<size_t>(*dim);
}

}  // namespace

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// A new dim lies within one old dim, or in some that lie back to back.
std::optional<std::vector<int64_t>> ReshapedStrides(const std::vector<int64_t>& sizes,
                                                    const std::vector<int64_t>& strides,
                                                    const std::vector<int64_t>& to) {
  // Old dims that are one run of elements each, the last one first.
  struct Run {
    int64_t size, stride;
  };
  std::vector<Run> runs;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (!runs.empty() && strides[d] == runs.back().size * runs.back().stride) {
      runs.back().size *= sizes[d];
    } else {
      runs.push_back({sizes[d], strides[d]});
    }
  }
  std::vector<int64_t> result(to.size(), 1);
  size_t run = 0;
  int64_t taken = 1;  // of the run
  for (size_t d = to.size(); d-- > 0;) {
    if (to[d] == 1) {
      result[d] = d + 1 < to.size() ? result[d + 1] * to[d + 1] : 1;
      continue;
    }
    if (run < runs.size() && taken == runs[run].size) ++run, taken = 1;
    if (run == runs.size() || runs[run].size % (taken * to[d]) != 0) return std::nullopt;
    result[d] = runs[run].stride * taken;
    taken *= to[d];
  }
  return result;
}

bool WritesStrides(const Node& node, int32_t dtype) {
  if (IsAmong(node.type, kProducts)) return dtype == kFloat || dtype == kFloat16 || dtype == kBFloat16;
  return IsAmong(node.type, kGathers) || node.type == "IndexByTensor" || IsAmong(node.type, kElementwise);
}

namespace {

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), order_(TopologicalOrder(graph)), writes_(graph) {}

  Values Run() {
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), [](const Node& node) {
          return !node.is_removed && (IsAmong(node.type, kAttention) || IsAmong(node.type, kGathers));
        })) {
      return {};
    }
    FindReaders();
    FindMoves();
    // Each failure takes nodes out, which leaves less to others.
    constexpr int kMostRounds = 8;
    for (int round = 0; round < kMostRounds; ++round) {
      if (Place()) return std::move(values_);
    }
    return {};
  }

 private:
  void FindReaders() {
    readers_.resize(graph_.nodes.size());
    is_fixed_.resize(graph_.nodes.size(), false);
    for (const NodeId id : order_) {
      for (uint32_t i = 0; i < graph_.at(id).inputs.size(); ++i) {
        const Port source = graph_.at(id).inputs[i].source;
        if (source.is_set()) readers_[source.node].push_back({id, i});
      }
    }
    for (const Port& result : graph_.results) is_fixed_[result.node] = true;
  }

  // What moves elements, or shows them in another shape, for readers of any strides only.
  void FindMoves() {
    is_move_.resize(graph_.nodes.size(), false);
    for (size_t i = order_.size(); i-- > 0;) {
      const NodeId id = order_[i];
      if (is_fixed_[id] || readers_[id].empty() || !CanMove(id)) continue;
      is_move_[id] = std::all_of(readers_[id].begin(), readers_[id].end(), [&](const Reader& reader) {
        const Node& node = graph_.at(reader.node);
        return TakesStrides(node, reader.input) || (is_move_[reader.node] && reader.input == MovedInput(node));
      });
    }
  }

  bool CanMove(NodeId id) const {
    const Node& node = graph_.at(id);
    if (node.kind != NodeKind::kOperator || node.notes.contains("_cannot_be_deleted") || node.inputs.empty()) {
      return false;
    }
    if (node.type == "Bitcast") return false;
    const bool is_known = IsReshape(node) || IsTranspose(node) || node.type == "Unpack" || node.type == "SplitV" ||
                          node.type == "SplitD" || node.type == "StridedSliceV2";
    const uint32_t input = MovedInput(node);
    if (!is_known || input >= node.inputs.size() || !node.inputs[input].source.is_set()) return false;
    const Port source = node.inputs[input].source;
    const Tensor& whole = graph_.TensorOf(source);
    constexpr int kByte = 8;
    if (!whole.shape.is_static() || whole.shape.elements().Is(0) || opdef::TypeBits(whole.dtype) < kByte ||
        writes_.IsWritten(source)) {
      return false;
    }
    for (uint32_t i = 0; i < node.outputs.size(); ++i) {
      const Tensor& part = node.outputs[i].tensor;
      if (!part.shape.is_static() || part.shape.elements().Is(0) || part.dtype != whole.dtype ||
          writes_.IsWritten({id, i})) {
        return false;
      }
    }
    return true;
  }

  // Places all moves; false if some have no strides, and are moves no more.
  bool Place() {
    values_.clear();
    bool fits = true;
    for (const NodeId id : order_) {
      if (!is_move_[id]) continue;
      const Port source = graph_.at(id).inputs[MovedInput(graph_.at(id))].source;
      StridedValue from{source, 0, RowMajorStrides(graph_.TensorOf(source).shape.numbers())};
      if (const auto found = values_.find({source.node, source.output}); found != values_.end()) from = found->second;
      if (Move(id, from)) continue;
      fits = false;
      // What reads from memory that lies back to back needs the nodes in front to have made it.
      for (NodeId at = id; is_move_[at]; at = graph_.at(at).inputs[MovedInput(graph_.at(at))].source.node) {
        is_move_[at] = false;
      }
    }
    return fits;
  }

  // The outputs of a move whose input is this value.
  bool Move(NodeId id, const StridedValue& from) {
    const Node& node = graph_.at(id);
    const std::vector<int64_t> sizes = graph_.TensorOf(node.inputs[MovedInput(node)].source).shape.numbers();
    if (from.strides.size() != sizes.size()) return false;
    if (IsReshape(node)) {
      auto strides = ReshapedStrides(sizes, from.strides, node.outputs[0].tensor.shape.numbers());
      return strides && Add(id, 0, {from.source, from.offset, std::move(*strides)});
    }
    if (IsTranspose(node)) {
      const auto perm = PermutationOf(graph_, node, sizes.size());
      if (!perm) return false;
      StridedValue to{from.source, from.offset, {}};
      for (const int64_t dim : *perm) to.strides.push_back(from.strides[static_cast<size_t>(dim)]);
      return Add(id, 0, std::move(to));
    }
    if (node.type == "StridedSliceV2") {
      const auto begin = BlockBegin(graph_, node, sizes);
      if (!begin || node.outputs[0].tensor.shape.rank() != sizes.size()) return false;
      StridedValue to = from;
      for (size_t d = 0; d < sizes.size(); ++d) to.offset += (*begin)[d] * from.strides[d];
      return Add(id, 0, std::move(to));
    }
    const auto dim = CutDim(graph_, node, sizes.size());
    if (!dim) return false;
    StridedValue to = from;
    const bool is_unpack = node.type == "Unpack";
    if (is_unpack) to.strides.erase(to.strides.begin() + static_cast<int64_t>(*dim));
    for (uint32_t i = 0; i < node.outputs.size(); ++i) {
      if (!Add(id, i, to)) return false;
      to.offset += from.strides[*dim] * (is_unpack ? 1 : node.outputs[i].tensor.shape[*dim].number());
    }
    return true;
  }

  // False where attention would read it, and the elements of a head do not lie back to back.
  bool Add(NodeId id, uint32_t output, StridedValue value) {
    const std::vector<int64_t> sizes = graph_.at(id).outputs[output].tensor.shape.numbers();
    if (value.strides.size() != sizes.size()) return false;
    const bool is_run = sizes.empty() || sizes.back() == 1 || value.strides.back() == 1;
    for (const Reader& reader : readers_[id]) {
      const Port read = graph_.at(reader.node).inputs[reader.input].source;
      if (read.output == output && IsHead(graph_.at(reader.node), reader.input) && !is_run) return false;
    }
    values_[{id, output}] = std::move(value);
    return true;
  }

  struct Reader {
    NodeId node;
    uint32_t input;
  };

  const Graph& graph_;
  const std::vector<NodeId> order_;
  const Writes writes_;
  std::vector<std::vector<Reader>> readers_;  // by node
  std::vector<bool> is_fixed_;                // results of the graph
  std::vector<bool> is_move_;
  Values values_;
};

}  // namespace

std::map<Key, StridedValue> FindStridedValues(const Graph& graph) { return Finder(graph).Run(); }

}  // namespace reprise::compiler
