// SPDX-License-Identifier: Apache-2.0
#include "exec/lane_choice.h"

#include <algorithm>
#include <utility>

namespace reprise::exec {
namespace {

// So many in a row; one may have met anything.
constexpr uint32_t kSlowRuns = 2;
// Then so many run on one thread, and each time that lanes are still too slow, twice as many.
constexpr uint32_t kFewestSerial = 16;
constexpr uint32_t kMostSerial = 128;

}  // namespace

void LaneChoice::Note(uint64_t ns) noexcept {
  if (serial_left_ != 0) {
    least_ns_ = least_ns_ == 0 ? ns : std::min(least_ns_, ns);
    if (--serial_left_ == 0) serial_ns_ = std::exchange(least_ns_, 0);
    return;
  }
  if (ns <= serial_ns_ + serial_ns_ / 4 + kGraceNs) {
    slow_ = serial_runs_ = 0;
    return;
  }
  if (++slow_ < kSlowRuns) return;
  slow_ = 0;
  serial_runs_ = std::clamp(2 * serial_runs_, kFewestSerial, kMostSerial);
  serial_left_ = serial_runs_;
}

}  // namespace reprise::exec
