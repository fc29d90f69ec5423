// SPDX-License-Identifier: Apache-2.0
//
// Copies that nobody needs: TensorMove whose source may be used itself.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/order.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

constexpr int kMostSteps = 1000;  // back to the source of a copy

// A place in one of the graphs.
struct Place {
  const Graph* graph = nullptr;
  Port port;
};

// Who calls a graph: the one node that does; nothing where there are several.
struct Caller {
  const Graph* graph = nullptr;
  NodeId node = kNoNode;
};
std::optional<Caller> CallerOf(const Graph& within, const Graph& graph, bool& is_several) {
  std::optional<Caller> found;
  for (NodeId id = 0; id < within.nodes.size(); ++id) {
    for (const std::shared_ptr<Graph>& inner : within.at(id).graphs) {
      std::optional<Caller> here;
      if (inner.get() == &graph) {
        here = Caller{&within, id};
      } else {
        here = CallerOf(*inner, graph, is_several);
      }
      is_several = is_several || (here && found);
      if (here) found = here;
    }
  }
  return found;
}

bool IsPlainCall(const Node& node) { return node.type == "PartitionedCall" || node.type == "StatefulPartitionedCall"; }

bool Changes(const Graph& graph, Use use) {
  const std::vector<uint32_t> changed = ChangedInputs(graph, use.node);
  return std::find(changed.begin(), changed.end(), use.index) != changed.end();
}

bool NeedsNeighbours(const Node& node) {
  for (const char* note : {"continuous_input", "continuous_output", "_no_padding_continuous_input",
                           "_no_padding_continuous_output"}) {
    if (HasNote(node, note)) return true;
  }
  return false;
}

class MoveRemoval {
 public:
  MoveRemoval(Graph& graph, PassContext& context) : graph_(graph), context_(context), rewriter_(graph) {}

