// SPDX-License-Identifier: Apache-2.0
//
// Who writes memory that others see: operators whose outputs are their inputs (Assign, Scatter), collectives that use
// their inputs up.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

/// Which outputs are one memory: an output that is an input written in place is the memory of that input.
class Memories {
 public:
  Memories() = default;
  /// `order`: the nodes, each behind those it needs.
  Memories(const Graph& graph, const std::vector<NodeId>& order);

  /// The output that the memory belongs to.
  uint64_t RootOf(Port port) const {
    const auto found = roots_.find(KeyOf(port));
    return found != roots_.end() ? found->second : KeyOf(port);
  }
  bool IsRoot(Port port) const { return RootOf(port) == KeyOf(port); }
  /// Nodes that write the memory, in their order.
  const std::vector<NodeId>& WritersOf(uint64_t root) const {
    const auto found = writers_.find(root);
    return found != writers_.end() ? found->second : none_;
  }

 private:
  static uint64_t KeyOf(Port port) { return uint64_t{port.node} << 32 | port.output; }

  std::unordered_map<uint64_t, uint64_t> roots_;
  std::unordered_map<uint64_t, std::vector<NodeId>> writers_;
  std::vector<NodeId> none_;
};

/// Its output may be the memory of its input: a reshape without a task, an Identity that nobody protects.
bool IsView(const Node& node);

/// Whose memory somebody writes in place. Good until the graph changes, but for what Add() says.
class Writes {
 public:
  explicit Writes(const Graph& graph);

  bool empty() const { return !has_writers_; }
  /// From now on somebody writes it.
  void Add(Port port) { added_.insert(memories_.RootOf(port)), has_writers_ = true; }
  /// Somebody writes the memory of this output: there, or where it is the output of another node.
  bool IsWritten(Port port) const {
    if (!has_writers_) return false;
    const uint64_t root = memories_.RootOf(port);
    return !memories_.WritersOf(root).empty() || added_.count(root) != 0;
  }
  /// Whether output 0 of a node may become the memory of its input: neither is written by anybody.
  bool MayShare(const Node& node, NodeId id, uint32_t input = 0) const {
    return !IsWritten({id, 0}) && !IsWritten(node.inputs[input].source);
  }

 private:
  bool has_writers_ = false;
  Memories memories_;
  std::unordered_set<uint64_t> added_;
};

/// Inputs whose memory the node changes: those of WrittenInputs, and of collectives that say so.
std::vector<uint32_t> ChangedInputs(const Graph& graph, NodeId node);

}  // namespace reprise::compiler
