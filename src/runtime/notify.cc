// SPDX-License-Identifier: Apache-2.0
#include "runtime/notify.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "base/env.h"
#include "base/fault.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "ir/task_info.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/park.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

device::SharedCells& CellsOf(const Device& device) {
  static Mutex mutex;
  static auto* const all = new std::array<std::unique_ptr<device::SharedCells>, device::kMaxDevices>;
  MutexLock lock(mutex);
  std::unique_ptr<device::SharedCells>& cells = (*all)[static_cast<size_t>(device.id())];
  if (!cells)
    cells = std::make_unique<device::SharedCells>("reprise-notifies", EnvInt(EnvVar::kMaxNotifies, 1, 1 << 24));
  return *cells;
}

// ---- Tasks ----

struct NotifyPayload {
  NotifyState* state;
  int32_t id;
  uint32_t timeout_s;
  ParkClock clock;
  uint32_t saw_importer;  ///< of a wait: another process has held the notify since it was submitted
};

// Nobody is left who might record the notify: its maker has ended; or, of one of this process, all that had imported it
// have ended since the wait saw one, and kept it to their end. Who gives it back is not missed.
Status WhyNobodyRecords(NotifyPayload& p) {
  const device::CellUse& cell = p.state->cell;
  if (cell.imported()) {
    if (!cell.owner().HasEnded()) return {};
    return ProcessHasEnded("notify", p.id, "made it", cell.owner().pid());
  }
  const device::Holders holders = cell.LookAtHolders();
  if (holders.any_lives) p.saw_importer = 1;
  if (holders.any_lives || holders.ended == 0 || p.saw_importer == 0) return {};
  return ProcessHasEnded("notify", p.id, "had imported it", holders.ended);
}

void EndWait(RunContext& context, NotifyPayload& p) {
  p.state->waiters.Remove(context.runnable());  // it may have looked because of the clock
  EndPark(context, p.clock);
  p.saw_importer = 0;
}

void ReleaseState(void* payload) noexcept { static_cast<NotifyPayload*>(payload)->state->Release(); }

void DescribeNotify(const void* payload, ir::TaskInfo& info) {
  info.notify_id = static_cast<const NotifyPayload*>(payload)->id;
}

constexpr ir::TaskType kRecord = {
    .kind = ir::TaskKind::kNotifyRecord,
    .name = "NOTIFY_RECORD",
    .run =
        [](RunContext&, void* payload) {
          NotifyState& state = *static_cast<NotifyPayload*>(payload)->state;
          state.waiters.SetAndWake([&] { state.cell->bit.store(1, std::memory_order_release); });
          return RunResult::kDone;
        },
    .destroy = ReleaseState,
    .describe = DescribeNotify,
    .operands = ir::NoOperands};

constexpr ir::TaskType kWait = {
    .kind = ir::TaskKind::kNotifyWait,
    .name = "NOTIFY_WAIT",
    .run =
        [](RunContext& context, void* payload) {
          auto* p = static_cast<NotifyPayload*>(payload);
          NotifyState& state = *p->state;
          // Of several waits one takes the bit; the others go on waiting.
          const auto taken = [&] { return state.cell->bit.exchange(0, std::memory_order_acq_rel) != 0; };
          if (!taken() && state.waiters.AddUnless(taken, context.runnable(), &context.scheduler())) {
            if (LooksForProcess(p->clock)) {
              // Looked at once more: the bit may have been set just before the process ended.
              if (Status nobody = WhyNobodyRecords(*p); !nobody.ok()) {
                if (!taken()) context.Fail(std::move(nobody));
                EndWait(context, *p);
                return RunResult::kDone;
              }
            }
            const RunResult result =
                Park(context, p->clock, p->timeout_s, state.shared.load(std::memory_order_relaxed), "notify", p->id);
            if (result == RunResult::kDone) EndWait(context, *p);
            return result;
          }
          EndWait(context, *p);
          return RunResult::kDone;
        },
    .destroy = ReleaseState,
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          auto* p = static_cast<NotifyPayload*>(payload);
          p->state->waiters.Remove(runnable);
          p->clock = {};
          p->saw_importer = 0;
        },
    .describe = DescribeNotify,
    .operands = ir::NoOperands};

struct CountPayload {
  CountState* state;
  int32_t id;
  uint32_t mode;
  uint32_t value;
  uint32_t timeout_s;
  ParkClock clock;
  uint32_t clears;
};

void ReleaseCount(void* payload) noexcept { static_cast<CountPayload*>(payload)->state->Release(); }

void DescribeCount(const void* payload, ir::TaskInfo& info) {
  const auto* p = static_cast<const CountPayload*>(payload);
  info.notify_id = p->id;
  info.value = p->value;
}

