// SPDX-License-Identifier: Apache-2.0
#include "capture/condition.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "capture/session.h"

namespace reprise::capture {
namespace {

using ir::RunResult;

// A loop goes back to its stream or lane after so many turns: others get the worker, and an abort or the failure of
// another lane is seen there.
constexpr int kTurnsAtOnce = 64;

// One conditional task and the execution of its chosen body. Runs of the graph that holds it never overlap.
struct ConditionTask {
  ConditionKind kind;
  uint64_t* cell;
  std::vector<Model*> bodies;
  exec::Replay::Progress progress{};
  exec::Replay* running = nullptr;

  // The body to run now; null when there is none.
  Model* Choose() const {
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

  RunResult Run(device::RunContext& context) {
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
};

struct ConditionPayload {
  ConditionTask* task;
};

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

constexpr ir::TaskType kCondition = {
    ir::TaskKind::kCondition,
    "CONDITION_OP",
    [](device::RunContext& context, void* payload) {
      return static_cast<ConditionPayload*>(payload)->task->Run(context);
    },
    [](void* payload) noexcept { delete static_cast<ConditionPayload*>(payload)->task; },
    [](void* payload, device::Runnable* runnable) noexcept {
      ConditionTask& task = *static_cast<ConditionPayload*>(payload)->task;
      if (task.running == nullptr) return;
      const bool was_queued = task.progress.phase == exec::Replay::Progress::kQueued;
      task.running->Abandon(task.progress, runnable);
      if (was_queued) task.running->Cancel(task.progress.ticket);
      task.running = nullptr;
    },
    DescribeCondition};

}  // namespace

Status AddConditionTask(runtime::Stream& stream, Condition& condition, ConditionKind kind, std::span<void*> bodies) {
  std::lock_guard lock(stream.context().capture_mutex);
  if (!stream.is_capturing()) return Error(107029, fmt::format("{} is not being captured", stream.Describe()));
  Session& session = *static_cast<Session*>(stream.sink());
  if (condition.model != &session.model()) {
    return Error(107000, fmt::format("the condition handle was created on {}, {} is captured into {}",
                                     condition.model->Describe(), stream.Describe(), session.model().Describe()))
        .Hint("create the handle on the model that aclmdlRICaptureGetInfo returns for this stream");
  }
  if (condition.used) {
    return Error(107000, "the condition handle is used by another conditional task already")
        .Culprit(session.Describe())
        .Hint("create one handle for each conditional task");
  }
  if (bodies.size() > static_cast<uint64_t>(Model::Available())) {
    return Error(207005, fmt::format("{} bodies are wanted, {} models are left", bodies.size(), Model::Available()))
        .Culprit("parameter params.size")
        .Hint("pass the number of bodies in params.size, and destroy models that are no longer needed");
  }
  const size_t others = session.model().bodies().size();
  ConditionPayload payload{new ConditionTask{kind, condition.cell, {}}};
  for (size_t i = 0; i < bodies.size(); ++i) {
    auto body = Model::Create(stream.context(), ModelKind::kSub, &session.model());
    if (!body.ok()) {
      delete payload.task;
      session.model().DropBodies(others);
      return std::move(body).status();
    }
    payload.task->bodies.push_back(*body);
  }
  const std::vector<Model*> made = payload.task->bodies;
  if (Status status = session.Record(stream, ir::MakeTask(kCondition, payload)); !status.ok()) {
    session.model().DropBodies(others);
    return status;
  }
  condition.used = true;
  for (size_t i = 0; i < bodies.size(); ++i) bodies[i] = made[i]->handle();
  return {};
}

}  // namespace reprise::capture
