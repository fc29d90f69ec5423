// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "compiler/node_call.h"
#include "compiler/storage.h"
#include "compiler/strided_views.h"
#include "compiler/views.h"
#include "opdef/graph_op.h"
#include "ops/named_lowering.h"

namespace reprise::compiler {
namespace {

// A value: where its elements begin.
struct Value {
  StorageId storage = kNoStorage;
  uint64_t offset = 0;
  std::vector<int64_t> strides = {};  // in elements; empty: row-major
};

class Lowering final : public ops::Arena {
 public:
  explicit Lowering(const Graph& graph) : graph_(graph), strided_(FindStridedValues(graph)) {}

  StatusOr<Lowered> Run(bool has_single_stream) {
    REPRISE_ASSIGN_OR_RETURN(lowered_.streams, AssignStreams(graph_, has_single_stream));
    lowered_.order = TaskOrder(static_cast<uint32_t>(lowered_.streams.streams.size()));
    lowered_.inputs = static_cast<uint32_t>(graph_.inputs.size());
    lowered_.outputs = static_cast<uint32_t>(graph_.results.size());
    REPRISE_RETURN_IF_ERROR(AddInputs());
    ClaimOutputs();
    ClaimParts();
    for (const NodeId id : TopologicalOrder(graph_)) REPRISE_RETURN_IF_ERROR(LowerNode(id));
    for (uint32_t i = 0; i < lowered_.outputs; ++i) REPRISE_RETURN_IF_ERROR(FinishOutput(i));
    PackConstants(lowered_);
    if (lowered_.order.streams() == 1) {
      FuseTasks(lowered_);
      JoinTasks(lowered_);
    }
    Order();
    return std::move(lowered_);
  }

  void* Allocate(uint64_t bytes) override { return Pointer(Add(Storage::Kind::kFeature, 0, bytes)); }
  void* Keep(std::span<const char> bytes) override {
    const StorageId id = Add(Storage::Kind::kConstant, 0, bytes.size());
    auto constant = std::make_shared<Constant>();
    constant->bytes.assign(bytes.data(), bytes.size());
    lowered_.storages[id].constant = std::move(constant);
    return Pointer(id);
  }

 private:
  using Key = std::pair<NodeId, uint32_t>;
  // The joined tensor that a value is a part of, and where it lies there.
  struct Part {
    NodeId whole;
    uint64_t offset;
    std::vector<int64_t> strides;  // as those of a value
  };

  StorageId Add(Storage::Kind kind, uint32_t index, uint64_t bytes) {
    Storage storage;
    storage.kind = kind;
    storage.index = index;
    storage.bytes = bytes;
    return lowered_.Add(std::move(storage));
  }
  void* Pointer(StorageId id, uint64_t offset = 0) const {
    return reinterpret_cast<void*>(lowered_.storages[id].address + offset);  // NOLINT(performance-no-int-to-ptr)
  }
  void* Pointer(const Value& value) const { return Pointer(value.storage, value.offset); }

  Status Unknown(const Port& port) const {
    return Error(kInvalidArgument, fmt::format("the shape or type of {} is not known: {}", graph_.TextOf(port),
                                               graph_.TensorOf(port).shape.text()))
        .Culprit(fmt::format("graph {}", graph_.name))
        .Hint("give the graph's inputs shapes that all others follow from");
  }

  Status AddInputs() {
    for (uint32_t i = 0; i < lowered_.inputs; ++i) {
      const Port port{graph_.inputs[i], 0};
      const std::optional<uint64_t> bytes = BytesOf(graph_.TensorOf(port));
      if (!bytes) return Unknown(port);
      values_[{port.node, 0}] = {Add(Storage::Kind::kInput, i, *bytes), 0};
    }
    return {};
  }

  // The value that a chain of views shows, if each shows all of it.
  Port Behind(Port port) const {
    while (graph_.at(port.node).kind == NodeKind::kOperator && IsReshape(graph_.at(port.node))) {
      port = graph_.at(port.node).inputs[0].source;
    }
    return port;
  }

  // Results that are written where the caller wants them.
  void ClaimOutputs() {
    for (uint32_t i = 0; i < lowered_.outputs; ++i) {
      const Port port = Behind(graph_.results[i]);
      const Node& node = graph_.at(port.node);
      const bool is_written_here = node.kind == NodeKind::kOperator && !IsSlice(graph_, port.node) &&
                                   !ReferencedInput(graph_, port.node, port.output);
      if (is_written_here) claims_.try_emplace({port.node, port.output}, i);
    }
  }