constexpr ir::TaskType kChange = {.kind = ir::TaskKind::kNotifyRecord,
                                  .name = "CNT_NOTIFY_RECORD",
                                  .run =
                                      [](RunContext&, void* payload) {
                                        const auto* p = static_cast<const CountPayload*>(payload);
                                        std::atomic<uint32_t>& count = p->state->count;
                                        p->state->waiters.SetAndWake([&] {
                                          switch (static_cast<CountChange>(p->mode)) {
                                            case CountChange::kSet: count.store(p->value); break;
                                            case CountChange::kAdd: count.fetch_add(p->value); break;
                                            case CountChange::kOr: count.fetch_or(p->value); break;
                                            case CountChange::kAnd: count.fetch_and(p->value); break;
                                            case CountChange::kReset: count.store(0); break;
                                          }
                                        });
                                        return RunResult::kDone;
                                      },
                                  .destroy = ReleaseCount,
                                  .describe = DescribeCount,
                                  .operands = ir::NoOperands};

bool Holds(CountCompare compare, uint32_t count, uint32_t value) {
  switch (compare) {
    case CountCompare::kLess: return count < value;
    case CountCompare::kEqual: return count == value;
    case CountCompare::kGreater: return count > value;
    case CountCompare::kGreaterEqual: return count >= value;
    case CountCompare::kEqualMasked: return (count & value) == value;
  }
  return false;
}

constexpr ir::TaskType kCountWait = {
    .kind = ir::TaskKind::kNotifyWait,
    .name = "CNT_NOTIFY_WAIT",
    .run =
        [](RunContext& context, void* payload) {
          auto* p = static_cast<CountPayload*>(payload);
          CountState& state = *p->state;
          // Compared and cleared in one step: of several clearing waits only one gets the count.
          const auto satisfied = [&] {
            uint32_t seen = state.count.load(std::memory_order_acquire);
            while (Holds(static_cast<CountCompare>(p->mode), seen, p->value)) {
              if (p->clears == 0 || state.count.compare_exchange_weak(seen, 0, std::memory_order_acq_rel)) return true;
            }
            return false;
          };
          if (!satisfied() && state.waiters.AddUnless(satisfied, context.runnable(), &context.scheduler())) {
            const RunResult result = Park(context, p->clock, p->timeout_s, false, "counting notify", p->id);
            if (result == RunResult::kDone) state.waiters.Remove(context.runnable());
            return result;
          }
          state.waiters.Remove(context.runnable());
          EndPark(context, p->clock);
          return RunResult::kDone;
        },
    .destroy = ReleaseCount,
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          auto* p = static_cast<CountPayload*>(payload);
          p->state->waiters.Remove(runnable);
          p->clock = {};
        },
    .describe = DescribeCount,
    .operands = ir::NoOperands};

}  // namespace

HandleTable<Notify, HandleKind::kNotify>& Notifies() {
  static constinit NoDestroy<HandleTable<Notify, HandleKind::kNotify>> table;
  return table.value;
}

HandleTable<CountNotify, HandleKind::kCountNotify>& CountNotifies() {
  static constinit NoDestroy<HandleTable<CountNotify, HandleKind::kCountNotify>> table;
  return table.value;
}

// ---- Notify ----

StatusOr<Notify*> Notify::Make(device::CellUse cell) {
  auto* const notify = new Notify;
  notify->state_ = new NotifyState;
  notify->state_->cell = std::move(cell);
  notify->state_->shared = notify->state_->cell.imported();
  notify->handle_ = Notifies().Insert(notify);
  if (notify->handle_ != nullptr) return notify;
  Free(notify);
  return Error(kNoNotifyResource, "the process has too many notifies")
      .Hint("destroy notifies that are no longer needed");
}

StatusOr<Notify*> Notify::Create(Device& device) {
  auto cell = FaultPoint("notify") ? StatusOr<device::CellUse>(Error(kResourceExhausted, "injected fault"))
                                   : CellsOf(device).Take();
  if (!cell.ok()) {
    const Status why = std::move(cell).status();
    return Error(kNoNotifyResource, fmt::format("device {} has no notify left: {}", device.id(), why.detail().what))
        .Culprit("live notifies of the process");
  }
  return Make(std::move(cell).value());
}

StatusOr<Notify*> Notify::Import(const device::ShareKey& key) {
  REPRISE_ASSIGN_OR_RETURN(device::CellUse cell, device::CellUse::Import(key, device::ShareKind::kNotify, "notify"));
  return Make(std::move(cell));
}

bool Notify::Destroy(Notify* notify) {
  uint64_t birth = 0;
  if (Notifies().Erase(notify->handle_, &birth) == nullptr) return false;
  {
    MutexLock lock(notify->mutex_);
    notify->is_destroyed_ = true;
    for (const auto& key : notify->keys_) {
      if (key) device::Withdraw(*key);
    }
  }
  Retire(notify, Free, birth, true);
  return true;
}

