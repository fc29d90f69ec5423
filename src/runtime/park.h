// SPDX-License-Identifier: Apache-2.0
//
// Tasks that wait: with a time limit, and, where no thread can wake them, by polling.
#pragma once

#include <cstdint>
#include <string>

#include "device/scheduler.h"
#include "ir/task.h"

namespace reprise::runtime {

/// The clock of one wait. Lives in a payload, which is used again at the next replay: every way out of the wait leaves
/// it as it was at the beginning.
struct ParkClock {
  int64_t deadline_ns = 0;  ///< 0: the wait has not begun
  uint32_t poll_us = 0;     ///< 0: has not looked yet
  uint32_t looks = 0;       ///< so often
};

/// Parks the task until it is woken, at most `timeout_s` seconds after the first call (0 = for ever). With `polls`,
/// also wakes it to look again, first soon, then more seldom. kDone when the time is over: the task has then failed
/// with 507047, and the caller must take the runnable off its list.
ir::RunResult Park(device::RunContext& context, ParkClock& clock, uint32_t timeout_s, bool polls, const char* what,
                   int64_t id);

/// Whether a wait that polls should check this time that the process it waits for still runs: first after some
/// milliseconds, then some times in a second.
bool LooksForProcess(const ParkClock& clock);

/// 507022 for a wait that no process is left to satisfy. `role` says what the process was to do.
Status ProcessHasEnded(const char* what, int64_t id, const char* role, int32_t pid);

/// The wait is over: no timer is left.
void EndPark(device::RunContext& context, ParkClock& clock);

}  // namespace reprise::runtime
