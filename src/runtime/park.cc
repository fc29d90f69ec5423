// SPDX-License-Identifier: Apache-2.0
#include "runtime/park.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace reprise::runtime {
namespace {

constexpr uint32_t kFirstPollUs = 20;
constexpr uint32_t kLastPollUs = 1000;
constexpr uint32_t kFirstParkLook = 9;
constexpr uint32_t kLooksBetween = 128;

}  // namespace

ir::RunResult Park(device::RunContext& context, ParkClock& clock, uint32_t timeout_s, bool polls, const char* what,
                   int64_t id) {
  if (timeout_s == 0 && !polls) return ir::RunResult::kParked;
  const int64_t now = Clock::now().time_since_epoch().count();
  int64_t wake_ns = INT64_MAX;
  if (timeout_s != 0) {
    if (clock.deadline_ns == 0) clock.deadline_ns = now + int64_t{timeout_s} * 1'000'000'000;
    if (now >= clock.deadline_ns) {
      clock = {};
      context.Fail(
          Error(kEventSyncTimeout, fmt::format("a wait for {} {} was not satisfied within {} s", what, id, timeout_s))
              .Hint("look for the record that does not come, or raise the limit of the wait (its timeout, or "
                    "aclrtSetOpWaitTimeout)"));
      return ir::RunResult::kDone;
    }
    wake_ns = clock.deadline_ns;
  }
  if (polls) {
    clock.poll_us = clock.poll_us == 0 ? kFirstPollUs : std::min(clock.poll_us * 2, kLastPollUs);
    ++clock.looks;
    wake_ns = std::min(wake_ns, now + int64_t{clock.poll_us} * 1000);
  }
  context.scheduler().WakeAt(*context.runnable(), Clock::time_point(std::chrono::nanoseconds(wake_ns)));
  return ir::RunResult::kParked;
}

bool LooksForProcess(const ParkClock& clock) { return clock.looks % kLooksBetween == kFirstParkLook; }

Status ProcessHasEnded(const char* what, int64_t id, const char* role, int32_t pid) {
  return Error(kIpcError,
               fmt::format("{} {} will not be recorded: process {}, which {}, has ended", what, id, pid, role))
      .Culprit(fmt::format("process {}", pid))
      .Hint("look why that process ended; then make or import the object anew");
}

void EndPark(device::RunContext& context, ParkClock& clock) {
  if (clock.deadline_ns == 0 && clock.poll_us == 0) return;
  context.scheduler().CancelTimer(*context.runnable());
  clock = {};
}

}  // namespace reprise::runtime
