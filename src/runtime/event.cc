// SPDX-License-Identifier: Apache-2.0
#include "runtime/event.h"

#include <fmt/format.h>

#include <climits>
#include <new>
#include <vector>

#include "base/fault.h"
#include "base/mutex.h"
#include "device/inquiry.h"
#include "ir/task_info.h"
#include "runtime/context.h"
#include "runtime/stall.h"
#include "runtime/submission.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

// EventRecords are taken and given back at the rate of eager launches, so they are kept.
struct RecordPool {
  SpinLock mutex;
  std::vector<EventRecord*> free REPRISE_GUARDED_BY(mutex);
};

RecordPool& Pool() {
  static auto* const pool = new RecordPool;
  return *pool;
}
constexpr size_t kMaxPooled = 4096;

struct RecordPayload {
  EventRecord* record;
  Device* device;
  int32_t event_id;
  uint32_t pad = 0;
};

struct WaitPayload {
  EventRecord* record;
  int32_t event_id;
  uint32_t timeout_s;
  ParkClock clock;
};

void DestroyRecord(void* payload) noexcept {
  auto* p = static_cast<RecordPayload*>(payload);
  if (p->record == nullptr) return;
  // A record that was dropped must not leave waiters behind.
  if (!p->record->done()) p->record->Complete(p->device->NowUs());
  p->record->Release();
}

RunResult RunRecord(RunContext&, void* payload) {
  auto* p = static_cast<RecordPayload*>(payload);
  p->record->Complete(p->device->NowUs());
  return RunResult::kDone;
}

RunResult RunWait(RunContext& context, void* payload) {
  auto* p = static_cast<WaitPayload*>(payload);
  if (!p->record->done() &&
      p->record->waiters.AddUnless([p] { return p->record->done(); }, context.runnable(), &context.scheduler())) {
    const RunResult result = Park(context, p->clock, p->timeout_s, false, "event", p->event_id);
    if (result == RunResult::kDone) p->record->waiters.Remove(context.runnable());
    return result;
  }
  EndPark(context, p->clock);
  return RunResult::kDone;
}

void CancelWait(void* payload, device::Runnable* runnable) noexcept {
  auto* p = static_cast<WaitPayload*>(payload);
  p->record->waiters.Remove(runnable);
  p->clock = {};
}

void DestroyWait(void* payload) noexcept { static_cast<WaitPayload*>(payload)->record->Release(); }

constexpr ir::TaskType kRecordTask = {
    .kind = ir::TaskKind::kEventRecord,
    .name = "EVENT_RECORD",
    .run = RunRecord,
    .destroy = DestroyRecord,
    .describe = [](const void* payload,
                   ir::TaskInfo& info) { info.event_id = static_cast<const RecordPayload*>(payload)->event_id; },
    .operands = ir::NoOperands};
constexpr ir::TaskType kWaitTask = {
    .kind = ir::TaskKind::kEventWait,
    .name = "EVENT_WAIT",
    .run = RunWait,
    .destroy = DestroyWait,
    .cancel = CancelWait,
    .describe = [](const void* payload,
                   ir::TaskInfo& info) { info.event_id = static_cast<const WaitPayload*>(payload)->event_id; },
    .operands = ir::NoOperands};

RunResult RunFlagRecord(RunContext&, void* payload) {
  auto* p = static_cast<FlagPayload*>(payload);
  p->flag->waiters.SetAndWake([p] { p->flag->set.store(true, std::memory_order_release); });
  return RunResult::kDone;
}

RunResult RunFlagWait(RunContext& context, void* payload) {
  auto* p = static_cast<FlagPayload*>(payload);
  const auto is_set = [p] { return p->flag->set.load(std::memory_order_acquire); };
  if (!is_set() && p->flag->waiters.AddUnless(is_set, context.runnable(), &context.scheduler())) {
    const RunResult result = Park(context, p->clock, p->timeout_s, false, "event", p->event_id);
    if (result == RunResult::kDone) p->flag->waiters.Remove(context.runnable());
    return result;
  }
  EndPark(context, p->clock);
  return RunResult::kDone;
}

RunResult RunFlagReset(RunContext&, void* payload) {
  static_cast<FlagPayload*>(payload)->flag->set.store(false, std::memory_order_release);
  return RunResult::kDone;
}

