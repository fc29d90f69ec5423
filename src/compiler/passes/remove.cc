// SPDX-License-Identifier: Apache-2.0
//
// Nodes that give what they get.
#include <cmath>
#include <optional>

#include "compiler/constant.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

bool IsOneOf(std::string_view type, std::initializer_list<std::string_view> types) {
  for (const std::string_view each : types) {
    if (type == each) return true;
  }
  return false;
}

// Takes nodes out whose users get one of their inputs instead: the one that `find` tells.
template <class Find>
void ForwardAll(Graph& graph, PassContext& context, Find find) {
  std::optional<Rewriter> rewriter;
  std::optional<Writes> writes;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed) continue;
    const std::optional<uint32_t> input = find(node);
    if (!input) continue;
    if (!rewriter) rewriter.emplace(graph);
    if (!writes) writes.emplace(graph);
    if (HasNote(node, "_cannot_be_deleted")) {
      context.Refused(node, "it is marked as one that must stay");
      continue;
    }
    if (node.inputs.size() <= *input || !node.inputs[*input].source.is_set()) {
      context.Refused(node, "it has no input");
      continue;
    }
    if (!writes->MayShare(node, id, *input)) {
      context.Refused(node, "its input or its output is written in place, so that both must not be one");
      continue;
    }
    rewriter->Splice(id, *input);
    context.Changed();
  }
}

// Takes the nodes out that `is_wanted` names; input 0 is what users get.
template <class IsWanted>
void SpliceAll(Graph& graph, PassContext& context, IsWanted is_wanted) {
  ForwardAll(graph, context,
             [&](const Node& node) { return is_wanted(node) ? std::optional<uint32_t>(0) : std::nullopt; });
}

// A constant of this value in all its elements. The sign of 0 counts.
bool IsNumber(const Graph& graph, const Input& input, double number) {
  if (!input.source.is_set()) return false;
  const Constant* const constant = graph.at(input.source.node).constant.get();
  const std::optional<double> value = constant != nullptr ? UniformValueOf(*constant) : std::nullopt;
  return value && *value == number && std::signbit(*value) == std::signbit(number);
}

// The input that x * 1, x / 1 and x - 0 are. A sum with 0 is not x: it makes 0 of -0.
std::optional<uint32_t> NeutralInput(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1) return std::nullopt;
  std::optional<uint32_t> input;
  if (node.type == "Muls") {
    const auto value = node.attributes.find("value");
    const auto* const number = value != node.attributes.end() ? std::get_if<float>(&value->second) : nullptr;
    if (node.inputs.size() == 1 && number != nullptr && *number == 1) input = 0;
  } else if (node.inputs.size() == 2 && IsOneOf(node.type, {"Mul", "RealDiv", "Div", "Sub"})) {
    const double neutral = node.type == "Sub" ? 0 : 1;
    if (IsNumber(graph, node.inputs[1], neutral)) {
      input = 0;
    } else if (node.type == "Mul" && IsNumber(graph, node.inputs[0], neutral)) {
      input = 1;
    }
  }
  if (!input || !node.inputs[*input].source.is_set()) return std::nullopt;
  const Tensor& from = graph.TensorOf(node.inputs[*input].source);
  const Tensor& to = node.outputs[0].tensor;
  const bool is_same = from.dtype == to.dtype && from.shape.has_rank() && from.shape == to.shape;
  return is_same ? input : std::nullopt;
}

}  // namespace

Status RemoveNeutral(Graph& graph, PassContext& context) {
  ForwardAll(graph, context, [&](const Node& node) { return NeutralInput(graph, node); });
  return {};
}

Status RemoveIdentity(Graph& graph, PassContext& context) {
  SpliceAll(graph, context, [](const Node& node) { return node.type == "Identity" && node.outputs.size() == 1; });
  return {};
}

Status RemoveMarkers(Graph& graph, PassContext& context) {
  SpliceAll(graph, context, [](const Node& node) {
    return node.outputs.size() == 1 && IsOneOf(node.type, {"StopGradient", "PreventGradient", "Snapshot",
                                                           "GuaranteeConst", "PlaceholderWithDefault"});
  });
  return {};
}

Status RemoveDropout(Graph& graph, PassContext& context) {
  if (!context.options.is_inference) return {};
  SpliceAll(graph, context, [](const Node& node) { return node.type == "Dropout" && node.outputs.size() == 1; });
  return {};
}

// Of these only the effect was wanted. PrintV2 stays.
Status RemoveAsserts(Graph& graph, PassContext& context) {
  if (!context.options.is_inference) return {};
  SpliceAll(graph, context, [](const Node& node) { return node.type == "Print" && node.outputs.size() == 1; });
  std::optional<Rewriter> rewriter;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed || !IsOneOf(node.type, {"Assert", "Print"}) || !node.outputs.empty()) continue;
    if (!rewriter) rewriter.emplace(graph);
    rewriter->Remove(id);
    context.Changed();
  }
  return {};
}

Status RemoveSingleSums(Graph& graph, PassContext& context) {
  SpliceAll(graph, context, [](const Node& node) { return node.type == "AddN" && node.inputs.size() == 1; });
  return {};
}

// Control edges that data edges imply.
Status RemoveUselessOrder(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.at(id).is_removed || graph.at(id).after.empty()) continue;
    const std::vector<NodeId> after = graph.at(id).after;
    for (const NodeId first : after) {
      const Node& node = graph.at(id);
      // Constants and inputs of the graph are there from the start.
      bool is_implied = (graph.at(first).kind == NodeKind::kConstant || graph.at(first).kind == NodeKind::kData) &&
                        graph.at(first).after.empty();
      for (const Input& input : node.inputs) is_implied = is_implied || input.source.node == first;
      if (!is_implied) continue;
      if (!rewriter) rewriter.emplace(graph);
      rewriter->RemoveOrder(first, id);
      context.Changed();
    }
  }
  return {};
}

}  // namespace reprise::compiler
