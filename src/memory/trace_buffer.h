// SPDX-License-Identifier: Apache-2.0
//
// The last events of a device's memory, up to a number that the program chooses.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "reprise/memory_types.h"

namespace reprise::memory {

/// Threads: under the lock of its device.
class TraceBuffer {
 public:
  /// Forgets what was recorded; 0 switches off. `skipped`: a bit for each action that is not kept.
  void Restart(uint64_t entries, uint32_t skipped) {
    limit_ = entries;
    skipped_ = skipped;
    entries_ = {};
    oldest_ = 0;
  }
  bool is_on() const { return limit_ != 0; }
  bool Keeps(TraceAction action) const { return is_on() && (skipped_ >> static_cast<uint32_t>(action) & 1) == 0; }

  void Add(TraceEntry entry) {
    entry.time_us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    if (entries_.size() < limit_) {
      entries_.push_back(std::move(entry));
      return;
    }
    entries_[oldest_] = std::move(entry);
    oldest_ = (oldest_ + 1) % entries_.size();
  }

  /// Oldest first.
  std::vector<TraceEntry> Entries() const {
    std::vector<TraceEntry> ordered(entries_.begin() + static_cast<ptrdiff_t>(oldest_), entries_.end());
    ordered.insert(ordered.end(), entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(oldest_));
    return ordered;
  }

 private:
  uint64_t limit_ = 0;
  uint32_t skipped_ = 0;
  std::vector<TraceEntry> entries_;
  size_t oldest_ = 0;
};

}  // namespace reprise::memory
