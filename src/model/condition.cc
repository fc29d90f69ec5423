// SPDX-License-Identifier: Apache-2.0
#include "model/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "device/inquiry.h"
#include "ir/task_info.h"

namespace reprise::model {
namespace {

using ir::RunResult;

// A loop goes back to its stream or lane after so many turns: others get the worker, and an abort or the failure of
// another lane is seen there.
constexpr int kTurnsAtOnce = 64;
// Odd, and with bits all over: products of different branches differ.
constexpr uint64_t kBranchFactor = 0x9E3779B97F4A7C15;

}  // namespace

size_t ConditionTask::Choose() const {
  const uint64_t value = std::atomic_ref<uint64_t>(*cell).load(std::memory_order_acquire);
  switch (kind) {
    case ConditionKind::kIf: return value != 0 ? 0 : std::min<size_t>(1, bodies.size());
    case ConditionKind::kWhile: return value != 0 ? 0 : bodies.size();
    case ConditionKind::kSwitch: return std::min<size_t>(value, bodies.size());
  }
  return bodies.size();
}

// The body's tasks take their numbers.
void ConditionTask::BindBody(size_t body, const exec::Bindings* outer) noexcept {
  bindings.branch = ((outer != nullptr ? outer->branch : 0) * kBranchFactor + body + 1) * kBranchFactor;
  bindings.envelopes = envelopes[body];
  const std::vector<SeriesUse>& series = bodies[body]->series();
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].count != 0) bindings.series[i] = envelopes[body][i]->Take(series[i].count, bindings.branch);
  }
}

RunResult ConditionTask::RunBodies(device::RunContext& context) {
  for (int turns = 0;; ++turns) {
    if (running == nullptr) {
      const size_t chosen = Choose();
      if (chosen == bodies.size()) return RunResult::kDone;
      if (turns == kTurnsAtOnce) return RunResult::kNeedsWorker;
      Model* const body = bodies[chosen];
      running = body->replay();
      progress = {running->Submit()};
      if (!envelopes.empty() && !envelopes[chosen].empty()) [[unlikely]] {
        BindBody(chosen, context.bindings);
        progress.bindings = &bindings;
      }
      if (device::Timeline::observed()) [[unlikely]]
        progress.watched = WatchedAs(*body);
    }
    const RunResult result = running->Run(context, progress);
    if (result != RunResult::kDone) return result;
    running = nullptr;
    if (kind != ConditionKind::kWhile || context.failed()) return RunResult::kDone;
  }
}

RunResult ConditionTask::RunInEnvelopes(device::RunContext& context) {
  if (phase == kClosed) {
    done = 0;
    phase = kOpening;
  }
  if (phase == kOpening) {
    for (; done < uses.size(); ++done) {
      Use& use = uses[done];
      const uint64_t number = context.bindings->series[static_cast<size_t>(use.number.binding)] + use.number.value;
      if (const RunResult result = use.envelope->Open(context, number, use.number.graph); result != RunResult::kDone)
        return result;
      if (context.failed()) break;
    }
    phase = kOpen;
  }
  if (phase == kOpen && !context.failed()) {
    if (const RunResult result = RunBodies(context); result != RunResult::kDone) return result;
    if (!context.failed()) {
      // All are told before the first is waited for: ranks may have them in different orders.
      for (const Use& use : uses) use.envelope->Announce();
      done = 0;
      phase = kClosing;
    }
  }
  for (; phase == kClosing && done < uses.size() && !context.failed(); ++done) {
    if (const RunResult result = uses[done].envelope->Close(context); result != RunResult::kDone) return result;
  }
  if (context.failed()) {
    for (const Use& use : uses) use.envelope->Abandon(nullptr);
  }
  phase = kClosed;
  return RunResult::kDone;
}

RunResult ConditionTask::Run(device::RunContext& context) {
  return uses.empty() ? RunBodies(context) : RunInEnvelopes(context);
}

void ConditionTask::Abandon(device::Runnable* runnable) noexcept {
  if (running != nullptr) {
    const bool was_queued = progress.phase == exec::Replay::Progress::kQueued;
    running->Abandon(progress, runnable);
    if (was_queued) running->Cancel(progress.ticket);
    running = nullptr;
  }
  if (phase == kClosed) return;
  for (const Use& use : uses) use.envelope->Abandon(runnable);
  phase = kClosed;
}

namespace {

void DescribeCondition(const void* payload, ir::TaskInfo& info) {
  const ConditionTask& task = *static_cast<const ConditionPayload*>(payload)->task;
  static constexpr const char* kNames[] = {"IF", "WHILE", "SWITCH"};
  info.condition = kNames[static_cast<uint32_t>(task.kind)];
  info.cell = task.cell;
  if (device::Inquiry::IsOpen()) {
    for (const ConditionTask::Use& use : task.uses) info.waits_for += use.envelope->WaitsFor();
  }
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
          static_cast<ConditionPayload*>(payload)->task->Abandon(runnable);
        },
    .describe = DescribeCondition,
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          sink.Take({static_cast<const ConditionPayload*>(payload)->task->cell, 8, ir::Access::kRead});
          sink.TakeOpaque();  // the bodies' tasks tell their own
        }};

}  // namespace reprise::model
