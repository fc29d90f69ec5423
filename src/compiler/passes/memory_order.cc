// SPDX-License-Identifier: Apache-2.0
//
// Who writes memory in place, and who reads it: in the order in which the program has them, whatever becomes of the
// graph. Runs first, while the order of the nodes is that of the front end.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "compiler/order.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

constexpr int kMostWarnings = 16;

class WriteOrder {
 public:
  WriteOrder(Graph& graph, PassContext& context) : graph_(graph), context_(context), rewriter_(graph) {}

  void Run() {
    const std::vector<NodeId> order = TopologicalOrder(graph_);
    for (const NodeId id : order) FindRoots(id);
    for (const NodeId id : order) Visit(id);
  }

 private:
  static uint64_t KeyOf(Port port) { return uint64_t{port.node} << 32 | port.output; }
  uint64_t RootOf(Port port) const {
    const auto found = roots_.find(KeyOf(port));
    return found != roots_.end() ? found->second : KeyOf(port);
  }

  // An output that is an input written in place is the memory of that input.
  void FindRoots(NodeId id) {
    for (const auto& [input, output] : WrittenInputs(graph_, id)) {
      roots_[KeyOf({id, output})] = RootOf(graph_.at(id).inputs[input].source);
    }
    for (const uint32_t input : ChangedInputs(graph_, id)) written_.insert(RootOf(graph_.at(id).inputs[input].source));
  }

  void Visit(NodeId id) {
    std::map<uint64_t, bool> used;  // memory, and whether it is written
    for (const Input& input : graph_.at(id).inputs) {
      if (!input.source.is_set()) continue;
      const uint64_t root = RootOf(input.source);
      if (written_.count(root) != 0) used.emplace(root, false);
    }
    if (used.empty()) return;
    for (const uint32_t input : ChangedInputs(graph_, id)) used[RootOf(graph_.at(id).inputs[input].source)] = true;
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
  std::unordered_map<uint64_t, uint64_t> roots_;
  std::unordered_set<uint64_t> written_;
  std::unordered_map<uint64_t, State> states_;
  int warnings_ = 0;
};

}  // namespace

Status OrderWrites(Graph& graph, PassContext& context) {
  if (!Writes(graph).empty()) WriteOrder(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
