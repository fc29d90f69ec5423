// SPDX-License-Identifier: Apache-2.0
//
// Who writes memory that others see: operators whose outputs are their inputs (Assign, Scatter), collectives that use
// their inputs up.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "compiler/graph.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

/// Which outputs somebody writes in place. Good until the graph changes.
class Writes {
 public:
  explicit Writes(const Graph& graph);

  bool empty() const { return ports_.empty(); }
  /// Some user writes this output.
  bool IsWritten(Port port) const { return ports_.count(KeyOf(port)) != 0; }
  /// Whether output 0 of a node may become the memory of its input: neither is written by anybody.
  bool MayShare(const Node& node, NodeId id, uint32_t input = 0) const {
    return !IsWritten({id, 0}) && !IsWritten(node.inputs[input].source);
  }

 private:
  static uint64_t KeyOf(Port port) { return uint64_t{port.node} << 32 | port.output; }

  std::unordered_set<uint64_t> ports_;
};

/// Inputs whose memory the node changes: those of WrittenInputs, and of collectives that say so.
std::vector<uint32_t> ChangedInputs(const Graph& graph, NodeId node);

}  // namespace reprise::compiler
