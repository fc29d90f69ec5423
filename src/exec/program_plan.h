// SPDX-License-Identifier: Apache-2.0
//
// Programs: the plans of built models. Their lanes are the tasks of bound streams, which start, stop and jump while
// they run, so there is nothing to assign and nothing to fuse: steps stand as they were submitted.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "exec/plan.h"
#include "ir/graph.h"

namespace reprise::exec {

/// Payloads of the tasks that steer a built model; `target` is the task store of the other stream.
struct ActivatePayload {
  const ir::Graph* target;
  int32_t target_stream_id;
};
enum class SwitchCondition : uint32_t { kEqual, kNotEqual, kGreater, kGreaterOrEqual, kLess, kLessOrEqual };
struct SwitchPayload {
  const void* left;
  const void* right;
  SwitchCondition condition;
  bool is_int64;
  const ir::Graph* target;
  int32_t target_stream_id;
};
/// Where a label stands. Shared by the label and by everything that may jump there: a jump forward is stored before its
/// label is set.
struct LabelTarget {
  uint64_t number;  ///< of the label, in the order of creation, from 1
  bool is_set = false;
  std::weak_ptr<const ir::Graph> graph{};  ///< that stores the label
  ir::NodeId node = ir::kNoNode;           ///< the label's own node
};
struct LabelSwitchPayload {
  const uint32_t* index;  ///< read when the task runs
  uint32_t most;
  std::vector<std::shared_ptr<const LabelTarget>>* targets;  ///< owned
};
extern const ir::TaskType kActivateTask;
extern const ir::TaskType kSwitchTask;
extern const ir::TaskType kLabelSetTask;
extern const ir::TaskType kLabelSwitchTask;
extern const ir::TaskType kEndTask;

bool Holds(const SwitchPayload& payload);

/// The plan of a built model: lane 0 is empty, lane i + 1 holds the tasks of lanes[i]. 107005 when a task refers to a
/// stream that is not among them.
StatusOr<std::unique_ptr<Plan>> CompileProgram(const std::vector<ProgramLane>& lanes);

}  // namespace reprise::exec
