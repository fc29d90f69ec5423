// SPDX-License-Identifier: Apache-2.0
//
// How a runnable ends while a wake-up for it is under way, and the scheduler while its monitor is busy.
#include <gtest/gtest.h>

#include "scenario.h"
// Behind the shim:
#include "expect.h"

namespace interleave {
namespace {

using reprise::device::RunContext;
using Outcome = reprise::device::Runnable::Outcome;

// A runnable waits for a condition. It is woken for another reason, finds that the condition holds, finishes and goes,
// while the thread that has set the condition has yet to wake it, or is about to say that it has.
void RetireMeetsTheSetter(bool retires) {
  Device device(1);
  reprise::device::WaitList list;
  std::atomic<bool> holds{false};
  Flag parked, passed;
  Kept<Piece> piece([&](RunContext& context) {
    const auto ready = [&] { return holds.load(); };
    if (!ready() && list.AddUnless(ready, context.runnable(), &context.scheduler())) {
      parked.Set();
      return Outcome::kIdle;
    }
    passed.Set();
    return Outcome::kIdle;
  });
  {
    Straight straight;
    device->Wake(*piece);
    parked.Wait();
    Settle();
  }
  std::thread setter([&] { list.SetAndWake([&] { holds.store(true); }); });
  device->Wake(*piece);
  passed.Wait();
  if (retires) device->Retire(*piece);
  piece.End();
  Straight straight;
  setter.join();
}

TEST(Retire, WaitsForAWakeUpThatIsUnderWay) {
  ExpectSound("", {.preemptions = 2}, [] { RetireMeetsTheSetter(true); });
}
TEST(Retire, MutantThatGoesAtOnce) {
  ExpectFound(
      "", {}, [] { RetireMeetsTheSetter(false); }, kGone);
}

// The scheduler ends while the monitor still looks at a timer that was set and cancelled: no timer comes, so the last
// that wakes it is the destructor.
void EndsWhileTheMonitorLooks() {
  Device device(1);
  Piece piece([](auto&) { return Outcome::kIdle; });
  device->WakeAt(piece, reprise::Clock::now() + std::chrono::hours(1));
  device->Retire(piece);
  device.Destroy();
}

TEST(Monitor, HearsThatTheSchedulerEnds) { ExpectSound("", {.preemptions = 2}, EndsWhileTheMonitorLooks); }
TEST(Monitor, MutantMachineThatLosesTheLastWakeUpCall) {
  ExpectFound("", {.lose_wake = 3}, EndsWhileTheMonitorLooks, kDeadlock);
}

}  // namespace
}  // namespace interleave
