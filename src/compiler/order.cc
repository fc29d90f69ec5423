// SPDX-License-Identifier: Apache-2.0
#include "compiler/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

std::vector<NodeId> NeededBy(const Node& node) {
  std::vector<NodeId> needed;
  for (const Input& input : node.inputs) {
    if (input.source.is_set()) needed.push_back(input.source.node);
  }
  needed.insert(needed.end(), node.after.begin(), node.after.end());
  return needed;
}

Status Circle(const Graph& graph, NodeId id) {
  return Error(kInvalidArgument, fmt::format("node {} ({}): it waits for itself, through a circle of edges",
                                             graph.at(id).name, graph.at(id).type))
      .Culprit(fmt::format("graph {}", graph.name))
      .Hint("cut the circle; loops are While operators with a subgraph");
}

// What is ready goes to the end of a list; the next one is taken from its end (depth first) or its front.
StatusOr<std::vector<NodeId>> Forward(const Graph& graph, bool is_depth_first) {
  std::vector<uint32_t> waits(graph.nodes.size(), 0);
  std::vector<std::vector<NodeId>> users(graph.nodes.size());
  size_t count = 0;
  std::deque<NodeId> ready;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.at(id).is_removed) continue;
    ++count;
    for (const NodeId needed : NeededBy(graph.at(id))) {
      users[needed].push_back(id);
      ++waits[id];
    }
    if (waits[id] == 0) ready.push_back(id);
  }
  if (is_depth_first) std::reverse(ready.begin(), ready.end());
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId id = is_depth_first ? ready.back() : ready.front();
    is_depth_first ? ready.pop_back() : ready.pop_front();
    order.push_back(id);
    if (is_depth_first) std::reverse(users[id].begin(), users[id].end());
    for (const NodeId user : users[id]) {
      if (--waits[user] == 0) ready.push_back(user);
    }
  }
  if (order.size() == count) return order;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.at(id).is_removed && waits[id] != 0) return Circle(graph, id);
  }
  return order;
}

// Visits nodes in the order of `roots`, each behind what it needs.
StatusOr<std::vector<NodeId>> Backward(const Graph& graph, const std::vector<NodeId>& roots) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(graph.nodes.size(), kNew);
  std::vector<NodeId> order;
  struct Frame {
    NodeId id;
    std::vector<NodeId> needed;
    size_t next = 0;
  };
  std::vector<Frame> stack;
  const auto open = [&](NodeId id) {
    state[id] = kOpen;
    stack.push_back({id, NeededBy(graph.at(id))});
  };
  for (const NodeId root : roots) {
    if (state[root] == kNew) open(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next == frame.needed.size()) {
        state[frame.id] = kDone;
        order.push_back(frame.id);
        stack.pop_back();
        continue;
      }
      const NodeId needed = frame.needed[frame.next++];
      if (state[needed] == kOpen) return Circle(graph, needed);
      if (state[needed] == kNew) open(needed);
    }
  }
  return order;
}

}  // namespace

StatusOr<std::vector<NodeId>> OrderOf(const Graph& graph, OrderMode mode) {
  if (mode == OrderMode::kBreadthFirst || mode == OrderMode::kDepthFirst) {
    return Forward(graph, mode == OrderMode::kDepthFirst);
  }
  std::vector<NodeId> roots;
  if (mode == OrderMode::kReverseDepthFirst) {
    for (const Port& port : graph.results) roots.push_back(port.node);
    roots.insert(roots.end(), graph.results_after.begin(), graph.results_after.end());
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!graph.at(id).is_removed) roots.push_back(id);
  }
  return Backward(graph, roots);
}

Status Sort(Graph& graph, OrderMode mode) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<NodeId> order, OrderOf(graph, mode));
  std::vector<NodeId> numbers(graph.nodes.size(), kNoNode);
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (const NodeId id : order) {
    numbers[id] = static_cast<NodeId>(nodes.size());
    nodes.push_back(std::move(graph.at(id)));
  }
  graph.nodes = std::move(nodes);
  Renumber(graph, numbers);
  return {};
}

bool RunsBehind(const Graph& graph, NodeId first, NodeId last) {
  std::vector<uint8_t> seen(graph.nodes.size(), 0);
  std::vector<NodeId> left = {last};
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    for (const NodeId needed : NeededBy(graph.at(id))) {
      if (needed == first) return true;
      if (std::exchange(seen[needed], 1) == 0) left.push_back(needed);
    }
  }
  return false;
}

}  // namespace reprise::compiler
