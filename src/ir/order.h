// SPDX-License-Identifier: Apache-2.0
//
// What comes before what in a graph that is being captured: for those who want to use memory again inside of it.
//
// ir::Dag tells the same order of a graph that is complete, task by task; it cannot follow one that grows. Both take
// from RecordBefore which records order anything.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace reprise::ir {

/// Tasks of a lane run one after another, so what comes before a task is the front of each lane: a number for each.
///
/// Threads: as the graph. Costs nothing before it is asked for; then a look at each node once, and for each record the
/// memory of as many numbers as there are lanes.
class Order {
 public:
  /// Looks at the nodes that were added since. Throws std::bad_alloc, and goes on where it was the next time.
  void CatchUp(const Graph& graph);

  /// The nodes of the lane up to the last one that can touch memory: records and waits cannot.
  uint32_t Tasks(LaneId lane) const { return lane < lanes_.size() ? lanes_[lane].tasks : 0; }
  /// By lane, the nodes that come before whatever is added to this one next; none for lanes that are not in it.
  std::vector<uint32_t> Before(LaneId lane) const {
    return lane < lanes_.size() ? lanes_[lane].before : std::vector<uint32_t>();
  }

 private:
  struct Lane {
    uint32_t tasks = 0;
    std::vector<uint32_t> before;
  };
  std::vector<Lane> lanes_;
  std::unordered_map<NodeId, std::vector<uint32_t>> records_;  // what comes before whoever waits for them
  NodeId seen_ = 0;
};

}  // namespace reprise::ir
