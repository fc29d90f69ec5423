// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/rewrite.h"
#include "compiler/storage.h"
#include "ops/launch.h"
#include "ops/named_lowering.h"

namespace reprise::compiler {
namespace {

constexpr int32_t kNumber32 = 3;  // int32
constexpr int32_t kNumber64 = 9;  // int64
constexpr int kMostCalls = 64;    // of graphs by graphs, one inside the other

// Aligned as kernels want it.
class HostMemory : public ops::Arena {
 public:
  void* Allocate(uint64_t bytes) override {
    blocks_.push_back(std::make_unique<char[]>(bytes + ops::kScratchAlignment));
    const auto begin = reinterpret_cast<uintptr_t>(blocks_.back().get());
    return blocks_.back().get() + (-begin & (ops::kScratchAlignment - 1));
  }
  void* Keep(std::span<const char> bytes) override {
    void* memory = Allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(memory));
    return memory;
  }

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
};

Status Wrong(const Graph& graph, const Node& node, std::string what, std::string hint) {
  return Error(kInvalidArgument, fmt::format("node {} ({}): {}", node.name, node.type, what))
      .Culprit(fmt::format("graph {}", graph.name))
      .Hint(std::move(hint));
}

void RunLaunches(const ops::NamedCall& call, HostMemory& memory) {
  size_t next = 0;
  for (const ops::NamedCall::PlannedStep& step : call.steps()) {
    for (size_t i = 0; i < step.launches; ++i, ++next) {
      const ops::Launch& launch = *call.launches()[next];
      ops::Launch::KernelMemory own;
      const auto begin = reinterpret_cast<uintptr_t>(step.workspace);
      own.workspace = static_cast<char*>(step.workspace) + (-begin & (ops::kScratchAlignment - 1));
      if (launch.scratch_bytes != 0) own.scratch = memory.Allocate(launch.scratch_bytes);
      launch.kernel(launch, {0, launch.units}, own);
    }
  }
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, int depth) : graph_(graph), depth_(depth), values_(graph.nodes.size()) {}

  StatusOr<std::vector<ConstantPtr>> Run(std::span<const ConstantPtr> inputs) {
    if (inputs.size() < graph_.inputs.size() || depth_ > kMostCalls) {
      return Error(kInvalidArgument, fmt::format("graph {} takes {} inputs, {} are there", graph_.name,
                                                 graph_.inputs.size(), inputs.size()))
          .Hint("pass a value for each input");
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) values_[graph_.inputs[i]] = {inputs[i]};
    for (const NodeId id : TopologicalOrder(graph_)) {
      const Node& node = graph_.at(id);
      if (node.kind == NodeKind::kData || node.kind == NodeKind::kOrder) continue;
      if (node.kind == NodeKind::kConstant) {
        values_[id] = {node.constant};
        continue;
      }
      std::vector<ConstantPtr> arguments;
      for (const Input& input : node.inputs) arguments.push_back(input.source.is_set() ? At(input.source) : nullptr);
      REPRISE_ASSIGN_OR_RETURN(values_[id], Compute(id, arguments));
    }
    std::vector<ConstantPtr> results;
    for (const Port& port : graph_.results) results.push_back(At(port));
    return results;
  }

 private:
  const ConstantPtr& At(Port port) const { return values_[port.node][port.output]; }

  StatusOr<std::vector<ConstantPtr>> Compute(NodeId id, std::span<const ConstantPtr> arguments) const {
    const Node& node = graph_.at(id);
    if (node.kind == NodeKind::kCall) return Call(node, arguments);
    if (ConstantPtr first = DimensionOf(graph_, id, 0); first != nullptr) {
      std::vector<ConstantPtr> values = {std::move(first)};
      while (values.size() < node.outputs.size()) {
        values.push_back(DimensionOf(graph_, id, static_cast<uint32_t>(values.size())));
      }
      return values;
    }
    return EvaluateNode(graph_, id, arguments);
  }

  StatusOr<std::vector<ConstantPtr>> Call(const Node& node, std::span<const ConstantPtr> arguments) const {
    size_t taken = 0;
    size_t skipped = 0;
    if (node.type == "If" || node.type == "Case") {
      const auto choice = arguments.empty() || arguments[0] == nullptr ? std::nullopt : RealsOf(*arguments[0]);
      if (!choice || choice->size() != 1) return Wrong(graph_, node, "its choice is no number", "pass a scalar");
      const double last = static_cast<double>(node.graphs.size()) - 1;
      taken = node.type == "If"                         ? ((*choice)[0] != 0 ? 0 : 1)
              : (*choice)[0] < 0 || (*choice)[0] > last ? node.graphs.size() - 1
                                                        : static_cast<size_t>((*choice)[0]);
      skipped = 1;
    } else if (node.type != "PartitionedCall" && node.type != "StatefulPartitionedCall") {
      return Wrong(graph_, node, "loops are not computed while a graph is compiled", "run the graph");
    }
    if (taken >= node.graphs.size()) return Wrong(graph_, node, "it calls no graph", "name a subgraph");
    return Evaluator(*node.graphs[taken], depth_ + 1).Run(arguments.subspan(skipped));
  }

