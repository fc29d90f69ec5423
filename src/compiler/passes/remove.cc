// SPDX-License-Identifier: Apache-2.0
//
// Nodes that give what they get.
#include <optional>

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

// Takes the nodes out that `is_wanted` names; input 0 is what users get.
template <class IsWanted>
void SpliceAll(Graph& graph, PassContext& context, IsWanted is_wanted) {
  std::optional<Rewriter> rewriter;
  std::optional<Writes> writes;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed || !is_wanted(node)) continue;
    if (!rewriter) rewriter.emplace(graph);
    if (!writes) writes.emplace(graph);
    if (HasNote(node, "_cannot_be_deleted")) {
      context.Refused(node, "it is marked as one that must stay");
      continue;
    }
    if (node.inputs.empty() || !node.inputs[0].source.is_set()) {
      context.Refused(node, "it has no input");
      continue;
    }
    if (!writes->MayShare(node, id)) {
      context.Refused(node, "its input or its output is written in place, so that both must not be one");
      continue;
    }
    rewriter->Splice(id);
    context.Changed();
  }
}

}  // namespace

Status RemoveIdentity(Graph& graph, PassContext& context) {
  SpliceAll(graph, context, [](const Node& node) { return node.type == "Identity" && node.outputs.size() == 1; });
  return {};
}

Status RemoveMarkers(Graph& graph, PassContext& context) {
  SpliceAll(graph, context, [](const Node& node) {
    return node.outputs.size() == 1 &&
           IsOneOf(node.type, {"StopGradient", "PreventGradient", "Snapshot", "GuaranteeConst", "PlaceholderWithDefault"});
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
