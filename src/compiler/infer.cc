// SPDX-License-Identifier: Apache-2.0
#include "opdef/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "compiler/graph.h"
#include "compiler/inference_rule.h"
#include "compiler/operands.h"
#include "compiler/type_numbers.h"

namespace reprise::compiler {
namespace {

using opdef::Dim;

constexpr size_t kMostElements = 4096;  // of constants whose values decide shapes

template <class T, class To>
std::vector<To> Elements(const std::string& bytes) {
  std::vector<To> elements(bytes.size() / sizeof(T));
  for (size_t i = 0; i < elements.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    elements[i] = static_cast<To>(element);
  }
  return elements;
}

class Inference {
 public:
  Inference(Graph& graph, opdef::Facts& facts) : graph_(graph), facts_(facts) {}

  Status Run() {
    for (const NodeId id : TopologicalOrder(graph_)) {
      Node& node = graph_.at(id);
      if (node.kind == NodeKind::kConstant && node.constant != nullptr) KeepValue(id, *node.constant);
      if (node.kind == NodeKind::kOperator && node.op != nullptr) REPRISE_RETURN_IF_ERROR(InferNode(id));
      if (InferenceRuleOf(node) != nullptr) REPRISE_RETURN_IF_ERROR(ApplyRule(id));
    }
    return {};
  }

 private:
  void KeepValue(NodeId id, const Constant& constant) {
    Node& node = graph_.at(id);
    if (node.outputs.empty()) node.outputs.push_back({"y", {}});
    node.outputs[0].tensor.dtype = constant.dtype;
    node.outputs[0].tensor.shape = opdef::Shape::Of(constant.shape);
    const int64_t bits = opdef::TypeBits(constant.dtype);
    if (bits <= 0 || constant.bytes.size() * 8 / static_cast<size_t>(bits) > kMostElements) return;
    if (constant.dtype == kInt32Number) integers_[{id, 0}] = Elements<int32_t, Dim>(constant.bytes);
    if (constant.dtype == kInt64Number) integers_[{id, 0}] = Elements<int64_t, Dim>(constant.bytes);
    if (constant.dtype == kFloatNumber) reals_[{id, 0}] = Elements<float, double>(constant.bytes);
  }

  opdef::InferTensor Describe(const Node& node, uint32_t index) const {
    const Input& input = node.inputs[index];
    const Tensor& tensor = graph_.TensorOf(input.source);
    opdef::InferTensor known;
    known.place = fmt::format("input {} of node {}, {}", index, node.name, graph_.TextOf(input.source));
    known.dtype = tensor.dtype;
    known.shape = tensor.shape;
    const std::pair key(input.source.node, input.source.output);
    if (const auto found = integers_.find(key); found != integers_.end()) known.value = found->second;
    if (const auto found = reals_.find(key); found != reals_.end()) known.reals = found->second;
    return known;
  }

  Status InferNode(NodeId id) {
    Node& node = graph_.at(id);
    REPRISE_ASSIGN_OR_RETURN(const Operands operands, BindOperands(graph_, id));
    opdef::InferContext call(*node.op);
    call.attributes = &node.attributes;
    call.facts = &facts_;
    for (size_t i = 0; i < operands.size(); ++i) {
      for (const uint32_t index : operands[i]) call.inputs[i].push_back(Describe(node, index));
    }
    // What the front end said of the outputs: how many a list has, and the types that it wants.
    const std::vector<size_t> counts = OutputCounts(node);
    size_t next = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      call.outputs[i].resize(counts[i]);
      for (opdef::InferResult& result : call.outputs[i]) {
        if (next < node.outputs.size() && !node.outputs[next].is_type_open) {
          result.wanted = node.outputs[next].tensor.dtype;
        }
        ++next;
      }
    }
    if (Status status = opdef::Infer(call); !status.ok()) {
      return Error(kInvalidArgument, fmt::format("node {}: {}", node.name, status.detail().what))
          .Culprit(fmt::format("graph {}", graph_.name))
          .Hint(status.detail().hint);
    }
    return Keep(id, call);
  }

  Status ApplyRule(NodeId id) {
    Node& node = graph_.at(id);
    std::vector<RuleInput> inputs(node.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Port source = node.inputs[i].source;
      if (!source.is_set()) continue;
      inputs[i].shape = graph_.TensorOf(source).shape;
      const auto found = integers_.find({source.node, source.output});
      if (found != integers_.end()) inputs[i].value = found->second;
    }
    return ApplyInferenceRule(node, inputs);
  }

  Status Keep(NodeId id, opdef::InferContext& call) {
    Node& node = graph_.at(id);
    size_t next = 0;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      for (size_t n = 0; n < call.outputs[i].size(); ++n, ++next) {
        opdef::InferResult& result = call.outputs[i][n];
        if (next >= node.outputs.size()) node.outputs.emplace_back();
        if (node.outputs[next].name.empty()) {
          const opdef::Operand& operand = node.op->outputs[i];
          node.outputs[next].name =
              operand.is_list() ? fmt::format("{}{}", operand.name, n) : std::string(operand.name);
        }
        Tensor& tensor = node.outputs[next].tensor;
        if (result.dtype >= 0) tensor.dtype = result.dtype;
        node.outputs[next].is_type_open = false;
        tensor.shape = facts_.Simplify(result.shape);
        if (result.value) integers_[{id, static_cast<uint32_t>(next)}] = std::move(*result.value);
      }
    }
    return {};
  }

  Graph& graph_;
  opdef::Facts& facts_;
  std::map<std::pair<NodeId, uint32_t>, std::vector<Dim>> integers_;
  std::map<std::pair<NodeId, uint32_t>, std::vector<double>> reals_;
};

}  // namespace

Status InferShapes(Graph& graph, opdef::Facts& facts) { return Inference(graph, facts).Run(); }

}  // namespace reprise::compiler
