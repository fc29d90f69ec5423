// SPDX-License-Identifier: Apache-2.0
//
// Branches that are never taken: If and Case whose choice is a constant, Switch whose predicate is one.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/constant.h"
#include "compiler/passes/functions.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

const Constant* ConstantBehind(const Graph& graph, const Node& node, size_t input) {
  if (input >= node.inputs.size() || !node.inputs[input].source.is_set()) return nullptr;
  return graph.at(node.inputs[input].source.node).constant.get();
}

// Whether a value counts as true: a scalar that is not 0, any other tensor that has elements.
std::optional<bool> TruthOf(const Constant& constant) {
  if (!constant.shape.empty()) return ElementsOf(constant) != 0;
  const auto values = RealsOf(constant);
  if (!values || values->empty()) return std::nullopt;
  return values->front() != 0;
}

// Which of the graphs of an If or Case is always taken.
std::optional<size_t> TakenBranch(const Graph& graph, const Node& node) {
  if (node.is_removed || node.graphs.empty()) return std::nullopt;
  const Constant* choice = ConstantBehind(graph, node, 0);
  if (choice == nullptr) return std::nullopt;
  if (node.type == "If" && node.graphs.size() == 2) {
    const auto is_true = TruthOf(*choice);
    return is_true ? std::optional<size_t>(*is_true ? 0 : 1) : std::nullopt;
  }
  if (node.type != "Case") return std::nullopt;
  const auto index = IntegersOf(*choice);
  if (!index || index->size() != 1) return std::nullopt;
  const auto last = static_cast<int64_t>(node.graphs.size()) - 1;
  return static_cast<size_t>((*index)[0] < 0 || (*index)[0] > last ? last : (*index)[0]);
}

// The nodes of a branch in the place of the node that calls it.
class Inliner {
 public:
  Inliner(Rewriter& rewriter, NodeId call, std::shared_ptr<const Graph> branch)
      : rewriter_(rewriter), graph_(rewriter.graph()), call_(call), branch_(std::move(branch)) {}

  bool Fits() const {
    const Node& call = graph_.at(call_);
    return branch_->inputs.size() + 1 <= call.inputs.size() && branch_->results.size() >= call.outputs.size();
  }

  void Run() {
    places_.resize(branch_->nodes.size());
    for (size_t i = 0; i < branch_->inputs.size(); ++i) {
      places_[branch_->inputs[i]] = graph_.at(call_).inputs[i + 1].source;
    }
    const std::string prefix = graph_.at(call_).name + "/";
    const std::vector<NodeId> before = graph_.at(call_).after;
    for (const NodeId id : TopologicalOrder(*branch_)) {
      if (branch_->at(id).kind == NodeKind::kData) continue;
      Node copy = branch_->at(id);
      copy.name = prefix + copy.name;
      for (Input& input : copy.inputs) input.source = PlaceOf(input.source);
      std::vector<NodeId> after = before;
      for (const NodeId first : copy.after) {
        if (places_[first].is_set()) after.push_back(places_[first].node);
      }
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      copy.after = std::move(after);
      places_[id] = {rewriter_.Add(std::move(copy)), 0};
      added_.push_back(places_[id].node);
    }
    for (uint32_t i = 0; i < graph_.at(call_).outputs.size(); ++i) {
      rewriter_.ReplaceUses({call_, i}, PlaceOf(branch_->results[i]));
    }
    // Who waited for the call waits for all that it would have run.
    const std::vector<NodeId> followers = rewriter_.FollowersOf(call_);
    for (const NodeId follower : followers) {
      rewriter_.RemoveOrder(call_, follower);
      for (const NodeId node : added_) rewriter_.AddOrder(node, follower);
    }
    rewriter_.Remove(call_);
  }

 private:
  Port PlaceOf(Port inner) const {
    if (!inner.is_set()) return inner;
    const Port place = places_[inner.node];
    return branch_->at(inner.node).kind == NodeKind::kData ? place : Port{place.node, inner.output};
  }

  Rewriter& rewriter_;
  Graph& graph_;
  NodeId call_;
  std::shared_ptr<const Graph> branch_;
  std::vector<Port> places_;  // of the branch's nodes
  std::vector<NodeId> added_;
};

