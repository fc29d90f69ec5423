// SPDX-License-Identifier: Apache-2.0
//
// Plan: a graph made ready to run. Immutable, flat, in execution order, one run of steps per lane.
//
// Inside a lane position is the only dependency. Between lanes a step may wait until another lane has passed a position;
// waits that an earlier one implies are dropped, and only positions that somebody waits for are published.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/graph.h"

namespace reprise::exec {

struct Step {
  enum Kind : uint8_t {
    kRun,      ///< call run(context, payload)
    kWait,     ///< until lane `lane` has published `position`
    kPublish,  ///< `position` of this lane is reached
  };
  ir::RunResult (*run)(device::RunContext&, void* payload);
  void* payload;
  const ir::TaskType* type;
  uint32_t task_id;   ///< position in the graph's lane, as dumps show it
  uint16_t lane;
  Kind kind;
  uint32_t position;
};
static_assert(sizeof(Step) <= 64, "a step is one cache line at most");

struct PlanLane {
  uint32_t begin;  ///< first step
  uint32_t end;
  int32_t stream_id;
  int32_t first_wait_lane;  ///< lane that the first step waits for, or -1
};

class Plan {
 public:
  /// Linear in nodes and lanes × waits. The graph must outlive the plan and not change.
  static std::unique_ptr<Plan> Compile(const ir::Graph& graph);

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<PlanLane>& lanes() const { return lanes_; }

 private:
  std::vector<Step> steps_;
  std::vector<PlanLane> lanes_;
};

}  // namespace reprise::exec
