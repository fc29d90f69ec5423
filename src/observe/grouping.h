// SPDX-License-Identifier: Apache-2.0
//
// Long streams in short: which tasks of a picture share a box. Tasks that fork, join or hold bodies keep a box of their
// own, so that the order between streams stays to be seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/lanes.h"

namespace reprise::observe {

/// Tasks of a lane that follow each other: positions [begin, end).
struct Group {
  uint32_t begin;
  uint32_t end;
  std::string label{};               ///< what they have in common; empty for a single task
  std::string place{};               ///< the line of the program that launched them all, in full; may be empty
  std::vector<std::string> names{};  ///< "mm × 12", the most frequent first
  bool is_gap = false;               ///< left out: more boxes before and behind than anybody would look at
  uint32_t size() const { return end - begin; }
};

/// A wait and the record of another lane that it waits for.
struct LaneEdge {
  uint32_t from_lane, from;  ///< index of the lane, position
  uint32_t to_lane, to;
};
std::vector<LaneEdge> EdgesBetween(const std::vector<ShownLane>& lanes);

/// The groups of each lane, in order; all tasks are in one. `every_task`: only resets that follow each other share one.
std::vector<std::vector<Group>> GroupTasks(const std::vector<ShownLane>& lanes, const std::vector<LaneEdge>& edges,
                                           bool every_task);

/// Index of the group that holds the position.
uint32_t GroupAt(const std::vector<Group>& groups, uint32_t position);

}  // namespace reprise::observe
