// SPDX-License-Identifier: Apache-2.0
#include "compiler/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

namespace reprise::compiler {

NodeKind KindOfType(std::string_view type) {
  if (type == "Data" || type == "RefData") return NodeKind::kData;
  if (type == "Const" || type == "Constant") return NodeKind::kConstant;
  if (type == "NoOp" || type == "ControlTrigger") return NodeKind::kOrder;
  for (const std::string_view call : {"PartitionedCall", "StatefulPartitionedCall", "If", "Case", "While", "For"}) {
    if (type == call) return NodeKind::kCall;
  }
  return NodeKind::kOperator;
}

std::string Graph::TextOf(const Port& port) const {
  if (!port.is_set()) return "nothing";
  return fmt::format("{}:{}", port.node < nodes.size() ? nodes[port.node].name : fmt::format("#{}", port.node),
                     port.output);
}

NodeId Graph::Find(std::string_view node_name) const {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const Node& node) { return !node.is_removed && node.name == node_name; });
  return found == nodes.end() ? kNoNode : static_cast<NodeId>(found - nodes.begin());
}

NodeId Graph::Add(Node node) {
  if (node.name.empty()) {
    node.name = node.type;
    for (int number = 1; Find(node.name) != kNoNode; ++number) node.name = fmt::format("{}_{}", node.type, number);
  }
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size() - 1);
}

std::vector<NodeId> TopologicalOrder(const Graph& graph) {
  std::vector<uint32_t> waits(graph.nodes.size(), 0);
  std::vector<std::vector<NodeId>> users(graph.nodes.size());
  const auto follow = [&](NodeId first, NodeId then) {
    if (first >= graph.nodes.size()) return;
    users[first].push_back(then);
    ++waits[then];
  };
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].is_removed) continue;
    for (const Input& input : graph.nodes[id].inputs) follow(input.source.node, id);
    for (const NodeId first : graph.nodes[id].after) follow(first, id);
  }
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (waits[id] == 0 && !graph.nodes[id].is_removed) ready.push(id);
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (const NodeId user : users[id]) {
      if (--waits[user] == 0) ready.push(user);
    }
  }
  return order;
}

}  // namespace reprise::compiler
