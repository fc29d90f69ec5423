// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/writes.h"

namespace reprise::compiler {

Writes::Writes(const Graph& graph) {
  for (NodeId id = 0; id < graph.nodes.size() && !has_writers_; ++id) {
    has_writers_ = !graph.at(id).is_removed && !ChangedInputs(graph, id).empty();
  }
  if (has_writers_) memories_ = Memories(graph, TopologicalOrder(graph));
}

bool IsView(const Node& node) {
  if (node.inputs.empty() || !node.inputs[0].source.is_set()) return false;
  return HasNote(node, "_no_task") || (node.type == "Identity" && !HasNote(node, "_cannot_be_deleted"));
}

Memories::Memories(const Graph& graph, const std::vector<NodeId>& order) {
  for (const NodeId id : order) {
    for (const auto& [input, output] : WrittenInputs(graph, id)) {
      roots_[KeyOf({id, output})] = RootOf(graph.at(id).inputs[input].source);
    }
    for (const uint32_t input : ChangedInputs(graph, id)) {
      writers_[RootOf(graph.at(id).inputs[input].source)].push_back(id);
    }
  }
}

std::vector<uint32_t> ChangedInputs(const Graph& graph, NodeId node) {
  std::vector<uint32_t> changed;
  for (const auto& pair : WrittenInputs(graph, node)) changed.push_back(pair.first);
  if (!changed.empty() || !HasNote(graph.at(node), "_input_mutable")) return changed;
  for (uint32_t i = 0; i < graph.at(node).inputs.size(); ++i) {
    if (graph.at(node).inputs[i].source.is_set()) changed.push_back(i);
  }
  return changed;
}

}  // namespace reprise::compiler