// Switch gives its data to output 0 (false) or 1 (true). What lies behind the other output alone never runs: up to a
// Merge, which then gives what is left.
class SwitchRemoval {
 public:
  SwitchRemoval(Rewriter& rewriter, PassContext& context)
      : rewriter_(rewriter), graph_(rewriter.graph()), context_(context) {}

  void Take(NodeId id, bool is_true) {
    const uint32_t live = is_true ? 1 : 0;
    rewriter_.ReplaceUses({id, live}, graph_.at(id).inputs[0].source);
    Kill({id, 1 - live});
    while (!left_.empty()) {
      const NodeId dead = left_.back();
      left_.pop_back();
      for (uint32_t i = 0; i < graph_.at(dead).outputs.size(); ++i) Kill({dead, i});
      if (!graph_.at(dead).is_removed && rewriter_.UseCount(dead) == 0) rewriter_.Remove(dead);
    }
    if (rewriter_.UseCount(id) == 0) rewriter_.Remove(id);
    context_.Changed();
  }

  bool CanTake(NodeId id, bool is_true) {
    // A result that would never be there is a mistake of the graph: it stays, and says so when it is compiled.
    std::vector<Port> ports = {{id, is_true ? 0U : 1U}};
    std::vector<uint8_t> visited(graph_.nodes.size(), 0);
    while (!ports.empty()) {
      const Port port = ports.back();
      ports.pop_back();
      for (const Use& use : rewriter_.UsesOf(port)) {
        if (use.is_result()) return false;
        if (graph_.at(use.node).type == "Merge" || std::exchange(visited[use.node], 1) != 0) continue;
        for (uint32_t i = 0; i < graph_.at(use.node).outputs.size(); ++i) ports.push_back({use.node, i});
      }
    }
    return true;
  }

 private:
  void Kill(Port port) {
    for (const Use& use : std::vector<Use>(rewriter_.UsesOf(port))) {
      rewriter_.Set(use, {});
      if (graph_.at(use.node).type != "Merge") {
        left_.push_back(use.node);
        continue;
      }
      TakeMerge(use.node);
    }
  }

  // One input left: that is the value, and its number is known.
  void TakeMerge(NodeId merge) {
    const std::vector<Input>& inputs = graph_.at(merge).inputs;
    uint32_t live = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].source.is_set()) continue;
      live = i;
      ++count;
    }
    if (count != 1) return;
    if (graph_.at(merge).outputs.size() > 1 && rewriter_.UseCount({merge, 1}) != 0) {
      const int64_t number = live;
      const NodeId index = rewriter_.AddConstant(graph_.at(merge).name + "_value_index",
                                                 MakeConstant(3, {}, std::span<const int64_t>(&number, 1)));
      rewriter_.ReplaceUses({merge, 1}, {index, 0});
    }
    rewriter_.Splice(merge, live);
  }

  Rewriter& rewriter_;
  Graph& graph_;
  PassContext& context_;
  std::vector<NodeId> left_;
};

}  // namespace

Status RemoveDeadBranches(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    if (graph.at(id).is_removed) continue;
    const auto taken = TakenBranch(graph, graph.at(id));
    if (taken) {
      if (!rewriter) rewriter.emplace(graph);
      Inliner inliner(*rewriter, id, graph.at(id).graphs[*taken]);
      if (!inliner.Fits()) {
        context.Refused(graph.at(id), "the branch has other inputs or results than the node");
        continue;
      }
      inliner.Run();
      context.Changed();
      continue;
    }
    const Node& node = graph.at(id);
    if (node.type != "Switch" || node.inputs.size() != 2 || node.outputs.size() != 2) continue;
    const Constant* predicate = ConstantBehind(graph, node, 1);
    const auto is_true = predicate != nullptr ? TruthOf(*predicate) : std::nullopt;
    if (!is_true) continue;
    if (!rewriter) rewriter.emplace(graph);
    SwitchRemoval removal(*rewriter, context);
    if (!removal.CanTake(id, *is_true)) {
      context.Refused(graph.at(id), "a result of the graph lies behind the branch that is never taken");
      continue;
    }
    removal.Take(id, *is_true);
  }
  return {};
}

}  // namespace reprise::compiler
