// SPDX-License-Identifier: Apache-2.0
//
// Device: one CPU device of the process, with its workers, its limits and its primary context.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/scheduler.h"

namespace reprise::runtime {

class Context;

/// Small integers, unique while they are in use, lowest free first.
///
/// Threads: thread-safe.
class IdPool {
 public:
  explicit IdPool(int64_t limit) : limit_(limit) {}
  /// -1 when all are taken.
  int32_t Take();
  void Return(int32_t id);
  int64_t available() const;
  int64_t limit() const { return limit_; }
  void set_limit(int64_t limit) { limit_ = limit; }

 private:
  mutable Mutex mutex_;
  std::atomic<int64_t> limit_;
  std::set<int32_t> returned_ REPRISE_GUARDED_BY(mutex_);
  int32_t next_ REPRISE_GUARDED_BY(mutex_) = 0;
  int64_t taken_ REPRISE_GUARDED_BY(mutex_) = 0;
};

/// Which graphs hold internal streams and events of a device; for the message when the device has none left.
///
/// Threads: thread-safe.
class Holdings {
 public:
  struct Holder {
    std::string name;  ///< guarded by the mutex of the Holdings
    std::atomic<uint32_t> streams{0};
    std::atomic<uint32_t> events{0};
  };
  using Kind = std::atomic<uint32_t> Holder::*;

  Holder* Enter(std::string name);
  void Rename(Holder* holder, std::string name);
  void Leave(Holder* holder);
  /// "12 by the program; 512 by model 7 "decode", 256 by model 8 and 40 by 3 more graphs" of `taken`.
  std::string Describe(Kind kind, int64_t taken) const;

 private:
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Holder>> holders_ REPRISE_GUARDED_BY(mutex_);
};

/// The physical devices that a list like "0,2" makes visible, of so many: ascending, up to the first bad entry.
std::vector<int> ParseVisibleDevices(std::string_view list, int physical);

/// Core budget of a process, a stream or a thread; 0 = not set.
struct CoreLimits {
  uint32_t cores[2] = {0, 0};  ///< indexed by aclrtDevResLimitType: cube, vector
};

/// Threads: thread-safe.
class Device {
 public:
  Device(int id, int physical_id);

  int id() const { return id_; }  ///< user id: position in ASCEND_RT_VISIBLE_DEVICES
  int physical_id() const { return physical_id_; }
  device::Scheduler& scheduler() { return scheduler_; }
  IdPool& stream_ids() { return stream_ids_; }
  IdPool& event_ids() { return event_ids_; }
  Holdings& holdings() { return holdings_; }
  /// 207008 and 207007, naming who holds the streams (events). `wanted` completes "no stream left".
  Status NoStream(const std::string& wanted) const;
  Status NoEvent(const std::string& wanted) const;

  /// Microseconds since the device was first touched; the clock of event timestamps.
  uint64_t NowUs() const;

  /// Primary context: made by the first Retain, destroyed when the count drops to 0.
  StatusOr<Context*> Retain();
  /// The primary context for a caller that keeps no count: the existing one, or a new one, which then has the count 1.
  StatusOr<Context*> Open();
  Status Release();
  Status ReleaseForce();
  bool primary_active() const;

  /// Held while a context of the device is made, and while the memory of a device without contexts is freed, so that no
  /// thread gets memory in between that would be freed at once. Rank: below the primary context's lock.
  Mutex contexts_mutex;

  Mutex limits_mutex;
  CoreLimits limits REPRISE_GUARDED_BY(limits_mutex);

 private:
  Status DestroyPrimary(UniqueLock<Mutex>& lock) REPRISE_REQUIRES(primary_mutex_) REPRISE_NOT_ANALYSED;

  const int id_;
  const int physical_id_;
  const Clock::time_point start_;
  device::Scheduler scheduler_;
  IdPool stream_ids_;
  IdPool event_ids_;
  Holdings holdings_;

  mutable Mutex primary_mutex_;
  Context* primary_ REPRISE_GUARDED_BY(primary_mutex_) = nullptr;
  uint64_t primary_count_ REPRISE_GUARDED_BY(primary_mutex_) = 0;
};

/// `hook` is called when the last context of a device has gone, just before its memory is freed as a whole. For layers
/// that keep device memory of their own; `hook` stays for the rest of the process.
void AtMemoryFreed(void (*hook)(int device));

/// The devices of the process, as REPRISE_DEVICES and ASCEND_RT_VISIBLE_DEVICES say.
const std::vector<std::unique_ptr<Device>>& Devices();

/// 107001 with the valid range when there is none.
StatusOr<Device*> FindDevice(int64_t user_id);

/// Hardware cores that the configured profile reports.
uint32_t HardwareCores(int type);

/// What REPRISE_MATRIX_UNIT says goes to the kernels: before the first operator is prepared, since sizes of scratch
/// memory depend on it. Costs nothing from the second time on.
void ApplyMatrixUnitSetting();

}  // namespace reprise::runtime
