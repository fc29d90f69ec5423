// SPDX-License-Identifier: Apache-2.0
//
// Nodes that do nothing.
#include "compiler/passes/functions.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

Status RemoveIdentity(Graph& graph, PassContext& context) {
  Rewriter rewriter(graph);
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed || node.type != "Identity" || node.inputs.size() != 1 || !node.inputs[0].source.is_set())
      continue;
    if (HasNote(node, "_cannot_be_deleted")) {
      context.Refused(node, "it is marked as one that must stay");
      continue;
    }
    rewriter.Splice(id);
    context.Changed();
  }
  return {};
}

}  // namespace reprise::compiler
