// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/operands.h"
#include "compiler/staged.h"

namespace reprise::compiler {
namespace {

bool IsPlainCall(const Node& node) {
  return node.kind == NodeKind::kCall && node.graphs.size() == 1 &&
         (node.type == "PartitionedCall" || node.type == "StatefulPartitionedCall");
}

class CallInliner {
 public:
  explicit CallInliner(Graph& graph) : graph_(graph) {}

  Status Run() {
    // Nodes of called graphs may call others; they are put behind those that are there.
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!graph_.at(id).is_removed && IsPlainCall(graph_.at(id))) REPRISE_RETURN_IF_ERROR(Inline(id));
    }
    if (moved_.empty()) return {};
    for (Node& node : graph_.nodes) {
      if (node.is_removed) continue;
      for (Input& input : node.inputs) input.source = Moved(input.source);
      node.after = Moved(node.after);
    }
    for (Port& port : graph_.results) port = Moved(port);
    graph_.results_after = Moved(graph_.results_after);
    return {};
  }

 private:
  Status Inline(NodeId id) {
    const Node call = graph_.at(id);
    const Graph& callee = *call.graphs[0];
    std::vector<Port> taken(callee.nodes.size());
    for (size_t i = 0; i < callee.inputs.size(); ++i) {
      const size_t number = CallerInput(callee, i, 0);
      if (number >= call.inputs.size() || !call.inputs[number].source.is_set()) {
        return Error(kInvalidArgument, fmt::format("node {}: the graph {} takes input {}, which the node does not give",
                                                   call.name, callee.name, number))
            .Culprit(fmt::format("graph {}", graph_.name))
            .Hint("give the node as many inputs as the graph has Data nodes");
      }
      taken[callee.inputs[i]] = call.inputs[number].source;
    }
    if (callee.results.size() < call.outputs.size()) {
      return Error(kInvalidArgument, fmt::format("node {}: has {} outputs, the graph {} gives {}", call.name,
                                                 call.outputs.size(), callee.name, callee.results.size()))
          .Culprit(fmt::format("graph {}", graph_.name))
          .Hint("give the NetOutput of the graph as many inputs");
    }
    std::vector<NodeId> added(callee.nodes.size(), kNoNode);
    const auto first = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId inner = 0; inner < callee.nodes.size(); ++inner) {
      if (callee.at(inner).is_removed || taken[inner].is_set()) continue;
      added[inner] = static_cast<NodeId>(graph_.nodes.size());
      graph_.nodes.push_back(callee.at(inner));
      graph_.nodes.back().name = call.name + "/" + graph_.nodes.back().name;
    }
    const auto place = [&](const Port& port) {
      if (!port.is_set()) return port;
      return taken[port.node].is_set() ? taken[port.node] : Port{added[port.node], port.output};
    };
    std::vector<NodeId> all;
    for (NodeId node = first; node < graph_.nodes.size(); ++node) {
      Node& inlined = graph_.at(node);
      for (Input& input : inlined.inputs) input.source = place(input.source);
      std::vector<NodeId> after = call.after;
      for (const NodeId before : inlined.after) {
        if (added[before] != kNoNode) after.push_back(added[before]);
      }
      inlined.after = std::move(after);
      all.push_back(node);
    }
    for (uint32_t i = 0; i < call.outputs.size(); ++i) moved_[{id, i}] = place(callee.results[i]);
    behind_[id] = std::move(all);
    graph_.at(id).is_removed = true;
    return {};
  }

  Port Moved(Port port) const {
    for (auto found = moved_.find({port.node, port.output}); found != moved_.end();
         found = moved_.find({port.node, port.output})) {
      port = found->second;
    }
    return port;
  }
  std::vector<NodeId> Moved(const std::vector<NodeId>& ids) const {
    std::vector<NodeId> found;
    for (const NodeId id : ids) {
      const auto nodes = behind_.find(id);
      if (nodes == behind_.end()) {
        found.push_back(id);
      } else {
        const std::vector<NodeId> inner = Moved(nodes->second);
        found.insert(found.end(), inner.begin(), inner.end());
      }
    }
    return found;
  }

  Graph& graph_;
  std::map<std::pair<NodeId, uint32_t>, Port> moved_;
  std::map<NodeId, std::vector<NodeId>> behind_;
};

}  // namespace

Status InlineCalls(Graph& graph) { return CallInliner(graph).Run(); }

}  // namespace reprise::compiler