  // Values that are joined are written where the joined tensor will be, if they are used for nothing else.
  void ClaimParts() {
    std::map<Key, uint32_t> uses;
    for (const Node& node : graph_.nodes) {
      if (node.is_removed) continue;
      for (const Input& input : node.inputs) {
        if (input.source.is_set()) ++uses[{input.source.node, input.source.output}];
      }
    }
    for (const Port& port : graph_.results) ++uses[{port.node, port.output}];
    for (const auto& [key, count] : uses) used_.insert(key);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.at(id).is_removed) continue;
      const std::optional<std::vector<JoinedPart>> parts = JoinedParts(graph_, id);
      if (!parts) continue;
      std::vector<std::pair<Key, Part>> written;
      for (const JoinedPart& part : *parts) {
        const Port source = graph_.at(id).inputs[part.input].source;
        const std::optional<Key> key = OnlyWriter(source, uses);
        if (!key) break;
        std::optional<std::vector<int64_t>> strides = StridesOf(part, source, {key->first, key->second});
        if (!strides) break;
        written.push_back({*key, {id, part.offset, std::move(*strides)}});
      }
      if (written.size() != parts->size()) continue;
      parts_.insert(std::make_move_iterator(written.begin()), std::make_move_iterator(written.end()));
      joined_.insert(id);
    }
  }

  // Where in the joined tensor `writer` writes the elements that `source` shows, perhaps in another shape; nothing if
  // it cannot.
  std::optional<std::vector<int64_t>> StridesOf(const JoinedPart& part, const Port& source, const Port& writer) const {
    if (part.strides.empty()) return part.strides;
    const Tensor& written = graph_.TensorOf(writer);
    if (!WritesStrides(graph_.at(writer.node), written.dtype) || !written.shape.is_static()) return std::nullopt;
    if (written.shape.elements().Is(0)) return std::nullopt;
    return ReshapedStrides(graph_.TensorOf(source).shape.numbers(), part.strides, written.shape.numbers());
  }

  // The output that a value is, perhaps seen in another shape, if nobody else sees it and it can be written anywhere.
  std::optional<Key> OnlyWriter(Port port, const std::map<Key, uint32_t>& uses) const {
    while (true) {
      const Node& node = graph_.at(port.node);
      if (node.kind != NodeKind::kOperator || uses.at({port.node, port.output}) != 1) return std::nullopt;
      if (!IsReshape(node)) break;
      port = node.inputs[0].source;
    }
    if (IsSlice(graph_, port.node) || ReferencedInput(graph_, port.node, port.output)) return std::nullopt;
    return Key(port.node, port.output);
  }

  // Memory for an output of a node.
  StatusOr<Value> NewValue(const Port& port) {
    const std::optional<uint64_t> bytes = BytesOf(graph_.TensorOf(port));
    if (!bytes) return Unknown(port);
    if (const auto part = parts_.find({port.node, port.output}); part != parts_.end()) {
      const Port whole{part->second.whole, 0};
      const auto [entry, is_new] = values_.try_emplace(Key(whole.node, 0));
      if (is_new) {
        REPRISE_ASSIGN_OR_RETURN(entry->second, NewValue(whole));
      }
      return Value{entry->second.storage, entry->second.offset + part->second.offset, part->second.strides};
    }
    const auto claim = claims_.find({port.node, port.output});
    if (claim == claims_.end()) return Value{Add(Storage::Kind::kFeature, 0, *bytes), 0};
    return Value{Add(Storage::Kind::kOutput, claim->second, *bytes), 0};
  }

  StatusOr<Value> ValueOf(const Port& port) {
    const auto found = values_.find({port.node, port.output});
    if (found != values_.end()) return found->second;
    return Error(kInvalidArgument, fmt::format("{} has no value: its node did not run", graph_.TextOf(port)))
        .Culprit(fmt::format("graph {}", graph_.name))
        .Hint("remove the nodes that only order others from its inputs");
  }

  Status LowerNode(NodeId id) {
    const Node& node = graph_.at(id);
    switch (node.kind) {
      case NodeKind::kData:
      case NodeKind::kOrder: return {};
      case NodeKind::kConstant: return AddConstant(id);
      case NodeKind::kCall:
        return Error(kOpNotFound,
                     fmt::format("node {} ({}): calls a graph, which one program cannot", node.name, node.type))
            .Culprit(fmt::format("graph {}", graph_.name))
            .Hint("run the graph with an Executable, which runs such nodes one by one");
      case NodeKind::kOperator: break;
    }
    if (strided_.contains({id, 0})) return LowerStrided(id);
    if (IsReshape(node)) {
      REPRISE_ASSIGN_OR_RETURN(values_[Key(id, 0)], ValueOf(node.inputs[0].source));
      return {};
    }
    if (const std::optional<std::vector<uint64_t>> offsets = SliceOffsets(graph_, id)) {
      REPRISE_ASSIGN_OR_RETURN(const Value source, ValueOf(node.inputs[SlicedInput(node)].source));
      for (uint32_t i = 0; i < offsets->size(); ++i) {
        values_[{id, i}] = {source.storage, source.offset + (*offsets)[i]};
      }
      return {};
    }
    if (joined_.contains(id)) return {};  // its inputs lie where the result does
    return LowerOperator(id);
  }

