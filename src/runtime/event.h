// SPDX-License-Identifier: Apache-2.0
//
// Event: a point in a stream's work that others can wait for.
//
// Two families behave differently, as on the device:
//   Ex (aclrtCreateEventExWithFlag): each record makes a new EventRecord; a wait binds to the record that is current at
//       the call, and later records do not move it.
//   classic with ACL_EVENT_SYNC or ACL_EVENT_EXTERNAL (aclrtCreateEventWithFlag): a flag in device memory that a record
//       sets and only a reset clears; a wait holds its stream until the flag is set, whoever sets it.
//   classic made by aclrtCreateEvent, or without SYNC: as Ex for queries and elapsed time.
// Ex events with ACL_EVENT_IPC count their records in memory that several processes see; see shared_event.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/futex.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/scheduler.h"
#include "runtime/objects.h"
#include "runtime/park.h"
#include "runtime/shared_event.h"
#include "runtime/stream.h"

namespace reprise::runtime {

// Creation flags; the numbers are those of ACL_EVENT_*.
constexpr uint32_t kEventSync = 0x1;
constexpr uint32_t kEventProgress = 0x2;
constexpr uint32_t kEventPlain = 0x4;  ///< internal bit that aclrtCreateEvent adds
constexpr uint32_t kEventTimeLine = 0x8;
constexpr uint32_t kEventDeviceUseOnly = 0x10;
constexpr uint32_t kEventExternal = 0x20;
constexpr uint32_t kEventIpc = 0x40;

/// One execution of a record. Shared by the event, the task that completes it and the waits that are bound to it.
///
/// Threads: thread-safe.
class EventRecord {
 public:
  static EventRecord* Create();  ///< one reference, the caller's; throws std::bad_alloc
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept;

  bool done() const noexcept { return done_.load(std::memory_order_acquire) != 0; }
  uint64_t timestamp_us() const noexcept { return timestamp_us_; }
  void Complete(uint64_t timestamp_us) noexcept;
  /// False when the deadline passed.
  bool Wait(const Deadline& deadline) noexcept;

  device::WaitList waiters;

 private:
  EventRecord() = default;
  std::atomic<uint32_t> references_{1};
  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> host_waiters_{0};
  uint64_t timestamp_us_ = 0;
};

/// The settable flag of a classic event; outlives the event while tasks refer to it.
struct EventFlag {
  std::atomic<uint32_t> references{1};
  std::atomic<bool> set{false};
  std::atomic<uint32_t> pending_waits{0};
  device::WaitList waiters;

  void Retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

/// Threads: thread-safe. An event that is destroyed while another call uses it stays in memory until that has ended.
class Event {
 public:
  static StatusOr<Event*> Create(Device& device, uint32_t flags, bool is_ex) {
    return Make(device, flags, is_ex, nullptr);
  }
  /// False when another thread was faster.
  static bool Destroy(Event* event);

  void* handle() const { return handle_; }
  uint32_t flags() const { return flags_; }
  bool is_ex() const { return is_ex_; }
  int32_t id() const { return id_; }
  Device& device() const { return device_; }
  bool has_flag_semantics() const { return !is_ex_ && (flags_ & (kEventSync | kEventExternal)) != 0; }
  std::string Describe() const;

  /// Queue a record, a wait or a reset on the stream, past any capture.
  Status RecordOn(Stream& stream);
  Status WaitOn(Stream& stream, uint32_t timeout_s);
  Status ResetOn(Stream& stream);

  /// Event of another process, or of this one, that was made for several processes.
  static StatusOr<Event*> Open(Device& device, const device::ShareKey& key);
  /// The key for Open, equal at each call. Only for events with kEventIpc.
  StatusOr<device::ShareKey> Export();

  /// Whether the newest record has run; `fallback` when there is none. 507022 when it was that of a process which has
  /// ended before.
  StatusOr<bool> LatestDone(bool fallback);
  /// Waits for the newest record; false when the deadline passed; 507022 as above.
  StatusOr<bool> WaitLatest(const Deadline& deadline);

  /// The newest record of this process, with a reference for the caller; null when there is none.
  EventRecord* Latest();
  /// Makes `record` the newest (takes its own reference); null: there is none. With order_mutex locked.
  void Publish(EventRecord* record);

  /// Held from Publish until the task that records is queued, and while the record that a stream shall wait for is
  /// looked up: otherwise a wait that another thread queues could lie before the record that it waits for. Of several
  /// events, the one with the lower address is locked first; before Stream's locks.
  std::mutex order_mutex;

  EventFlag& flag() { return *flag_; }

  /// Which capture recorded it last. Guarded by the capture_mutex of that capture's context; see capture::Session.
  struct Captured {
    uint64_t session = 0;  ///< 0: never
    uint32_t node = 0;
  };
  Mutex captured_mutex;
  Captured captured REPRISE_GUARDED_BY(captured_mutex);
  /// First use fixes whether records (waits) are default or external; -1: not used yet.
  std::atomic<int> record_sort{-1};
  std::atomic<int> wait_sort{-1};

 private:
  Event(Device& device, uint32_t flags, bool is_ex);
  Status CheckNotBehind(const EventRecord& record) const;
  /// Takes a reference of `shared` over, also when it fails.
  static StatusOr<Event*> Make(Device& device, uint32_t flags, bool is_ex, SharedEventState* shared);
  ~Event();
  static void Free(void* event) { delete static_cast<Event*>(event); }

  Device& device_;
  const uint32_t flags_;
  const bool is_ex_;
  void* handle_ = nullptr;
  int32_t id_ = -1;
  SpinLock mutex_;
  EventRecord* latest_ REPRISE_GUARDED_BY(mutex_) = nullptr;
  EventFlag* flag_ = nullptr;
  SharedEventState* shared_ = nullptr;  ///< with kEventIpc, instead of records
  std::optional<device::ShareKey> key_ REPRISE_GUARDED_BY(captured_mutex);
  bool is_destroyed_ REPRISE_GUARDED_BY(captured_mutex) = false;  // nobody may export it any more
};

/// A record at the end of what the stream has to do now, without an event; one reference for the caller.
StatusOr<EventRecord*> RecordPoint(Stream& stream);
/// Lets the stream wait for the record. Neither function waits on the host, not even with ASCEND_LAUNCH_BLOCKING=1:
/// callers may hold locks.
Status WaitForPoint(Stream& stream, EventRecord& record);

/// Task types and payloads that the capture layer puts into graphs.
struct FlagPayload {
  EventFlag* flag;
  EventRecord* record;  ///< of this execution; null in a graph
  int32_t event_id;
  uint32_t event_flags;
  void* event_handle;
  uint32_t timeout_s;
  uint32_t pad = 0;
  ParkClock clock;
};
extern const ir::TaskType kFlagRecord;
extern const ir::TaskType kFlagWait;
extern const ir::TaskType kFlagReset;
/// Fills a payload with a reference to the event's flag (released by the task).
FlagPayload MakeFlagPayload(Event& event, uint32_t timeout_s);

/// Seconds that later waits may take when they name no timeout themselves; 0 = for ever (aclrtSetOpWaitTimeout).
std::atomic<uint32_t>& DefaultWaitTimeout();

}  // namespace reprise::runtime
