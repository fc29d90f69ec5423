// SPDX-License-Identifier: Apache-2.0
//
// Assignment: which of a few threads runs which task of a graph, and in which order, decided before the first replay.
//
// The second pass of a plan, behind ir::Dag and before emit.h. A captured lane says in which order its tasks were
// submitted, not where they have to run. For tasks that never wait, the partial order that the lanes stand for is laid
// out on as many execution lanes as there are cores. Results cannot depend on it: an assignment honours every
// dependency. Graphs with other tasks keep their captured lanes.
//
// Pure functions, deterministic, without threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/work_cost.h"
#include "ir/dag.h"
#include "ir/graph.h"

namespace reprise::exec {

/// Graphs with more lanes are not scheduled: a step has no room for the number of its lane.
constexpr uint32_t kMaxScheduledLanes = 2047;
/// More execution lanes than this are of no use to a static schedule.
constexpr uint32_t kMaxExecutionLanes = 64;

/// What it usually costs to hand over to another core.
constexpr auto kHandoffNs = static_cast<uint32_t>(device::Costs().handoff_ns);

/// Whether every task that runs may run on any thread and never waits for anything but its predecessors.
bool CanSchedule(const ir::Graph& graph);
/// The first reason why not, for people; empty when it can.
std::string WhyNotScheduled(const ir::Graph& graph);

/// Nodes that have the same predecessors and the same successors, and so may stand for one another.
struct Siblings {
  static constexpr uint32_t kAlone = UINT32_MAX;
  std::vector<uint32_t> group_of;  ///< by node; kAlone without siblings
  std::vector<uint32_t> begin;     ///< members[begin[g] .. begin[g + 1]], ascending
  std::vector<uint32_t> members;

  uint32_t count() const { return static_cast<uint32_t>(begin.size() - 1); }
  std::span<const uint32_t> members_of(uint32_t group) const {
    return {members.data() + begin[group], begin[group + 1] - begin[group]};
  }
};

/// Linear in nodes and edges.
Siblings FindSiblings(const ir::Dag& dag);

/// A dag laid out on execution lanes. A position is a number of nodes: position 3 of a lane is reached when its first
/// three nodes have run.
struct Assignment {
  struct Wait {
    uint32_t lane;
    uint32_t position;
    bool operator==(const Wait&) const = default;
  };
  /// Nodes by lane, in the order in which they run: nodes[lane_begin[l] .. lane_begin[l + 1]]. An index into `nodes` is
  /// a place.
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> lane_begin;
  /// Before the node at place p runs: waits[wait_begin[p] .. wait_begin[p + 1]].
  std::vector<uint32_t> wait_begin;
  std::vector<Wait> waits;
  /// By place: another lane waits for the position that is reached here.
  std::vector<uint8_t> published;

  uint64_t makespan_ns = 0;  ///< as estimated
  uint64_t serial_ns = 0;    ///< on one lane

  uint32_t lanes() const { return static_cast<uint32_t>(lane_begin.size() - 1); }
  std::span<const Wait> waits_of(uint32_t place) const {
    return {waits.data() + wait_begin[place], wait_begin[place + 1] - wait_begin[place]};
  }
};

/// Lays the dag out on up to `lanes` lanes; on one, in the order of capture, unless more lanes are at least a tenth
/// faster. `cost_ns` is by node of the dag; empty: a microsecond each. O((nodes + edges) log nodes) for a fixed number
/// of lanes.
///
/// No deadlock: the nodes are placed one after another, and that global order is topological. Every lane runs a
/// subsequence of it, and every wait is for a position that was filled before the waiting node was placed. So the first
/// node in that order that has not run yet never waits for anything.
Assignment Schedule(const ir::Dag& dag, uint32_t lanes, std::span<const uint32_t> cost_ns = {},
                    uint32_t handoff_ns = kHandoffNs);

}  // namespace reprise::exec
