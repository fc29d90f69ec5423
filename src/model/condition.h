// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks: IF, WHILE and SWITCH over bodies, which are sub models.
#pragma once

#include <vector>

#include "device/scheduler.h"
#include "exec/replay.h"
#include "ir/task.h"
#include "model/model.h"

namespace reprise::model {

/// The numbers are those of aclmdlRICondTaskType.
enum class ConditionKind : uint32_t { kIf = 0, kWhile = 1, kSwitch = 2 };

/// One conditional task and the execution of its chosen body. Runs of the graph that holds it never overlap.
struct ConditionTask {
  ConditionKind kind;
  uint64_t* cell;              ///< of the condition
  std::vector<Model*> bodies;  ///< owned by the model that the task belongs to
  exec::Replay::Progress progress{};
  exec::Replay* running = nullptr;

  /// The body to run now; null when there is none.
  Model* Choose() const;
  ir::RunResult Run(device::RunContext& context);
};

/// Owns its task.
struct ConditionPayload {
  ConditionTask* task;
};
extern const ir::TaskType kConditionTask;

}  // namespace reprise::model
