// SPDX-License-Identifier: Apache-2.0
//
// Replays of small graphs under every interleaving: lanes that publish and wait, executions that take turns, and the
// end, after which everything may go.
#include <gtest/gtest.h>

#include "graphs.h"
// Behind the shim:
#include "expect.h"

namespace interleave {
namespace {

// origin: a, fork, b, join, d; the forked lane: c.
enum class Lanes { kCaptured, kLaidOut, kOffered, kSerial };
void ForkAndJoin(int workers, bool has_join, bool helps, int times, Lanes lanes = Lanes::kCaptured) {
  Device device(workers);
  SmallGraph graph(2);
  graph.Letter(0, 'a');
  const ir::NodeId fork = graph.Record(0);
  graph.Wait(1, fork);
  graph.Letter(1, 'c');
  const ir::NodeId join = graph.Record(1);
  graph.Letter(0, 'b');
  if (has_join) graph.Wait(0, join);
  graph.Letter(0, 'd');
  {
    std::unique_ptr<Replay> replay;
    {
      Straight straight;
      switch (lanes) {
        case Lanes::kCaptured: replay = std::make_unique<Replay>(graph.Compile(), *device); break;
        case Lanes::kLaidOut: replay = std::make_unique<Replay>(graph.LayOut(), *device); break;
        case Lanes::kSerial: {
          replay = std::make_unique<Replay>(graph.LayOut(), *device);
          reprise::exec::LaneChoice too_slow(reprise::exec::LaneChoice::kGraceNs);
          while (!too_slow.is_serial()) too_slow.Note(UINT64_MAX);
          replay->SetLaneChoice(too_slow);
          break;
        }
        case Lanes::kOffered:
          replay = std::make_unique<Replay>(graph.graph(), *device);
          INTERLEAVE_CHECK(replay->plan().lanes().size() == 2);
          break;
      }
    }
    Kept<Driver> driver(*replay, times);
    device->Wake(*driver);
    if (helps) {
      device->TryRun(*driver);
      device->TryRunPartOf(*driver);
    }
    driver->done.Wait();
    device->Retire(*driver);
    driver.End();
    replay.reset();
  }
  INTERLEAVE_CHECK(graph.Letters().size() == static_cast<size_t>(4 * times));
  if (times == 1) {
    INTERLEAVE_CHECK(graph.Ordered('a', 'b'));
    INTERLEAVE_CHECK(graph.Ordered('a', 'c'));
    INTERLEAVE_CHECK(graph.Ordered('c', 'd'));
  }
}

TEST(TwoLanes, ForkAndJoin) {
  ExpectSound("", {.preemptions = 2}, [] { ForkAndJoin(1, true, false, 1); });
  ExpectSound("/helps", {.preemptions = 2}, [] { ForkAndJoin(1, true, true, 1); });
  ExpectSound("/two_workers", {.preemptions = 2}, [] { ForkAndJoin(2, true, false, 1); });
  ExpectSound("/spins", {.preemptions = 1, .spin_us = 1}, [] { ForkAndJoin(2, true, true, 1); });
}
// Somebody ends the execution while it runs: whatever has not begun is skipped, everybody is let go, and the replay can
// run again or go.
enum class End { kAbort, kAbandon, kNothing };
void EndEarly(End end) {
  Device device(1);
  SmallGraph graph(2);
  const ir::NodeId fork = graph.Record(0);
  graph.Wait(1, fork);
  graph.Letter(1, 'c');
  const ir::NodeId join = graph.Record(1);
  graph.Wait(0, join);
  graph.Letter(0, 'd');
  std::unique_ptr<Replay> replay;
  {
    Straight straight;
    replay = std::make_unique<Replay>(graph.Compile(), *device);
  }
  Kept<Driver> driver(*replay, 1);
  device->Wake(*driver);
  bool told = false;
  switch (end) {
    case End::kAbort: told = replay->Abort(reprise::Error(507000, "as asked")); break;
    case End::kAbandon:
      driver->drop.store(true);
      device->Wake(*driver);
      break;
    case End::kNothing: break;
  }
  driver->done.Wait();
  device->Retire(*driver);
  INTERLEAVE_CHECK(!replay->running());
  // An execution that ends just then may still end well.
  INTERLEAVE_CHECK(driver->failure == 0 || (told && driver->failure == 507000));
  const std::string letters = graph.Letters();
  INTERLEAVE_CHECK(letters == "cd" || (end != End::kNothing && (letters.empty() || letters == "c")));
  INTERLEAVE_CHECK(letters == "cd" || end == End::kAbandon || driver->failure != 0);
  driver.End();
  {
    Straight straight;
    Kept<Driver> again(*replay, 1);
    device->Wake(*again);
    again->done.Wait();
    device->Retire(*again);
    INTERLEAVE_CHECK(again->failure == 0);
    INTERLEAVE_CHECK(graph.Letters() == letters + "cd");
  }
  replay.reset();
}

TEST(TwoLanes, EndEarly) {
  ExpectSound("/by_abort", {.preemptions = 2}, [] { EndEarly(End::kAbort); });
  ExpectSound("/abandoned", {.preemptions = 2}, [] { EndEarly(End::kAbandon); });
  ExpectSound("/never", {.preemptions = 2}, [] { EndEarly(End::kNothing); });
}
TEST(TwoLanes, Twice) {
  ExpectSound("", {.preemptions = 2}, [] { ForkAndJoin(1, true, true, 2); });
}
TEST(ExecutionLanes, ForkAndJoin) {
  ExpectSound("", {.preemptions = 2}, [] { ForkAndJoin(1, true, false, 1, Lanes::kLaidOut); });
  ExpectSound("/helps", {.preemptions = 2}, [] { ForkAndJoin(1, true, true, 1, Lanes::kLaidOut); });
  ExpectSound("/two_workers", {.preemptions = 2}, [] { ForkAndJoin(2, true, false, 1, Lanes::kLaidOut); });
  ExpectSound("/spins", {.preemptions = 1, .spin_us = 1}, [] { ForkAndJoin(2, true, true, 1, Lanes::kLaidOut); });
  ExpectSound("/twice", {.preemptions = 2}, [] { ForkAndJoin(1, true, true, 2, Lanes::kLaidOut); });
}
// Lanes that nobody is woken for are run by whoever waits for them.
TEST(ExecutionLanes, Offered) {
  ExpectSound("", {.preemptions = 2}, [] { ForkAndJoin(2, true, false, 1, Lanes::kOffered); });
  ExpectSound("/helps", {.preemptions = 1}, [] { ForkAndJoin(2, true, true, 1, Lanes::kOffered); });
  ExpectSound("/learns", {.preemptions = 1}, [] { ForkAndJoin(2, true, false, 4, Lanes::kOffered); });
}
// One thread runs both, whoever else is about.
TEST(ExecutionLanes, Serial) {
  ExpectSound("", {.preemptions = 2}, [] { ForkAndJoin(2, true, false, 1, Lanes::kSerial); });
  ExpectSound("/helps", {.preemptions = 1}, [] { ForkAndJoin(1, true, true, 2, Lanes::kSerial); });
}
TEST(ExecutionLanes, MutantWithoutAJoin) {
  ExpectFound(
      "", {}, [] { ForkAndJoin(2, false, false, 1, Lanes::kLaidOut); }, kCheckFailed);
}
TEST(TwoLanes, MutantWithoutAJoin) {
  ExpectFound(
      "", {}, [] { ForkAndJoin(1, false, false, 1); }, kCheckFailed);
}
TEST(TwoLanes, MutantMachineThatLosesAWakeUpCall) {
  ExpectFound(
      "", {.lose_wake = 1}, [] { ForkAndJoin(1, true, false, 1); }, kDeadlock);
}

// Two executions of one replay by different streams take turns.
void TwoStreams(bool takes_tickets) {
  Device device(2);
  SmallGraph graph(1);
  graph.Letter(0, 'a');
  graph.Letter(0, 'b');
  std::unique_ptr<Replay> replay;
  std::unique_ptr<Replay> other_replay;  // of the same graph: nothing keeps the two apart
  {
    Straight straight;
    replay = std::make_unique<Replay>(graph.Compile(), *device);
    other_replay = std::make_unique<Replay>(graph.Compile(), *device);
  }
  {
    Kept<Driver> first(*replay, 1);
    Kept<Driver> second(takes_tickets ? *replay : *other_replay, 1);
    device->Wake(*second);
    device->Wake(*first);
    first->done.Wait();
    second->done.Wait();
    device->Retire(*first);
    device->Retire(*second);
  }
  INTERLEAVE_CHECK(graph.Letters() == "abab");
  Straight straight;
  replay.reset();
  other_replay.reset();
}

TEST(OneLane, ExecutionsTakeTurns) {
  ExpectSound("", {.preemptions = 2}, [] { TwoStreams(true); });
}
TEST(OneLane, MutantOfTwoReplays) {
  ExpectFound(
      "", {}, [] { TwoStreams(false); }, kCheckFailed);
}

// A place in the order that is given up does not hold up those behind it, whenever that happens.
void CancelledTicket(bool cancels) {
  Device device(1);
  SmallGraph graph(1);
  graph.Letter(0, 'a');
  std::unique_ptr<Replay> replay;
  {
    Straight straight;
    replay = std::make_unique<Replay>(graph.Compile(), *device);
  }
  const uint64_t given_up = replay->Submit();
  {
    Kept<Driver> driver(*replay, 1);
    device->Wake(*driver);
    if (cancels) replay->Cancel(given_up);
    driver->done.Wait();
    device->Retire(*driver);
  }
  INTERLEAVE_CHECK(graph.Letters() == "a");
  Straight straight;
  replay.reset();
}

TEST(OneLane, PlaceThatIsGivenUp) {
  ExpectSound("", {.preemptions = 2}, [] { CancelledTicket(true); });
}
TEST(OneLane, MutantThatKeepsThePlace) {
  ExpectFound(
      "", {}, [] { CancelledTicket(false); }, kDeadlock);
}

}  // namespace
}  // namespace interleave