void CancelFlagWait(void* payload, device::Runnable* runnable) noexcept {
  auto* p = static_cast<FlagPayload*>(payload);
  p->flag->waiters.Remove(runnable);
  p->clock = {};  // a later replay waits its full time
}

void DestroyFlag(void* payload) noexcept { static_cast<FlagPayload*>(payload)->flag->Release(); }

void DestroyFlagWait(void* payload) noexcept {
  static_cast<FlagPayload*>(payload)->flag->pending_waits.fetch_sub(1, std::memory_order_release);
  DestroyFlag(payload);
}

void DescribeFlag(const void* payload, ir::TaskInfo& info) {
  info.event_id = static_cast<const FlagPayload*>(payload)->event_id;
}

}  // namespace

const ir::TaskType kFlagRecord = {.kind = ir::TaskKind::kEventRecord,
                                  .name = "EVENT_RECORD",
                                  .run = RunFlagRecord,
                                  .destroy = DestroyFlag,
                                  .describe = DescribeFlag,
                                  .operands = ir::NoOperands};
const ir::TaskType kFlagWait = {.kind = ir::TaskKind::kEventWait,
                                .name = "EVENT_WAIT",
                                .run = RunFlagWait,
                                .destroy = DestroyFlagWait,
                                .cancel = CancelFlagWait,
                                .describe = DescribeFlag,
                                .operands = ir::NoOperands};
const ir::TaskType kFlagReset = {.kind = ir::TaskKind::kEventReset,
                                 .name = "EVENT_RESET",
                                 .run = RunFlagReset,
                                 .destroy = DestroyFlag,
                                 .describe = DescribeFlag,
                                 .operands = ir::NoOperands};

std::atomic<uint32_t>& DefaultWaitTimeout() {
  static std::atomic<uint32_t> seconds{0};
  return seconds;
}

EventRecord* EventRecord::Create() {
  if (FaultPoint("event.record")) throw std::bad_alloc();
  RecordPool& pool = Pool();
  {
    MutexLock lock(pool.mutex);
    if (!pool.free.empty()) {
      EventRecord* record = pool.free.back();
      pool.free.pop_back();
      record->references_.store(1, std::memory_order_relaxed);
      record->done_.store(0, std::memory_order_relaxed);
      return record;
    }
  }
  return new EventRecord;
}

void EventRecord::Release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  RecordPool& pool = Pool();
  {
    MutexLock lock(pool.mutex);
    if (pool.free.capacity() == 0) pool.free.reserve(kMaxPooled);
    if (pool.free.size() < kMaxPooled) {
      pool.free.push_back(this);
      return;
    }
  }
  delete this;
}

void EventRecord::Complete(uint64_t timestamp_us) noexcept {
  timestamp_us_ = timestamp_us;
  waiters.SetAndWake([this] { done_.store(1, std::memory_order_seq_cst); });
  if (host_waiters_.load(std::memory_order_seq_cst) != 0) FutexWake(done_, INT_MAX);
}

