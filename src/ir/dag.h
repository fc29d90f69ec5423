// SPDX-License-Identifier: Apache-2.0
//
// Dag: the partial order of the tasks of a graph: what has run before what begins, without lanes, records and waits.
//
// Every ir::Graph has one, whatever its tasks are and in whatever order its records and waits were added. A task that
// waits for something outside of the graph (an external event, a notify, a value in memory), one that runs foreign code
// (host functions) and a slot whose content changes are nodes like all others: the dag tells what the graph orders, and
// TaskType::never_waits tells who may wait for more. What the outside orders is not in it: a notify that one task of
// the graph records and another one waits for, or an external event, is no edge. So a dag never says that two tasks are
// ordered when they are not, and may miss an order that only the outside makes.
//
// Built models have no dag as a whole: which of their tasks run, and how often, is decided while they run. The dag of
// one of their streams is the chain of its tasks as they stand there.
//
// ir::Order answers for a graph that still grows; it follows the same rule (RecordBefore).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace reprise::ir {

/// Whether an execution runs the node: no record, wait or reset, and not disabled.
inline bool IsActive(const Node& node) { return node.type->run != nullptr && !node.disabled; }

/// The record of another lane that has to come before the node; kNoNode when there is none: the node is no wait, or
/// its record stands in its own lane or was turned into another task, which orders nothing any more.
NodeId RecordBefore(const Graph& graph, const Node& node);

/// Nodes are the tasks that run, numbered in a topological order: that of capture, unless waits come before their
/// records. Records, waits, resets and disabled tasks vanish. Where many tasks meet before many others without a task
/// between them, a junction stands for the meeting, so that the number of edges stays linear; it runs nothing.
struct Dag {
  /// The task of the graph; of a junction: the record that it stands for.
  std::vector<NodeId> task;
  std::vector<uint8_t> is_junction;
  /// preds[pred_begin[i] .. pred_begin[i + 1]], ascending; succs and succ_begin hold successors in the same way.
  std::vector<uint32_t> pred_begin;
  std::vector<uint32_t> preds;
  std::vector<uint32_t> succ_begin;
  std::vector<uint32_t> succs;
  /// Waits that wait for each other in a circle, each for a record behind the next one; empty in graphs of captures.
  /// Tasks behind such waits never run and are no nodes.
  std::vector<NodeId> circle;

  uint32_t size() const { return static_cast<uint32_t>(task.size()); }
  std::span<const uint32_t> preds_of(uint32_t node) const {
    return {preds.data() + pred_begin[node], pred_begin[node + 1] - pred_begin[node]};
  }
  std::span<const uint32_t> succs_of(uint32_t node) const {
    return {succs.data() + succ_begin[node], succ_begin[node + 1] - succ_begin[node]};
  }
};

/// Linear in nodes and edges of the graph, whatever the number of lanes; waits before their records cost a logarithm of
/// that number for each node. Edges that others imply are dropped where that is cheap to see.
Dag BuildDag(const Graph& graph);

}  // namespace reprise::ir
