// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/writes.h"

namespace reprise::compiler {

Writes::Writes(const Graph& graph) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.at(id).is_removed) continue;
    for (const uint32_t input : ChangedInputs(graph, id)) ports_.insert(KeyOf(graph.at(id).inputs[input].source));
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