  void Run() {
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId id = 0; id < count; ++id) {
      const Node& node = graph_.at(id);
      if (node.is_removed || node.type != "TensorMove" || node.inputs.size() != 1) continue;
      if (!node.inputs[0].source.is_set() || node.outputs.size() != 1) continue;
      edges_.clear();
      const std::string reason = Check(id);
      if (!reason.empty()) {
        context_.Refused(node, reason);
        continue;
      }
      for (const auto& [first, then] : edges_) rewriter_.AddOrder(first, then);
      rewriter_.Splice(id);
      context_.Changed();
    }
  }

 private:
  // Why it must stay; empty: it may go, with `edges_` added.
  std::string Check(NodeId id) {
    const Node& move = graph_.at(id);
    if (HasNote(move, "_cannot_be_deleted")) return "it is marked as one that must stay";
    if (rewriter_.UseCount(id) == 0) return "nobody reads it";
    const auto path = PathTo(graph_.at(id).inputs[0].source);
    if (!path) return "its source lies behind a branch or a loop, or is called from several places";
    const Place& source = path->back();
    const Node& producer = source.graph->at(source.port.node);
    const std::vector<Use> users = rewriter_.UsesOf({id, 0});
    if (std::string reason = CheckSource(id, source, producer, users); !reason.empty()) return reason;
    if (NeedsNeighbours(producer)) return "its source has to lie beside other tensors";
    for (const Use& use : users) {
      if (!use.is_result() && NeedsNeighbours(graph_.at(use.node))) return "a user wants its inputs side by side";
    }
    for (const Place& place : *path) {
      if (std::string reason = CheckSiblings(id, place, users); !reason.empty()) return reason;
    }
    return {};
  }

  // Back through what is the same memory: operators that write an input, other copies, calls. The last place is where
  // the memory comes from.
  std::optional<std::vector<Place>> PathTo(Port port) const {
    std::vector<Place> path = {{&graph_, port}};
    for (int step = 0; step < kMostSteps; ++step) {
      const Place here = path.back();
      const Node& node = here.graph->at(here.port.node);
      if (node.kind == NodeKind::kCall) {
        if (!IsPlainCall(node) || node.graphs.size() != 1) return std::nullopt;
        const Graph& inner = *node.graphs[0];
        if (here.port.output >= inner.results.size()) return std::nullopt;
        path.push_back({&inner, inner.results[here.port.output]});
        continue;
      }
      if (node.kind == NodeKind::kData && here.graph != context_.root) {
        bool is_several = false;
        const auto caller = CallerOf(*context_.root, *here.graph, is_several);
        if (!caller || is_several || !IsPlainCall(caller->graph->at(caller->node))) return std::nullopt;
        const auto found = std::find(here.graph->inputs.begin(), here.graph->inputs.end(), here.port.node);
        const auto index = static_cast<size_t>(found - here.graph->inputs.begin());
        const Node& call = caller->graph->at(caller->node);
        if (index >= call.inputs.size() || !call.inputs[index].source.is_set()) return std::nullopt;
        path.push_back({caller->graph, call.inputs[index].source});
        continue;
      }
      if (node.type == "Switch" || node.type == "Merge") return std::nullopt;
      std::optional<Port> before;
      if (node.type == "TensorMove") before = node.inputs[0].source;
      for (const auto& [input, output] : WrittenInputs(*here.graph, here.port.node)) {
        if (output == here.port.output) before = node.inputs[input].source;
      }
      if (!before || !before->is_set()) return path;
      path.push_back({here.graph, *before});
    }
    return std::nullopt;
  }

  std::string CheckSource(NodeId id, const Place& source, const Node& producer, const std::vector<Use>& users) const {
    const bool is_constant = producer.kind == NodeKind::kConstant || producer.type == "ConstPlaceHolder" ||
                             producer.type == "FileConstant" || producer.type == "Variable" ||
                             producer.type == "VariableV2";
    if (is_constant) {
      for (const Use& use : users) {
        if (use.is_result()) return "its source is a constant or a variable, and it is a result";
        const Node& user = graph_.at(use.node);
        if (user.kind == NodeKind::kCall) return "its source is a constant or a variable, and a user is a subgraph";
        if (!WrittenInputs(graph_, use.node).empty() || Changes(graph_, use)) {
          return "its source is a constant or a variable, and a user writes";
        }
      }
      return {};
    }
    if (producer.kind != NodeKind::kData || source.graph != context_.root) return {};
    const auto found = std::find(source.graph->inputs.begin(), source.graph->inputs.end(), source.port.node);
    const auto index = static_cast<uint32_t>(found - source.graph->inputs.begin());
    const PassOptions& options = context_.options;
    if (std::find(options.scratch_inputs.begin(), options.scratch_inputs.end(), index) != options.scratch_inputs.end()) {
      return {};
    }
    for (const auto& [input, output] : options.shared_inputs) {
      if (input == index && Becomes(id, output)) return {};
    }
    return fmt::format("its source is input {}, which nobody has declared to be reusable", index);
  }

  // Whether result `index` of the graph is the memory of the copy.
  bool Becomes(NodeId id, uint32_t index) const {
    if (!context_.is_root(graph_) || index >= graph_.results.size()) return false;
    Port port = graph_.results[index];
    for (int step = 0; step < kMostSteps; ++step) {
      if (port.node == id) return true;
      std::optional<Port> before;
      for (const auto& [input, output] : WrittenInputs(graph_, port.node)) {
        if (output == port.output) before = graph_.at(port.node).inputs[input].source;
      }
      if (!before) return false;
      port = *before;
    }
    return false;
  }

  // Others that use the source, beside the path from it to the copy.
  std::string CheckSiblings(NodeId id, const Place& place, const std::vector<Use>& users) {
    const bool is_here = place.graph == &graph_;
    const bool overwrites = std::any_of(users.begin(), users.end(), [&](const Use& use) {
      return !use.is_result() && (Changes(graph_, use) || graph_.at(use.node).kind == NodeKind::kCall);
    });
    const bool is_result = std::any_of(users.begin(), users.end(), [](const Use& use) { return use.is_result(); });
    if (!is_here) return CheckFarSiblings(place, overwrites);
    for (const Use& sibling : rewriter_.UsesOf(place.port)) {
      if (!sibling.is_result() && (sibling.node == id || IsOnPath(id, sibling.node))) continue;
      if (sibling.is_result()) {
        if (overwrites) return "the source is a result, and a user writes";
        if (is_result) return "the source and the copy are both results";
        continue;
      }
      const std::string name = graph_.at(sibling.node).name;
      if (graph_.at(sibling.node).kind == NodeKind::kCall) return fmt::format("{}, a subgraph, uses the source", name);
      if (Changes(graph_, sibling)) {
        if (is_result) return fmt::format("{} writes the source, and the copy is a result", name);
        for (const Use& use : users) {
          if (!RunsBehind(graph_, use.node, sibling.node)) {
            return fmt::format("{} writes the source, and does not wait for {}", name, graph_.at(use.node).name);
          }
        }
        continue;
      }
      if (!overwrites) continue;
      for (const Use& use : users) {
        if (use.is_result() || use.node == sibling.node) return fmt::format("{} reads the source and writes it", name);
        if (RunsBehind(graph_, use.node, sibling.node)) {
          return fmt::format("{} reads the source when {} has written it", name, graph_.at(use.node).name);
        }
        edges_.emplace_back(sibling.node, use.node);
      }
    }
    return {};
  }

  // In another graph there are no edges to order anybody by.
  std::string CheckFarSiblings(const Place& place, bool overwrites) const {
    size_t uses = 0;
    bool writes = false;
    for (NodeId node = 0; node < place.graph->nodes.size(); ++node) {
      const Node& each = place.graph->at(node);
      if (each.is_removed) continue;
      for (uint32_t i = 0; i < each.inputs.size(); ++i) {
        if (each.inputs[i].source != place.port) continue;
        ++uses;
        writes = writes || Changes(*place.graph, {node, i});
      }
    }
    uses += static_cast<size_t>(std::count(place.graph->results.begin(), place.graph->results.end(), place.port));
    if (uses > 1 && (overwrites || writes)) {
      return fmt::format("others use the source in graph {}, and somebody writes it", place.graph->name);
    }
    return {};
  }

  // The memory of the source reaches the copy through this node.
  bool IsOnPath(NodeId id, NodeId node) const {
    const auto path = PathTo(graph_.at(id).inputs[0].source);
    return path && std::any_of(path->begin(), path->end(), [&](const Place& place) {
             return place.graph == &graph_ && place.port.node == node;
           });
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  std::vector<std::pair<NodeId, NodeId>> edges_;
};

}  // namespace

Status RemoveTensorMoves(Graph& graph, PassContext& context) {
  const bool has_moves = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return !node.is_removed && node.type == "TensorMove";
  });
  if (has_moves) MoveRemoval(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
