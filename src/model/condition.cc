// SPDX-License-Identifier: Apache-2.0
#include "model/condition.h"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "ir/task_info.h"

namespace reprise::model {
namespace {

using ir::RunResult;

// A loop goes back to its stream or lane after so many turns: others get the worker, and an abort or the failure of
// another lane is seen there.
constexpr int kTurnsAtOnce = 64;

}  // namespace

Model* ConditionTask::Choose() const {
  const uint64_t value = std::atomic_ref<uint64_t>(*cell).load(std::memory_order_acquire);
  switch (kind) {
    case ConditionKind::kIf:
      if (value != 0) return bodies[0];
      return bodies.size() > 1 ? bodies[1] : nullptr;
    case ConditionKind::kWhile: return value != 0 ? bodies[0] : nullptr;
    case ConditionKind::kSwitch: return value < bodies.size() ? bodies[value] : nullptr;
  }
  return nullptr;
}

RunResult ConditionTask::Run(device::RunContext& context) {
  for (int turns = 0;; ++turns) {
    if (running == nullptr) {
      Model* body = Choose();
      if (body == nullptr) return RunResult::kDone;
      if (turns == kTurnsAtOnce) return RunResult::kNeedsWorker;
      running = body->replay();
      progress = {running->Submit()};
      if (device::Timeline::observed()) [[unlikely]]
        progress.watched = WatchedAs(*body);
    }
    const RunResult result = running->Run(context, progress);
    if (result != RunResult::kDone) return result;
    running = nullptr;
    if (kind != ConditionKind::kWhile || context.failed()) return RunResult::kDone;
  }
}

namespace {

void DescribeCondition(const void* payload, ir::TaskInfo& info) {
  const ConditionTask& task = *static_cast<const ConditionPayload*>(payload)->task;
  static constexpr const char* kNames[] = {"IF", "WHILE", "SWITCH"};
  info.condition = kNames[static_cast<uint32_t>(task.kind)];
  info.cell = task.cell;
  if (info.names_only) return;
  for (size_t i = 0; i < task.bodies.size(); ++i) {
    std::string when = task.kind == ConditionKind::kSwitch ? fmt::format("value == {}", i)
                       : i == 0                            ? "value != 0"
                                                           : "value == 0";
    info.bodies.push_back({task.bodies[i], std::move(when)});
  }
}

}  // namespace

const ir::TaskType kConditionTask = {
    .kind = ir::TaskKind::kCondition,
    .name = "CONDITION_OP",
    .run = [](device::RunContext& context,
              void* payload) { return static_cast<ConditionPayload*>(payload)->task->Run(context); },
    .destroy = [](void* payload) noexcept { delete static_cast<ConditionPayload*>(payload)->task; },
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          ConditionTask& task = *static_cast<ConditionPayload*>(payload)->task;
          if (task.running == nullptr) return;
          const bool was_queued = task.progress.phase == exec::Replay::Progress::kQueued;
          task.running->Abandon(task.progress, runnable);
          if (was_queued) task.running->Cancel(task.progress.ticket);
          task.running = nullptr;
        },
    .describe = DescribeCondition,
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          sink.Take({static_cast<const ConditionPayload*>(payload)->task->cell, 8, ir::Access::kRead});
          sink.TakeOpaque();  // the bodies' tasks tell their own
        }};

}  // namespace reprise::model
