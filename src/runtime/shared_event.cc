// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_event.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/env.h"
#include "ir/task_info.h"
#include "runtime/park.h"
#include "runtime/stream.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

device::SharedCells& Cells() {
  static auto* const cells = new device::SharedCells("reprise-events", EnvInt(EnvVar::kMaxEvents, 1, 1 << 24));
  return *cells;
}

constexpr char kRole[] = "submitted the newest record";
constexpr uint32_t kSleepsBetweenLooks = 128;

// Nobody, where it is this process.
device::Process RecorderOf(const device::Issued& record) {
  return record.pid == getpid() ? device::Process() : device::Process::Of(record.pid);
}

struct SharedPayload {
  SharedEventState* state;
  uint64_t record;
  device::Process recorder;  // of a wait for another process
  int32_t event_id;
  uint32_t timeout_s;
  ParkClock clock;
};

void Describe(const void* payload, ir::TaskInfo& info) {
  info.event_id = static_cast<const SharedPayload*>(payload)->event_id;
}

constexpr ir::TaskType kRecord = {.kind = ir::TaskKind::kEventRecord,
                                  .name = "EVENT_RECORD",
                                  .run =
                                      [](RunContext&, void* payload) {
                                        auto* p = static_cast<SharedPayload*>(payload);
                                        p->state->Complete(p->record);
                                        return RunResult::kDone;
                                      },
                                  .destroy =
                                      [](void* payload) noexcept {
                                        auto* p = static_cast<SharedPayload*>(payload);
                                        p->state->Complete(p->record);  // a dropped record leaves no waiters behind
                                        p->state->Release();
                                      },
                                  .describe = Describe,
                                  .operands = ir::NoOperands};

constexpr ir::TaskType kWait = {
    .kind = ir::TaskKind::kEventWait,
    .name = "EVENT_WAIT",
    .run =
        [](RunContext& context, void* payload) {
          auto* p = static_cast<SharedPayload*>(payload);
          const auto done = [p] { return p->state->Done(p->record); };
          if (!done() && p->state->waiters.AddUnless(done, context.runnable(), &context.scheduler())) {
            if (LooksForProcess(p->clock) && p->recorder.HasEnded() && !done()) {
              p->state->waiters.Remove(context.runnable());
              EndPark(context, p->clock);
              context.Fail(ProcessHasEnded("event", p->event_id, kRole, p->recorder.pid()));
              return RunResult::kDone;
            }
            const RunResult result = Park(context, p->clock, p->timeout_s, true, "event", p->event_id);
            if (result == RunResult::kDone) p->state->waiters.Remove(context.runnable());
            return result;
          }
          p->state->waiters.Remove(context.runnable());
          EndPark(context, p->clock);
          return RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { static_cast<SharedPayload*>(payload)->state->Release(); },
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          static_cast<SharedPayload*>(payload)->state->waiters.Remove(runnable);
        },
    .describe = Describe,
    .operands = ir::NoOperands};

}  // namespace

StatusOr<SharedEventState*> SharedEventState::Create() {
  auto cell = Cells().Take();
  if (!cell.ok()) {
    const Status why = std::move(cell).status();
    return Error(kNoEventResource, why.detail().what).Culprit("live events between processes");
  }
  auto* const state = new SharedEventState;
  state->cell = std::move(cell).value();
  return state;
}

StatusOr<SharedEventState*> SharedEventState::Import(const device::ShareKey& key) {
  REPRISE_ASSIGN_OR_RETURN(device::CellUse cell, device::CellUse::Import(key, device::ShareKind::kEvent, "event"));
  auto* const state = new SharedEventState;
  state->cell = std::move(cell);
  return state;
}

void SharedEventState::Complete(uint64_t record) noexcept {
  waiters.SetAndWake([&] {
    uint64_t seen = cell->done.load(std::memory_order_relaxed);
    while (seen < record && !cell->done.compare_exchange_weak(seen, record, std::memory_order_acq_rel)) {
    }
  });
}

StatusOr<bool> SharedEventState::Query(int32_t event_id) const {
  const device::Issued newest = Newest();
  if (Done(newest.number)) return true;
  // Looked at once more: it may have run just before the process ended.
  const device::Process recorder = RecorderOf(newest);
  if (!recorder.HasEnded() || Done(newest.number)) return Done(newest.number);
  return ProcessHasEnded("event", event_id, kRole, recorder.pid());
}

StatusOr<bool> SharedEventState::Wait(const Deadline& deadline, int32_t event_id) const {
  const device::Issued newest = Newest();
  if (Done(newest.number)) return true;
  const device::Process recorder = RecorderOf(newest);
  constexpr std::chrono::microseconds kLongest{1000};
  const NoCancel no_cancel;
  const WaitingCall waiting;
  std::chrono::microseconds pause{20};
  for (uint32_t sleeps = 0; !Done(newest.number); ++sleeps) {
    if (sleeps % kSleepsBetweenLooks == 0 && recorder.HasEnded() && !Done(newest.number)) {
      return ProcessHasEnded("event", event_id, kRole, recorder.pid());
    }
    if (deadline && Clock::now() >= *deadline) return false;
    std::this_thread::sleep_for(pause);  // no other process can wake us
    pause = std::min(2 * pause, kLongest);
  }
  return true;
}

Status SharedEventState::RecordOn(Stream& stream, int32_t event_id) {
  uint64_t seen = cell->issued.load(std::memory_order_relaxed);
  device::Issued record;
  do {
    record = {device::Issued::Unpack(seen).number + 1, getpid()};
  } while (!cell->issued.compare_exchange_weak(seen, record.Pack(), std::memory_order_acq_rel));
  Retain();
  SharedPayload payload{this, record.number, {}, event_id, 0, {}};
  return QueueNow(stream, ir::MakeTask(kRecord, payload));
}

Status SharedEventState::WaitOn(Stream& stream, int32_t event_id, uint32_t timeout_s) {
  const device::Issued newest = Newest();
  if (Done(newest.number)) return {};
  const device::Process recorder = RecorderOf(newest);
  Retain();
  SharedPayload payload{this, newest.number, recorder, event_id, timeout_s, {}};
  return QueueNow(stream, ir::MakeTask(kWait, payload));
}

}  // namespace reprise::runtime
