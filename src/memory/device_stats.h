// SPDX-License-Identifier: Apache-2.0
//
// Counting: what the statistics of a device are made of.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reprise/memory_types.h"

namespace reprise::memory {

inline void Increase(Stat& stat, int64_t by) {
  stat.current += by;
  stat.peak = std::max(stat.peak, stat.current);
  stat.allocated += by;
}
inline void Decrease(Stat& stat, int64_t by) {
  stat.current -= by;
  stat.freed += by;
}
inline void Increase(StatBySize& stat, bool is_small, int64_t by) {
  Increase(stat.all, by);
  Increase(is_small ? stat.small_pool : stat.large_pool, by);
}
inline void Decrease(StatBySize& stat, bool is_small, int64_t by) {
  Decrease(stat.all, by);
  Decrease(is_small ? stat.small_pool : stat.large_pool, by);
}

/// From now on, peaks are those of what comes.
void ResetPeaks(DeviceStats& stats);
/// What only grows begins at 0.
void ResetAccumulated(DeviceStats& stats);

}  // namespace reprise::memory
