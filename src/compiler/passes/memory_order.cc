// SPDX-License-Identifier: Apache-2.0
//
// Who writes memory in place, and who reads it; and who exchanges data with other processes: in the order in which the
// program has them, whatever becomes of the graph. Runs first, while the order of the nodes is that of the front end.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "compiler/custom_op.h"
#include "compiler/order.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

constexpr int kMostWarnings = 16;

class WriteOrder {
 public:
  WriteOrder(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), rewriter_(graph), order_(TopologicalOrder(graph)), memories_(graph, order_) {}

  void Run() {
    for (const NodeId id : order_) Visit(id);
  }

 private:
  void Visit(NodeId id) {
    std::map<uint64_t, bool> used;  // memory, and whether it is written
    for (const Input& input : graph_.at(id).inputs) {
      if (!input.source.is_set()) continue;
      const uint64_t root = memories_.RootOf(input.source);
      if (!memories_.WritersOf(root).empty()) used.emplace(root, false);
    }
    if (used.empty()) return;
    for (const uint32_t input : ChangedInputs(graph_, id)) {
      used[memories_.RootOf(graph_.at(id).inputs[input].source)] = true;
    }
    for (const auto& [root, writes] : used) {
      State& state = states_[root];
      if (!writes) {
        Follow(state.writer, id);
        state.readers.push_back(id);
        continue;
      }
      for (const NodeId reader : state.readers) Follow(reader, id);
      if (state.readers.empty()) Follow(state.writer, id);
      state.readers.clear();
      state.writer = id;
    }
  }

  void Follow(NodeId first, NodeId then) {
    if (first == kNoNode || first == then) return;
    const Node& node = graph_.at(then);
    const auto reads = [&](const Input& input) { return input.source.node == first; };
    if (std::any_of(node.inputs.begin(), node.inputs.end(), reads)) return;
    if (std::find(node.after.begin(), node.after.end(), first) != node.after.end()) return;
    if (warnings_ < kMostWarnings && !RunsBehind(graph_, first, then)) {
      ++warnings_;
      REPRISE_LOG(kWarning, "GE",
                  "W18888: graph {}: {} and {} use one tensor, one of them writes it, and nothing orders them; {} runs "
                  "first",
                  graph_.name, graph_.at(first).name, node.name, graph_.at(first).name);
    }
    rewriter_.AddOrder(first, then);
    context_.Changed();
  }

  struct State {
    NodeId writer = kNoNode;
    std::vector<NodeId> readers;  // behind that writer
  };

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  const std::vector<NodeId> order_;
  const Memories memories_;
  std::unordered_map<uint64_t, State> states_;
  int warnings_ = 0;
};

}  // namespace

Status OrderWrites(Graph& graph, PassContext& context) {
  if (!Writes(graph).empty()) WriteOrder(graph, context).Run();
  return {};
}

Status OrderCollectives(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  NodeId last = kNoNode;
  for (const NodeId id : TopologicalOrder(graph)) {
    if (!IsCollective(graph.at(id))) continue;
    const Node& node = graph.at(id);
    const auto reads = [&](const Input& input) { return input.source.node == last; };
    const bool is_ordered = last == kNoNode || std::any_of(node.inputs.begin(), node.inputs.end(), reads) ||
                            std::find(node.after.begin(), node.after.end(), last) != node.after.end();
    if (!is_ordered) {
      if (!rewriter) rewriter.emplace(graph);
      rewriter->AddOrder(last, id);
      context.Changed();
    }
    last = id;
  }
  return {};
}

}  // namespace reprise::compiler
