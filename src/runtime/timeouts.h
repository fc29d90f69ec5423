// SPDX-License-Identifier: Apache-2.0
//
// How long a kernel may run. The device counts in intervals, so a wish is rounded up to a multiple of one. The number
// is stored and reported; nothing interrupts a kernel of the CPU device.
#pragma once

#include <cstdint>

namespace reprise::runtime {

constexpr uint64_t kExecuteIntervalUs = 4'294'967;  ///< 2^32 ns
constexpr uint64_t kMaxExecuteIntervals = 254;      ///< together 1091 s, the default

/// interval * N with the smallest N in 1..254 that is no shorter than `us`; the longest for 0 and for what is longer.
constexpr uint64_t RoundExecuteTimeout(uint64_t us) {
  const uint64_t longest = kExecuteIntervalUs * kMaxExecuteIntervals;
  if (us == 0 || us >= longest) return longest;
  return (us + kExecuteIntervalUs - 1) / kExecuteIntervalUs * kExecuteIntervalUs;
}

/// Stores the rounded limit for the process and returns it, in microseconds.
uint64_t SetExecuteTimeout(uint64_t us);
uint64_t ExecuteTimeout();

}  // namespace reprise::runtime
