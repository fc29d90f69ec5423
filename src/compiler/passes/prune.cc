// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/functions.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

// What results and effects need stays, and so do the inputs of the graph: their numbers must not shift.
Status Prune(Graph& graph, PassContext& context) {
  std::vector<uint8_t> is_needed(graph.nodes.size(), 0);
  std::vector<NodeId> left;
  const auto need = [&](NodeId id) {
    if (id >= graph.nodes.size() || is_needed[id] != 0) return;
    is_needed[id] = 1;
    left.push_back(id);
  };
  for (const Port& port : graph.results) need(port.node);
  for (const NodeId id : graph.results_after) need(id);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed) continue;
    if (node.kind == NodeKind::kData || HasNote(node, "_force_skip_prune") || HasEffect(graph, id)) need(id);
  }
  while (!left.empty()) {
    const Node& node = graph.at(left.back());
    left.pop_back();
    for (const Input& input : node.inputs) need(input.source.node);
    for (const NodeId first : node.after) need(first);
  }
  Rewriter rewriter(graph);
  const std::vector<NodeId> order = TopologicalOrder(graph);
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    if (is_needed[*id] != 0) continue;
    rewriter.Remove(*id);
    context.Changed();
  }
  return {};
}

}  // namespace reprise::compiler
