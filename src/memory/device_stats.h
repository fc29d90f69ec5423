// SPDX-License-Identifier: Apache-2.0
//
// Counting: what the statistics of a device are made of. An allocation from the cache moves five quantities, so only
// what cannot be derived is kept: by size what is there and what came, and of everything together the peak.
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

/// As DeviceStats. Threads: under the lock of its device.
struct DeviceCounters {
  CounterBySize allocation, segment, active, inactive_split;
  CounterBySize allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Counter oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_oom_rejections = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t max_split_size = -1;

  DeviceStats Show() const;
  /// From now on, peaks are those of what comes.
  void ResetPeaks();
  /// What only grows begins at 0.
  void ResetAccumulated();
};

}  // namespace reprise::memory