  const Graph& graph_;
  const int depth_;
  std::vector<std::vector<ConstantPtr>> values_;
};

}  // namespace

bool CanEvaluate(const Node& node) {
  return node.kind == NodeKind::kOperator && node.op != nullptr && ops::HasSteps(node.type);
}

StatusOr<std::vector<ConstantPtr>> EvaluateNode(const Graph& graph, NodeId id, std::span<const ConstantPtr> inputs) {
  const Node& node = graph.at(id);
  if (!CanEvaluate(node)) return ops::NoSteps(node.type);
  REPRISE_ASSIGN_OR_RETURN(const Operands operands, BindOperands(graph, id));
  HostMemory memory;
  ops::NamedRequest request{.type = node.type, .attributes = &node.attributes, .arena = &memory};
  std::vector<void*> places(inputs.size(), nullptr);
  for (const std::vector<uint32_t>& operand : operands) {
    std::vector<ops::NamedTensor>& tensors = request.inputs.emplace_back();
    for (const uint32_t index : operand) {
      const ConstantPtr& value = inputs[index];
      if (value == nullptr) return Wrong(graph, node, fmt::format("input {} has no value", index), "give it one");
      places[index] = memory.Keep(value->bytes);
      tensors.push_back(ops::OperandOf(value->dtype, value->shape, places[index], value->bytes));
    }
  }
  std::vector<std::shared_ptr<Constant>> results;
  std::vector<const void*> sources;
  const auto written = WrittenInputs(graph, id);
  uint32_t output = 0;
  for (const size_t count : OutputCounts(node)) {
    std::vector<ops::NamedTensor>& tensors = request.outputs.emplace_back();
    for (size_t i = 0; i < count && output < node.outputs.size(); ++i, ++output) {
      const Tensor& tensor = node.outputs[output].tensor;
      const auto bytes = BytesOf(tensor);
      if (!bytes) return Wrong(graph, node, "the shape of an output is not known", "compute it when the graph runs");
      results.push_back(std::make_shared<Constant>());
      results.back()->dtype = tensor.dtype;
      results.back()->shape = tensor.shape.numbers();
      results.back()->bytes.resize(*bytes);
      void* place = nullptr;
      for (const auto& [from, to] : written) {
        if (to == output) place = places[from];
      }
      if (place == nullptr) place = memory.Allocate(*bytes);
      sources.push_back(place);
      tensors.push_back(ops::OperandOf(tensor.dtype, tensor.shape.numbers(), place));
      tensors.back().has_constant = false;
    }
  }
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<ops::NamedCall> call, ops::LowerNamed(std::move(request)));
  if (!call->found_outputs().empty()) {
    return Wrong(graph, node, "the shape of an output depends on data", "compute it when the graph runs");
  }
  RunLaunches(*call, memory);
  std::vector<ConstantPtr> values;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto* bytes = static_cast<const char*>(sources[i]);
    std::copy(bytes, bytes + results[i]->bytes.size(), results[i]->bytes.begin());
    values.push_back(std::move(results[i]));
  }
  return values;
}

StatusOr<std::vector<ConstantPtr>> EvaluateGraph(const Graph& graph, std::span<const ConstantPtr> inputs) {
  return Evaluator(graph, 0).Run(inputs);
}

ConstantPtr DimensionOf(const Graph& graph, NodeId id, uint32_t index) {
  const Node& node = graph.at(id);
  const bool is_list = node.type == "ShapeN";
  if (node.kind != NodeKind::kOperator ||
      (!is_list && node.type != "Shape" && node.type != "Size" && node.type != "Rank")) {
    return nullptr;
  }
  if (index >= node.inputs.size() || index >= node.outputs.size() || !node.inputs[index].source.is_set())
    return nullptr;
  const opdef::Shape& shape = graph.TensorOf(node.inputs[index].source).shape;
  if (!shape.is_static()) return nullptr;
  int32_t dtype = node.outputs[index].tensor.dtype;
  if (dtype != kNumber32 && dtype != kNumber64) dtype = kNumber32;
  std::vector<int64_t> values = shape.numbers();
  std::vector<int64_t> sizes = {static_cast<int64_t>(values.size())};
  if (node.type == "Rank" || node.type == "Size") {
    const opdef::Dim elements = shape.elements();
    if (!elements.is_number()) return nullptr;
    values = {node.type == "Rank" ? static_cast<int64_t>(values.size()) : elements.number()};
    sizes = {};
  }
  return MakeConstant(dtype, sizes, std::span<const int64_t>(values));
}

}  // namespace reprise::compiler
