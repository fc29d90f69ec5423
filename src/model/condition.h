// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks: IF, WHILE and SWITCH over bodies, which are sub models.
#pragma once

#include <memory>
#include <vector>

#include "device/scheduler.h"
#include "exec/bindings.h"
#include "exec/replay.h"
#include "ir/series.h"
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

  // ---- For bodies with tasks that take numbers; Model::CollectSeries fills this ----

  /// Of a task that is in no body: a series that bodies use, and the number of the task in it.
  struct Use {
    ir::Series* series;
    ir::Number number;
    std::unique_ptr<ir::Envelope> envelope;
  };
  std::vector<Use> uses{};
  /// By body: the envelope of each of its series, which belongs to the task that is in no body.
  std::vector<std::vector<ir::Envelope*>> envelopes{};
  exec::Bindings bindings{};  ///< of the body that runs
  enum Phase : uint8_t { kClosed, kOpening, kOpen, kClosing } phase = kClosed;
  size_t done = 0;  ///< uses that the phase is through with

  /// Which body to run now; the number of bodies: none.
  size_t Choose() const;
  ir::RunResult Run(device::RunContext& context);
  /// The run ends before its end; `runnable` as in ir::Envelope.
  void Abandon(device::Runnable* runnable) noexcept;

 private:
  ir::RunResult RunBodies(device::RunContext& context);
  ir::RunResult RunInEnvelopes(device::RunContext& context);
  void BindBody(size_t body, const exec::Bindings* outer) noexcept;
};

/// Owns its task.
struct ConditionPayload {
  ConditionTask* task;
};
extern const ir::TaskType kConditionTask;

}  // namespace reprise::model
