// SPDX-License-Identifier: Apache-2.0
//
// Explorer: runs a small concurrent program under every interleaving of its atomic operations, up to a bound.
//
// The program's threads are fibers of one thread. shim.h puts types of ours in the place of std::atomic, std::mutex,
// std::thread and the clock when the project's own sources are compiled for these tests, and every operation of theirs
// first asks here who goes on. A schedule is the list of those answers; the explorer walks the tree of all schedules
// depth first. Taking the turn from a thread that could go on is a preemption; a schedule has at most as many as the
// options say (2 find nearly everything that can go wrong). Where a thread blocks, every successor is tried for free.
//
// Found are: failed checks, deadlocks (so lost wake-ups), livelocks (threads that spin while nothing changes, too many
// steps), operations on objects that are gone, crashes.
//
// Not seen: reorderings that the memory model allows (the exploration is sequentially consistent) and races on plain
// memory. For those there are ThreadSanitizer and the reasons in the sources.
//
// Spinning. A thread that yields or relaxes is not run again until another thread has changed something. When all that
// are left spin, the clock moves. That a spinner's patience ends while others are busy is tried too, as a preemption.
//
// Timeouts of waits never come, because no progress may rest on one; Options::timeouts lets the nearest one come when
// nothing else can run.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

namespace interleave {

// ---- For the tests ----

struct Options {
  int preemptions = 2;
  bool timeouts = false;
  int spin_us = 0;  ///< REPRISE_SPIN_US; each reading of the clock takes a microsecond
  int cores = 4;    ///< what the program is told
  /// A fault of the machine, to show that it would be found: this wake-up call of a futex (1 is the first within the
  /// explored part) does nothing.
  int lose_wake = 0;
  /// Takes the turn from a thread that makes hundreds of steps while others could run, as the kernel would. Otherwise
  /// one that looks again and again without a pause is a livelock.
  bool slices = false;
  uint64_t most_schedules = 3'000'000;
  int most_steps = 20'000;
};

struct Report {
  bool failed = false;
  bool complete = false;   ///< the whole tree was walked
  uint64_t schedules = 0;  ///< complete runs
  uint64_t steps = 0;
  uint64_t longest = 0;  ///< most decisions in a schedule
  std::string text;      ///< what went wrong, how to repeat it, and the end of the trace
};

/// Explores `program` in a process of its own. A name that REPRISE_INTERLEAVE="name=…" has is run once, as it says.
Report Explore(const std::string& name, const Options& options, const std::function<void()>& program);

/// Within a program: fails the schedule.
void Check(bool holds, const char* what, std::source_location where = std::source_location::current());
#define INTERLEAVE_CHECK(...) ::interleave::Check((__VA_ARGS__), #__VA_ARGS__)

/// While one lives, no interleavings are explored: for set-up and tear-down.
class Straight {
 public:
  Straight();
  ~Straight();
  Straight(const Straight&) = delete;
  Straight& operator=(const Straight&) = delete;
};

/// Lets the other threads run until all of them have ended or wait. Call within a Straight.
void Settle();

}  // namespace interleave
