// SPDX-License-Identifier: Apache-2.0
//
// Notifies: semaphores between streams, and between processes. A notify is one bit that a record sets and a wait takes
// away; a counting notify holds a 32-bit number.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "device/scheduler.h"
#include "device/shared_cell.h"
#include "runtime/objects.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// What the tasks of a notify refer to; outlives the notify while they do.
struct NotifyState {
  std::atomic<uint32_t> references{1};
  device::CellUse cell;
  std::atomic<bool> shared{false};  ///< other processes may set the bit: waits have to look now and then
  device::WaitList waiters;

  void Retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

/// One bit. Threads: thread-safe; one that is destroyed while another call uses it stays in memory until
/// that has ended.
class Notify {
 public:
  /// 207009 when the device has none left.
  static StatusOr<Notify*> Create(Device& device);
  static StatusOr<Notify*> Import(const device::ShareKey& key);
  /// False when another thread was faster.
  static bool Destroy(Notify* notify);

  void* handle() const { return handle_; }
  int32_t id() const { return state_->cell.id(); }
  std::string Describe() const;

  /// Queued, or captured.
  Status RecordOn(Stream& stream);
  Status WaitOn(Stream& stream, uint32_t timeout_s);
  /// Clears the bit, from the host.
  void Reset();

  /// The key under which other processes find the notify: equal at each call with equal `checks_pid`.
  StatusOr<device::ShareKey> Export(bool checks_pid);
  Status AllowTakers(const int32_t* pids, size_t count);

 private:
  Notify() = default;
  static void Free(void* notify);

  static StatusOr<Notify*> Make(device::CellUse cell);

  void* handle_ = nullptr;
  NotifyState* state_ = nullptr;
  Mutex mutex_;
  std::array<std::optional<device::ShareKey>, 2> keys_ REPRISE_GUARDED_BY(mutex_);  // without and with check
  bool is_destroyed_ REPRISE_GUARDED_BY(mutex_) = false;                            // nobody may export it any more
};

HandleTable<Notify, HandleKind::kNotify>& Notifies();

/// What aclrtCntNotifyRecord does with the count; the numbers are those of aclrtCntNotifyRecordMode.
enum class CountChange : uint32_t { kSet = 0, kAdd = 1, kOr = 2, kAnd = 4, kReset = 0x100 };
/// What aclrtCntNotifyWaitWithTimeout waits for; the numbers are those of aclrtCntNotifyWaitMode.
enum class CountCompare : uint32_t { kLess = 0, kEqual, kGreater, kGreaterEqual, kEqualMasked };

struct CountState {
  std::atomic<uint32_t> references{1};
  std::atomic<uint32_t> count{0};
  device::WaitList waiters;

  void Retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

/// A number. Threads: as Notify.
class CountNotify {
 public:
  static StatusOr<CountNotify*> Create();
  /// False when another thread was faster.
  static bool Destroy(CountNotify* notify);

  void* handle() const { return handle_; }
  int32_t id() const { return id_; }

  Status ChangeOn(Stream& stream, CountChange change, uint32_t value);
  Status WaitOn(Stream& stream, CountCompare compare, uint32_t value, uint32_t timeout_s, bool clears);

 private:
  CountNotify() = default;
  static void Free(void* notify);

  void* handle_ = nullptr;
  int32_t id_ = -1;
  CountState* state_ = nullptr;
};

HandleTable<CountNotify, HandleKind::kCountNotify>& CountNotifies();

}  // namespace reprise::runtime
