// SPDX-License-Identifier: Apache-2.0
//
// Counters behind the statistics of a device. An allocation from the cache changes five quantities, so only those that
// cannot be derived are kept: current and accumulated amounts by size, and the peak of the total.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reprise/memory_types.h"

namespace reprise::memory {

/// Threads: under the lock of its device.
class Counter {
 public:
  void Increase(int64_t by) {
    current_ += by;
    came_ += by;
    peak_ = std::max(peak_, current_);
  }
  void Decrease(int64_t by) { current_ -= by; }
  /// As much has come and gone unseen.
  void Pass(int64_t by) { came_ += by; }
  bool WouldRaisePeak(int64_t by) const { return current_ + by > peak_; }
  int64_t current() const { return current_; }
  Stat Show() const { return {current_, peak_, came_, came_ - current_ + base_}; }
  void ResetPeak() { peak_ = current_; }
  void ResetAccumulated() {
    came_ = 0;
    base_ = current_;
  }

 private:
  int64_t current_ = 0, peak_ = 0, came_ = 0;
  int64_t base_ = 0;  ///< what was there when counting began anew
};

class CounterBySize {
 public:
  void Increase(bool is_small, int64_t by) {
    of_[is_small].Increase(by);
    peak_ = std::max(peak_, current());
  }
  void Decrease(bool is_small, int64_t by) { of_[is_small].Decrease(by); }
  void Pass(bool is_small, int64_t by) { of_[is_small].Pass(by); }
  bool WouldRaisePeak(bool is_small, int64_t by) const {
    return of_[is_small].WouldRaisePeak(by) || current() + by > peak_;
  }
  int64_t current(bool is_small) const { return of_[is_small].current(); }
  int64_t current() const { return of_[false].current() + of_[true].current(); }
  StatBySize Show() const {
    StatBySize by_size{{}, of_[true].Show(), of_[false].Show()};
    by_size.all = {current(), peak_, by_size.small_pool.allocated + by_size.large_pool.allocated,
                   by_size.small_pool.freed + by_size.large_pool.freed};
    return by_size;
  }
  void ResetPeak() {
    for (Counter& counter : of_) counter.ResetPeak();
    peak_ = current();
  }
  void ResetAccumulated() {
    for (Counter& counter : of_) counter.ResetAccumulated();
  }

 private:
  Counter of_[2];  ///< large, small
  int64_t peak_ = 0;
};

/// Counts blocks that are held or wait. Another counter has the held ones, so there is nothing to do as long as nothing
/// waits.
class ActiveCounter {
 public:
  /// After `held` has increased.
  void Note(const CounterBySize& held, bool is_small) {
    if (waiting_[0] + waiting_[1] == 0) return;
    peak_by_size_[is_small] = std::max(peak_by_size_[is_small], held.current(is_small) + waiting_[is_small]);
    peak_ = std::max(peak_, held.current() + waiting_[0] + waiting_[1]);
  }
  /// After as much has left `held`.
  void Wait(bool is_small, int64_t by) { waiting_[is_small] += by; }
  void EndWait(bool is_small, int64_t by) { waiting_[is_small] -= by; }
  StatBySize Show(const CounterBySize& held) const {
    StatBySize shown = held.Show();
    Show(shown.small_pool, waiting_[1], waiting_before_[1], peak_by_size_[1]);
    Show(shown.large_pool, waiting_[0], waiting_before_[0], peak_by_size_[0]);
    Show(shown.all, waiting_[0] + waiting_[1], waiting_before_[0] + waiting_before_[1], peak_);
    return shown;
  }
  void ResetPeak(const CounterBySize& held) {
    peak_ = held.current() + waiting_[0] + waiting_[1];
    for (bool is_small : {false, true}) peak_by_size_[is_small] = held.current(is_small) + waiting_[is_small];
  }
  void ResetAccumulated() {
    for (bool is_small : {false, true}) waiting_before_[is_small] = waiting_[is_small];
  }

 private:
  static void Show(Stat& stat, int64_t waiting, int64_t before, int64_t peak) {
    stat.current += waiting;
    stat.freed += before - waiting;
    stat.peak = std::max(stat.peak, peak);
  }

  int64_t waiting_[2] = {0, 0};         ///< large, small
  int64_t waiting_before_[2] = {0, 0};  ///< when counting began anew
  int64_t peak_by_size_[2] = {0, 0};
  int64_t peak_ = 0;
};

/// As DeviceStats. Threads: under the lock of its device.
struct DeviceCounters {
  CounterBySize allocation, segment, inactive_split;
  CounterBySize allocated_bytes, reserved_bytes, inactive_split_bytes, requested_bytes;
  ActiveCounter active, active_bytes;  ///< beside allocation and allocated_bytes
  Counter oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_oom_rejections = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t max_split_size = -1;

  /// Whether another block would be more than there ever was, as long as none waits.
  bool WouldRaisePeak(bool is_small, int64_t bytes, int64_t requested) const {
    return allocation.WouldRaisePeak(is_small, 1) || allocated_bytes.WouldRaisePeak(is_small, bytes) ||
           requested_bytes.WouldRaisePeak(is_small, requested);
  }
  DeviceStats Show() const;
  /// Peaks begin at the current values.
  void ResetPeaks();
  /// Accumulated values begin at 0.
  void ResetAccumulated();
};

}  // namespace reprise::memory