void Notify::Free(void* retired) {
  auto* const notify = static_cast<Notify*>(retired);
  notify->state_->Release();
  delete notify;
}

std::string Notify::Describe() const {
  return fmt::format("{}notify {}", state_->cell.imported() ? "imported " : "", id());
}

Status Notify::RecordOn(Stream& stream) {
  state_->Retain();
  NotifyPayload payload{state_, id(), 0, {}, 0};
  return Submit(stream, ir::MakeTask(kRecord, payload));
}

Status Notify::WaitOn(Stream& stream, uint32_t timeout_s) {
  state_->Retain();
  NotifyPayload payload{state_, id(), timeout_s, {}, 0};
  // Of a replay it is the first look that counts: those who held it at the capture say nothing about later.
  const bool is_watched = state_->shared.load() && !state_->cell.imported() && !stream.is_capturing();
  if (is_watched && state_->cell.LookAtHolders().any_lives) payload.saw_importer = 1;
  return Submit(stream, ir::MakeTask(kWait, payload));
}

void Notify::Reset() { state_->cell->bit.store(0, std::memory_order_release); }

StatusOr<device::ShareKey> Notify::Export(bool checks_pid) {
  if (state_->cell.imported()) {
    return Error(kInvalidValue, fmt::format("{} belongs to another process", Describe()))
        .Hint("export a notify in the process that made it with aclrtCreateNotify");
  }
  MutexLock lock(mutex_);
  if (is_destroyed_)
    return Error(kInvalidHandle, fmt::format("{} was destroyed by another thread meanwhile", Describe()))
        .Hint("destroy a notify only when no other thread uses it");
  std::optional<device::ShareKey>& key = keys_[checks_pid ? 1 : 0];
  if (key) return *key;
  REPRISE_ASSIGN_OR_RETURN(key, state_->cell.Export(device::ShareKind::kNotify, checks_pid));
  // Waits that are parked know of wake-ups from this process only: they begin to look.
  state_->shared.store(true);
  state_->waiters.WakeAll();
  return *key;
}

Status Notify::AllowTakers(const int32_t* pids, size_t count) {
  MutexLock lock(mutex_);
  if (!keys_[0] && !keys_[1]) {
    return Error(kInvalidValue, fmt::format("{} is not exported", Describe()))
        .Hint("call aclrtNotifyGetExportKey first");
  }
  if (!keys_[1]) return {};  // exported to all
  return device::AllowTakers(*keys_[1], pids, count);
}

// ---- Counting notify ----

namespace {

IdPool& CountIds() {
  static auto* const ids = new IdPool(EnvInt(EnvVar::kMaxNotifies, 1, 1 << 24));
  return *ids;
}

}  // namespace

StatusOr<CountNotify*> CountNotify::Create() {
  const int32_t id = FaultPoint("notify") ? -1 : CountIds().Take();
  if (id < 0) {
    return Error(kNoNotifyResource, fmt::format("no counting notify is left: {} are in use", CountIds().limit()))
        .Culprit("live counting notifies of the process");
  }
  auto* const notify = new CountNotify;
  notify->state_ = new CountState;
  notify->id_ = id;
  notify->handle_ = CountNotifies().Insert(notify);
  if (notify->handle_ == nullptr) {
    CountIds().Return(id);
    Free(notify);
    return Error(kNoNotifyResource, "the process has too many counting notifies");
  }
  return notify;
}

bool CountNotify::Destroy(CountNotify* notify) {
  uint64_t birth = 0;
  if (CountNotifies().Erase(notify->handle_, &birth) == nullptr) return false;
  CountIds().Return(notify->id_);
  Retire(notify, Free, birth, false);
  return true;
}

void CountNotify::Free(void* retired) {
  auto* const notify = static_cast<CountNotify*>(retired);
  notify->state_->Release();
  delete notify;
}

Status CountNotify::ChangeOn(Stream& stream, CountChange change, uint32_t value) {
  state_->Retain();
  CountPayload payload{state_, id_, static_cast<uint32_t>(change), value, 0, {}, 0};
  return Submit(stream, ir::MakeTask(kChange, payload));
}

Status CountNotify::WaitOn(Stream& stream, CountCompare compare, uint32_t value, uint32_t timeout_s, bool clears) {
  state_->Retain();
  CountPayload payload{state_, id_, static_cast<uint32_t>(compare), value, timeout_s, {}, clears ? 1u : 0u};
  return Submit(stream, ir::MakeTask(kCountWait, payload));
}

}  // namespace reprise::runtime