bool EventRecord::Wait(const Deadline& deadline) noexcept {
  if (done()) return true;
  const WaitingCall waiting;
  const auto spin_until = Clock::now() + device::SpinTime();
  if (device::TakeSpinPermit()) {
    while (!done() && Clock::now() < spin_until) {
      for (int i = 0; i < 32 && !done(); ++i) CpuRelax();
    }
    device::ReturnSpinPermit();
  }
  bool in_time = true;
  while (!done() && in_time) {
    host_waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (done_.load(std::memory_order_seq_cst) == 0) in_time = FutexWait(done_, 0, deadline);
    host_waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  return done();
}

constinit NoDestroy<HandleTable<Event, HandleKind::kEvent>> internal::g_events;

Event::Event(Device& device, uint32_t flags, bool is_ex) : device_(device), flags_(flags), is_ex_(is_ex) {
  if (has_flag_semantics()) flag_ = new EventFlag;
}

Event::~Event() {
  if (latest_ != nullptr) latest_->Release();
  if (flag_ != nullptr) flag_->Release();
  if (shared_ != nullptr) shared_->Release();
}

StatusOr<Event*> Event::Make(Device& device, uint32_t flags, bool is_ex, SharedEventState* shared) {
  const int32_t id = FaultPoint("event") ? -1 : device.event_ids().Take();
  if (id < 0) {
    if (shared != nullptr) shared->Release();
    return device.NoEvent("");
  }
  if ((flags & kEventIpc) != 0 && shared == nullptr) {
    auto made = SharedEventState::Create();
    if (!made.ok()) {
      device.event_ids().Return(id);
      return std::move(made).status();
    }
    shared = *made;
  }
  auto* event = new Event(device, flags, is_ex);
  event->id_ = id;
  event->shared_ = shared;
  event->handle_ = Events().Insert(event);
  if (event->handle_ == nullptr) {
    device.event_ids().Return(id);
    delete event;
    return Error(kNoEventResource, "the process has too many events").Hint("destroy events that are no longer needed");
  }
  return event;
}

StatusOr<Event*> Event::Open(Device& device, const device::ShareKey& key) {
  REPRISE_ASSIGN_OR_RETURN(SharedEventState * shared, SharedEventState::Import(key));
  return Make(device, kEventIpc, true, shared);
}

StatusOr<device::ShareKey> Event::Export() {
  if (shared_ == nullptr) {
    return Error(kInvalidValue,
                 fmt::format("{} was created with flags {:#x}, without ACL_EVENT_IPC", Describe(), flags_))
        .Hint("create the event with aclrtCreateEventExWithFlag(&event, ACL_EVENT_IPC)");
  }
  if (shared_->cell.imported()) {
    return Error(kInvalidValue, fmt::format("{} was opened from another process", Describe()))
        .Hint("pass on the handle that this process received");
  }
  MutexLock lock(captured_mutex);
  if (is_destroyed_)
    return Error(kInvalidHandle, fmt::format("{} was destroyed by another thread meanwhile", Describe()))
        .Hint("destroy an event only when no other thread uses it");
  if (!key_) {
    REPRISE_ASSIGN_OR_RETURN(key_, shared_->cell.Export(device::ShareKind::kEvent, false));
  }
  return *key_;
}

StatusOr<bool> Event::LatestDone(bool fallback) {
  if (shared_ != nullptr) return shared_->Query(id_);
  EventRecord* record = Latest();
  if (record == nullptr) return fallback;
  const bool done = record->done();
  record->Release();
  return done;
}

StatusOr<bool> Event::WaitLatest(const Deadline& deadline) {
  if (shared_ != nullptr) return shared_->Wait(deadline, id_);
  EventRecord* record = Latest();
  if (record == nullptr) return true;
  if (record->done()) [[likely]] {
    record->Release();
    return true;
  }
  if (Status inside = deadline ? Status() : CheckNotBehind(*record); !inside.ok()) {
    record->Release();
    return inside;
  }
  const device::Activity::Wait in_host_function("event", id_);
  // The first look is for those who would wait for ever without a word.
  const Clock::duration patience = StallTime();
  const Clock::time_point now = Clock::now();
  const bool is_patient = patience != Clock::duration::max() && (!deadline || *deadline - now > patience);
  bool done = record->Wait(is_patient ? Deadline(now + patience) : deadline);
  if (!done && is_patient) {
    TellStall(Describe(), device_, nullptr, ThreadId());
    done = record->Wait(deadline);
  }
  record->Release();
  return done;
}

// 507000 when this thread runs a host function that holds up the stream in which the record is queued.
Status Event::CheckNotBehind(const EventRecord& record) const {
  const device::Runnable* const mine = device::Activity::HeldUp();
  if (mine == nullptr) [[likely]]
    return {};
  Status behind;
  Streams().ForEach([&](Stream* stream) {
    if (stream != mine) return;
    const auto records_it = [&](const ir::TaskType& type, const void* payload) {
      return &type == &kRecordTask && static_cast<const RecordPayload*>(payload)->record == &record;
    };
    if (stream->HasQueued(records_it)) {
      behind = stream->CheckNotInside("waits for an event that is recorded behind it in that stream");
    }
  });
  return behind;
}

bool Event::Destroy(Event* event) {
  uint64_t birth = 0;
  if (Events().Erase(event->handle_, &birth) == nullptr) return false;
  event->device_.event_ids().Return(event->id_);
  if (event->shared_ != nullptr) {
    MutexLock lock(event->captured_mutex);
    event->is_destroyed_ = true;
    if (event->key_) device::Withdraw(*event->key_);
  }
  Retire(event, Free, birth, event->shared_ != nullptr);
  return true;
}

std::string Event::Describe() const { return fmt::format("{}event {}", is_ex_ ? "Ex " : "", id_); }

EventRecord* Event::Latest() {
  MutexLock lock(mutex_);
  if (latest_ != nullptr) latest_->Retain();
  return latest_;
}

void Event::Publish(EventRecord* record) {
  if (record != nullptr) record->Retain();
  EventRecord* previous;
  {
    MutexLock lock(mutex_);
    previous = latest_;
    latest_ = record;
  }
  if (previous != nullptr) previous->Release();
}

FlagPayload MakeFlagPayload(Event& event, uint32_t timeout_s) {
  event.flag().Retain();
  return {&event.flag(), nullptr, event.id(), event.flags(), event.handle(), timeout_s, 0, {}};
}

StatusOr<EventRecord*> RecordPoint(Stream& stream) {
  EventRecord* const record = EventRecord::Create();
  record->Retain();
  RecordPayload payload{record, &stream.device(), -1};
  if (Status status = QueueNow(stream, ir::MakeTask(kRecordTask, payload)); !status.ok()) {
    record->Release();
    return status;
  }
  return record;
}

Status WaitForPoint(Stream& stream, EventRecord& record) {
  record.Retain();
  WaitPayload payload{&record, -1, 0, {}};
  return QueueNow(stream, ir::MakeTask(kWaitTask, payload));
}

Status Event::RecordOn(Stream& stream) {
  if (shared_ != nullptr) {
    {
      MutexLock lock(order_mutex);
      REPRISE_RETURN_IF_ERROR(shared_->RecordOn(stream, id_));
    }
    return WaitIfBlocking(stream);
  }
  EventRecord* record;
  try {
    record = EventRecord::Create();
  } catch (const std::bad_alloc&) {
    return Error(kNoEventResource, "no memory for the record of an event").Hint("free memory of the host");
  }
  {
    MutexLock lock(order_mutex);
    // Published before the task is queued: what runs behind the record in the stream must see it.
    EventRecord* const previous = Latest();
    Publish(record);
    RecordPayload payload{record, &device_, id_};
    Status status = QueueNow(stream, ir::MakeTask(kRecordTask, payload));
    if (!status.ok()) Publish(previous);
    if (previous != nullptr) previous->Release();
    REPRISE_RETURN_IF_ERROR(std::move(status));
  }
  REPRISE_RETURN_IF_ERROR(WaitIfBlocking(stream));
  if (has_flag_semantics()) {
    FlagPayload flag = MakeFlagPayload(*this, 0);
    return SubmitNow(stream, ir::MakeTask(kFlagRecord, flag));
  }
  return {};
}

Status Event::WaitOn(Stream& stream, uint32_t timeout_s) {
  if (timeout_s == 0) timeout_s = DefaultWaitTimeout().load();
  if (shared_ != nullptr) {
    {
      MutexLock lock(order_mutex);
      REPRISE_RETURN_IF_ERROR(shared_->WaitOn(stream, id_, timeout_s));
    }
    return WaitIfBlocking(stream);
  }
  if (has_flag_semantics()) {
    FlagPayload payload = MakeFlagPayload(*this, timeout_s);
    payload.flag->pending_waits.fetch_add(1, std::memory_order_relaxed);
    return SubmitNow(stream, ir::MakeTask(kFlagWait, payload));
  }
  EventRecord* record;
  {
    MutexLock lock(order_mutex);
    record = Latest();
  }
  if (record == nullptr) return {};
  if (record->done()) {
    record->Release();
    return {};
  }
  WaitPayload payload{record, id_, timeout_s, {}};
  return SubmitNow(stream, ir::MakeTask(kWaitTask, payload));
}

Status Event::ResetOn(Stream& stream) {
  FlagPayload payload = MakeFlagPayload(*this, 0);
  return SubmitNow(stream, ir::MakeTask(kFlagReset, payload));
}

}  // namespace reprise::runtime
