// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_event.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/env.h"
#include "runtime/park.h"
#include "runtime/stream.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

device::SharedCells& Cells() {
  static auto* const cells = new device::SharedCells("reprise-events", EnvInt(EnvVar::kMaxEvents, 1, 1 << 24));
  return *cells;
}

struct SharedPayload {
  SharedEventState* state;
  uint64_t record;
  int32_t event_id;
  uint32_t timeout_s;
  ParkClock clock;
};

void Describe(const void* payload, ir::TaskInfo& info) {
  info.event_id = static_cast<const SharedPayload*>(payload)->event_id;
}

constexpr ir::TaskType kRecord = {ir::TaskKind::kEventRecord,
                                  "EVENT_RECORD",
                                  [](RunContext&, void* payload) {
                                    auto* p = static_cast<SharedPayload*>(payload);
                                    p->state->Complete(p->record);
                                    return RunResult::kDone;
                                  },
                                  [](void* payload) noexcept {
                                    auto* p = static_cast<SharedPayload*>(payload);
                                    p->state->Complete(p->record);  // a dropped record leaves no waiters behind
                                    p->state->Release();
                                  },
                                  nullptr,
                                  Describe};

constexpr ir::TaskType kWait = {
    ir::TaskKind::kEventWait,
    "EVENT_WAIT",
    [](RunContext& context, void* payload) {
      auto* p = static_cast<SharedPayload*>(payload);
      const auto done = [p] { return p->state->Done(p->record); };
      if (!done() && p->state->waiters.AddUnless(done, context.runnable(), &context.scheduler())) {
        const RunResult result = Park(context, p->clock, p->timeout_s, true, "event", p->event_id);
        if (result == RunResult::kDone) p->state->waiters.Remove(context.runnable());
        return result;
      }
      p->state->waiters.Remove(context.runnable());
      EndPark(context, p->clock);
      return RunResult::kDone;
    },
    [](void* payload) noexcept { static_cast<SharedPayload*>(payload)->state->Release(); },
    [](void* payload, device::Runnable* runnable) noexcept {
      static_cast<SharedPayload*>(payload)->state->waiters.Remove(runnable);
    },
    Describe};

}  // namespace

StatusOr<SharedEventState*> SharedEventState::Create() {
  auto cell = Cells().Take();
  if (!cell.ok()) {
    const Status why = std::move(cell).status();
    return Error(207007, why.detail().what).Culprit("live events between processes");
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

bool SharedEventState::Wait(uint64_t record, const Deadline& deadline) const {
  constexpr std::chrono::microseconds kLongest{1000};
  if (Done(record)) return true;
  const NoCancel no_cancel;
  const WaitingCall waiting;
  for (std::chrono::microseconds pause{20}; !Done(record); pause = std::min(2 * pause, kLongest)) {
    if (deadline && Clock::now() >= *deadline) return false;
    std::this_thread::sleep_for(pause);  // no other process can wake us
  }
  return true;
}

Status SharedEventState::RecordOn(Stream& stream, int32_t event_id) {
  Retain();
  SharedPayload payload{this, cell->issued.fetch_add(1, std::memory_order_acq_rel) + 1, event_id, 0, {}};
  return stream.SubmitNow(ir::MakeTask(kRecord, payload));
}

Status SharedEventState::WaitOn(Stream& stream, int32_t event_id, uint32_t timeout_s) {
  const uint64_t newest = Newest();
  if (Done(newest)) return {};
  Retain();
  SharedPayload payload{this, newest, event_id, timeout_s, {}};
  return stream.SubmitNow(ir::MakeTask(kWait, payload));
}

}  // namespace reprise::runtime