  // Its outputs are read where its input lies.
  Status LowerStrided(NodeId id) {
    for (uint32_t i = 0; i < graph_.at(id).outputs.size(); ++i) {
      const StridedValue& strided = strided_.at({id, i});
      REPRISE_ASSIGN_OR_RETURN(const Value source, ValueOf(strided.source));
      const auto item = static_cast<uint64_t>(opdef::TypeBits(graph_.TensorOf(strided.source).dtype)) / 8;
      values_[{id, i}] = {source.storage, source.offset + static_cast<uint64_t>(strided.offset) * item,
                          strided.strides};
    }
    return {};
  }

  Status AddConstant(NodeId id) {
    const Node& node = graph_.at(id);
    const StorageId storage = Add(Storage::Kind::kConstant, 0, node.constant->bytes.size());
    lowered_.storages[storage].constant = node.constant;
    values_[{id, 0}] = {storage, 0};
    return {};
  }

  Status LowerOperator(NodeId id) {
    const Node& node = graph_.at(id);
    NodeCall call(graph_, id, this);
    REPRISE_RETURN_IF_ERROR(call.TakeStatus());
    for (uint32_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].source.is_set()) continue;
      REPRISE_ASSIGN_OR_RETURN(const Value value, ValueOf(node.inputs[i].source));
      call.SetInput(i, Pointer(value), value.strides);
    }
    for (uint32_t i = 0; i < node.outputs.size(); ++i) {
      Value value;
      const std::optional<uint32_t> in_place = ReferencedInput(graph_, id, i);
      if (in_place) {
        REPRISE_ASSIGN_OR_RETURN(value, ValueOf(node.inputs[*in_place].source));
        if (lowered_.storages[value.storage].kind == Storage::Kind::kConstant) {
          return Error(kInvalidArgument, fmt::format("node {} ({}): writes the constant {}", node.name, node.type,
                                                     graph_.TextOf(node.inputs[*in_place].source)))
              .Culprit(fmt::format("graph {}", graph_.name))
              .Hint("copy the constant with TensorMove, and write the copy");
        }
      } else if (i > 0 && !used_.contains({id, i})) {
        call.LeaveOut(i);
        continue;
      } else {
        REPRISE_ASSIGN_OR_RETURN(value, NewValue({id, i}));
      }
      values_[{id, i}] = value;
      call.SetOutput(i, Pointer(value), lowered_.storages[value.storage].bytes - value.offset, value.strides);
    }
    REPRISE_RETURN_IF_ERROR(call.Infer());
    REPRISE_RETURN_IF_ERROR(call.Plan());
    Take(call.call(), id);
    return {};
  }

  void Take(const ops::NamedCall& call, NodeId id) {
    size_t next = 0;
    for (const ops::NamedCall::PlannedStep& step : call.steps()) {
      for (size_t i = 0; i < step.launches; ++i) {
        // A copy, because other addresses will be written into it.
        LoweredTask& task = lowered_.tasks.emplace_back();
        task.launch = LaunchOwner(new ops::Launch(*call.launches()[next++]));
        task.workspace = reinterpret_cast<uintptr_t>(step.workspace);
        task.node = id;
      }
    }
  }

  // Copies what could not be written in place.
  Status FinishOutput(uint32_t index) {
    const Port port = graph_.results[index];
    REPRISE_ASSIGN_OR_RETURN(const Value value, ValueOf(port));
    const Storage& from = lowered_.storages[value.storage];
    if (from.kind == Storage::Kind::kOutput && from.index == index) return {};
    const std::optional<uint64_t> bytes = BytesOf(graph_.TensorOf(port));
    if (!bytes) return Unknown(port);
    const StorageId output = Add(Storage::Kind::kOutput, index, *bytes);
    const Tensor& tensor = graph_.TensorOf(port);
    ops::NamedRequest request{.type = "TensorMove", .arena = this};
    int32_t dtype = tensor.dtype;
    std::vector<int64_t> dims = tensor.shape.numbers();
    if (opdef::TypeBits(dtype) == 4) {  // two in a byte, which no kernel takes apart
      dtype = static_cast<int32_t>(kernels::DType::kUInt8);
      dims = {static_cast<int64_t>(*bytes)};
    }
    request.inputs = {{ops::OperandOf(dtype, dims, Pointer(value))}};
    request.outputs = {{ops::OperandOf(dtype, dims, Pointer(output))}};
    REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<ops::NamedCall> copy, ops::LowerNamed(std::move(request)));
    const size_t tasks = lowered_.tasks.size();
    Take(*copy, kNoNode);
    copied_outputs_.resize(copied_outputs_.size() + lowered_.tasks.size() - tasks, value.storage);
    return {};
  }

  // The tasks that a node waits for: its own last one, or, of a node without tasks, those that it waits for itself.
  const std::vector<uint32_t>& Ends(NodeId id) {
    const auto [entry, is_new] = ends_.try_emplace(id);
    if (!is_new) return entry->second;
    std::vector<uint32_t> ends;
    if (const auto last = last_task_.find(id); last != last_task_.end()) {
      ends.push_back(last->second);
    } else {
      ForEachBefore(id, [&](NodeId before) {
        const std::vector<uint32_t>& others = Ends(before);
        ends.insert(ends.end(), others.begin(), others.end());
      });
      std::sort(ends.begin(), ends.end());
      ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    }
    return ends_[id] = std::move(ends);
  }

  template <class Visit>
  void ForEachBefore(NodeId id, Visit visit) const {
    for (const Input& input : graph_.at(id).inputs) {
      if (input.source.is_set()) visit(input.source.node);
    }
    for (const NodeId before : graph_.at(id).after) visit(before);
  }

  // The tasks before `end` that write the storage: a result is what its memory holds when all have written it.
  std::vector<uint32_t> WritersOf(StorageId storage, uint32_t end) const {
    std::vector<uint32_t> writers;
    for (uint32_t i = 0; i < end; ++i) {
      const ops::Launch& launch = *lowered_.tasks[i].launch;
      for (size_t operand = 0; operand < launch.refs.size(); ++operand) {
        if (launch.uses[operand].slot < 0 || !launch.uses[operand].is_write) continue;
        if (lowered_.Find(reinterpret_cast<uintptr_t>(launch.refs[operand].data)) != storage) continue;
        writers.push_back(i);
        break;
      }
    }
    return writers;
  }

  // Which task runs on which stream, behind which others. With one stream their order says it all.
  void Order() {
    if (lowered_.order.streams() == 1) {
      for (size_t i = 0; i < lowered_.tasks.size(); ++i) lowered_.order.Add(0, {});
      return;
    }
    uint32_t output = 0;
    for (uint32_t i = 0; i < lowered_.tasks.size(); ++i) {
      const NodeId id = lowered_.tasks[i].node;
      std::vector<uint32_t> before;
      uint32_t stream = 0;
      if (id == kNoNode) {
        before = WritersOf(copied_outputs_[output++], i);
      } else {
        stream = lowered_.streams.stream_of[id];
        if (!last_task_.contains(id)) {
          ForEachBefore(id, [&](NodeId first) {
            const std::vector<uint32_t>& others = Ends(first);
            before.insert(before.end(), others.begin(), others.end());
          });
        }
        last_task_[id] = i;
      }
      lowered_.order.Add(stream, before);
    }
  }

  const Graph& graph_;
  Lowered lowered_;
  std::map<NodeId, uint32_t> last_task_;
  std::map<NodeId, std::vector<uint32_t>> ends_;
  std::vector<StorageId> copied_outputs_;  // by task that copies to an output, from where
  std::map<Key, StridedValue> strided_;
  std::map<Key, Value> values_;
  std::map<Key, uint32_t> claims_;  // the output of the graph that a value is
  std::map<Key, Part> parts_;
  std::set<Key> used_;       // values that somebody reads
  std::set<NodeId> joined_;  // nodes whose inputs are all such parts
};

}  // namespace

std::optional<uint64_t> BytesOf(const Tensor& tensor) {
  if (!tensor.shape.is_static()) return std::nullopt;
  return BytesOf(tensor.dtype, tensor.shape.numbers());
}

std::optional<uint64_t> BytesOf(int32_t dtype, std::span<const int64_t> dims) {
  const int64_t bits = opdef::TypeBits(dtype);
  if (bits <= 0 || std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) return std::nullopt;
  if (bits >= 8) return ops::BytesOf(dims, static_cast<uint64_t>(bits / 8));
  const std::optional<uint64_t> elements = ops::BytesOf(dims, 1);
  if (!elements) return std::nullopt;
  return (*elements * static_cast<uint64_t>(bits) + 7) / 8;
}

StatusOr<Lowered> Lower(const Graph& graph, bool has_single_stream) { return Lowering(graph).Run(has_single_stream); }

}  // namespace reprise::compiler
