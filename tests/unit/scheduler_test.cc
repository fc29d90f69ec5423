// SPDX-License-Identifier: Apache-2.0
//
// The scheduler alone: who runs what, when, how often, and on which thread.
#include "device/scheduler.h"
#include "device/spinning.h"
#include "device/split.h"
#include "device/work_cost.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "scale.h"

namespace reprise::device {
namespace {

using testing::Loops;
using namespace std::chrono_literals;

/// Runs a function; the base has no virtual destructor, so it is final.
class Piece final : public Runnable {
 public:
  explicit Piece(std::function<Outcome(RunContext&)> run) : run_(std::move(run)) {}
  Outcome Run(RunContext& context) override { return run_(context); }

 private:
  std::function<Outcome(RunContext&)> run_;
};

constexpr auto kIdle = Runnable::Outcome::kIdle;

void WaitUntil(const std::function<bool()>& done) {
  while (!done()) std::this_thread::yield();
}

/// Counts the rounds of a test in which threads wait for each other: all of them, or as many as there is time for on a
/// machine that has other things to do.
class Rounds {
 public:
  explicit Rounds(int most) : most_(most) {}
  bool Next() { return round_++ < 3 || (round_ <= most_ && Clock::now() < end_); }
  int operator*() const { return round_ - 1; }

 private:
  const int most_;
  int round_ = 0;
  const Clock::time_point end_ = Clock::now() + 5s;
};

/// Tries until `once` says that it was in time, for what another thread may get ahead of: a worker that is busy for
/// some milliseconds, or seems to be because the test's thread has lost its core, gets another one beside it.
void TryUntilInTime(const std::function<bool()>& once) {
  const auto end = Clock::now() + 60s;
  while (!::testing::Test::HasFailure()) {
    if (once()) return;
    ASSERT_LT(Clock::now(), end) << "no try was in time";
  }
}

TEST(Scheduler, WakeRunsOnAWorker) {
  Scheduler scheduler(2);
  std::atomic<bool> on_worker{false};
  std::latch ran(1);
  Piece piece([&](RunContext& context) {
    on_worker = context.on_worker();
    ran.count_down();
    return kIdle;
  });
  scheduler.Wake(piece);
  ran.wait();
  EXPECT_TRUE(on_worker);
  scheduler.Retire(piece);
}

TEST(Scheduler, WakesWhileRunningMeanOneMoreRun) {
  Scheduler scheduler(2);
  std::atomic<int> runs{0};
  std::latch inside(1), go_on(1);
  Piece piece([&](RunContext&) {
    if (runs.fetch_add(1) == 0) {
      inside.count_down();
      go_on.wait();
    }
    return kIdle;
  });
  scheduler.Wake(piece);
  inside.wait();
  for (int i = 0; i < 10; ++i) scheduler.Wake(piece);
  go_on.count_down();
  WaitUntil([&] { return runs == 2; });
  scheduler.Retire(piece);
  EXPECT_EQ(runs, 2);
}

TEST(Scheduler, NeverRunsOneOnTwoThreadsAndLosesNoWake) {
  Scheduler scheduler(4);
  constexpr int kPieces = 8;
  constexpr int kWakers = 3;
  const int wakes = Loops(20'000, 3'000);
  std::atomic<int> wanted[kPieces] = {};
  std::atomic<int> served[kPieces] = {};
  std::atomic<int> inside[kPieces] = {};
  std::atomic<int> overlaps{0};
  std::vector<std::unique_ptr<Piece>> pieces;
  for (int p = 0; p < kPieces; ++p) {
    pieces.push_back(std::make_unique<Piece>([&, p](RunContext&) {
      if (inside[p].fetch_add(1) != 0) ++overlaps;
      served[p] += wanted[p].exchange(0);
      inside[p].fetch_sub(1);
      return kIdle;
    }));
  }
  std::vector<std::thread> wakers;
  for (int w = 0; w < kWakers; ++w) {
    wakers.emplace_back([&, w] {
      std::mt19937 random(static_cast<unsigned>(w));
      for (int i = 0; i < wakes; ++i) {
        const int p = i % kPieces;
        ++wanted[p];
        scheduler.Wake(*pieces[static_cast<size_t>(p)]);
        if (random() % 16 == 0) scheduler.TryRun(*pieces[random() % kPieces]);
      }
    });
  }
  for (std::thread& waker : wakers) waker.join();
  for (int p = 0; p < kPieces; ++p) {
    WaitUntil([&] { return served[p] == kWakers * (wakes / kPieces); });
    scheduler.Retire(*pieces[static_cast<size_t>(p)]);
  }
  EXPECT_EQ(overlaps, 0);
}

// With a second worker the letters come in any order. tests/interleave has the same without one.
TEST(Scheduler, RequeuedWorkLetsOthersRun) {
  TryUntilInTime([] {
    Scheduler scheduler(1);
    std::mutex mutex;
    std::string order;
    std::atomic<int> done{0};
    std::latch start(1);
    Piece gate([&](RunContext&) {
      start.wait();
      return kIdle;
    });
    const auto letter = [&](char name) {
      return [&, name, left = 5](RunContext&) mutable {
        std::lock_guard lock(mutex);
        order += name;
        if (--left != 0) return Runnable::Outcome::kRequeue;
        ++done;
        return kIdle;
      };
    };
    Piece a(letter('a')), b(letter('b'));
    scheduler.Wake(gate);  // keeps the only worker busy until both are queued
    scheduler.Wake(a);
    scheduler.Wake(b);
    start.count_down();
    WaitUntil([&] { return done == 2; });
    for (Piece* piece : {&gate, &a, &b}) scheduler.Retire(*piece);
    EXPECT_EQ(std::count(order.begin(), order.end(), 'a'), 5);
    EXPECT_EQ(std::count(order.begin(), order.end(), 'b'), 5);
    return order == "ababababab";
  });
}

TEST(Scheduler, TryRunTakesQueuedWorkOnly) {
  TryUntilInTime([] {
    Scheduler scheduler(1);
    std::latch inside(1), go_on(1);
    Piece busy([&](RunContext&) {
      inside.count_down();
      go_on.wait();
      return kIdle;
    });
    std::thread::id ran_on;
    bool on_worker = true;
    int runs = 0;
    Piece piece([&](RunContext& context) {
      ran_on = std::this_thread::get_id();
      on_worker = context.on_worker();
      ++runs;
      return kIdle;
    });
    scheduler.Wake(busy);
    inside.wait();
    EXPECT_FALSE(scheduler.TryRun(busy)) << "it is running already";
    EXPECT_FALSE(scheduler.TryRun(piece)) << "nobody woke it";
    scheduler.Wake(piece);
    const bool in_time = scheduler.TryRun(piece);
    EXPECT_FALSE(scheduler.TryRun(piece)) << "one wake, one run";
    go_on.count_down();
    for (Piece* each : {&busy, &piece}) scheduler.Retire(*each);
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(ran_on == std::this_thread::get_id(), in_time);
    EXPECT_EQ(on_worker, !in_time);
    return in_time;
  });
}

TEST(Scheduler, WhatNeedsAWorkerIsLeftToWorkers) {
  TryUntilInTime([] {
    Scheduler scheduler(1);
    std::latch inside(1), go_on(1), ran(1);
    Piece busy([&](RunContext&) {
      inside.count_down();
      go_on.wait();
      return kIdle;
    });
    std::atomic<int> refused{0};
    Piece picky([&](RunContext& context) {
      if (!context.on_worker()) {
        ++refused;
        return Runnable::Outcome::kNeedsWorker;
      }
      ran.count_down();
      return kIdle;
    });
    scheduler.Wake(busy);
    inside.wait();
    scheduler.Wake(picky);
    const bool in_time = scheduler.TryRun(picky);
    EXPECT_EQ(refused, in_time ? 1 : 0);
    EXPECT_FALSE(scheduler.TryRun(picky)) << "it asked for a worker";
    go_on.count_down();
    ran.wait();
    EXPECT_EQ(refused, in_time ? 1 : 0);
    for (Piece* each : {&busy, &picky}) scheduler.Retire(*each);
    return in_time;
  });
}

// ---- Spinning ----

TEST(Scheduler, NobodySpinsWhileItIsHeld) {
  ASSERT_TRUE(TakeSpinPermit());
  ReturnSpinPermit();
  HoldSpinning(Clock::now() + 1h);
  EXPECT_FALSE(TakeSpinPermit());
  EXPECT_FALSE(TakeSpinPermit()) << "a refusal has ended it";
  HoldSpinning(Clock::now() - 1ms);
  EXPECT_TRUE(TakeSpinPermit());
  // No permit got lost.
  for (int i = 1; i < UsableCores(); ++i) EXPECT_TRUE(TakeSpinPermit());
  EXPECT_FALSE(TakeSpinPermit());
  for (int i = 0; i < UsableCores(); ++i) ReturnSpinPermit();
}

TEST(Scheduler, WorkersRunWhatComesWhileSpinningIsHeld) {
  Scheduler scheduler(2);
  HoldSpinning(Clock::now() + 1h);
  std::atomic<int> runs{0};
  Piece piece([&](RunContext&) {
    ++runs;
    return kIdle;
  });
  for (int i = 0; i < 100; ++i) {
    scheduler.Wake(piece);
    WaitUntil([&] { return runs == i + 1; });
  }
  HoldSpinning(Clock::now() - 1ms);
  scheduler.Retire(piece);
  EXPECT_EQ(runs, 100);
}

// ---- Timers ----

// Their order is for tests/interleave, where the clock stands still until everybody sleeps.
TEST(Scheduler, TimersFireOnceAndNotEarly) {
  Scheduler scheduler(1);
  constexpr int kTimers = 20;
  std::atomic<int> fired{0}, early{0};
  std::vector<Clock::time_point> when;
  std::vector<std::unique_ptr<Piece>> pieces;
  const auto start = Clock::now() + 20ms;
  for (int i = 0; i < kTimers; ++i) {
    when.push_back(start + i * 2ms);
    pieces.push_back(std::make_unique<Piece>([&, i](RunContext&) {
      if (Clock::now() < when[static_cast<size_t>(i)]) ++early;
      ++fired;
      return kIdle;
    }));
  }
  for (int i = kTimers; i-- > 0;) scheduler.WakeAt(*pieces[static_cast<size_t>(i)], when[static_cast<size_t>(i)]);
  WaitUntil([&] { return fired >= kTimers; });
  for (const auto& piece : pieces) scheduler.Retire(*piece);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(fired, kTimers);
}

TEST(Scheduler, CancelledTimerNeverFires) {
  auto ahead = 10ms;
  TryUntilInTime([&] {
    Scheduler scheduler(1);
    std::atomic<int> fired{0};
    Piece cancelled([&](RunContext&) {
      ++fired;
      return kIdle;
    });
    std::latch later(1);
    Piece marker([&](RunContext&) {
      later.count_down();
      return kIdle;
    });
    const auto when = Clock::now() + ahead;
    scheduler.WakeAt(cancelled, when);
    scheduler.WakeAt(marker, when + ahead);
    scheduler.CancelTimer(cancelled);
    scheduler.CancelTimer(cancelled);  // harmless
    // Whoever loses his core in between comes too late to cancel anything; the next try leaves more time.
    const bool in_time = Clock::now() < when;
    later.wait();
    for (Piece* each : {&cancelled, &marker}) scheduler.Retire(*each);
    if (in_time) {
      EXPECT_EQ(fired, 0);
    }
    EXPECT_LE(fired, 1);
    ahead *= 2;
    return in_time;
  });
}

TEST(Scheduler, SecondTimerReplacesTheFirst) {
  auto ahead = 10ms;
  TryUntilInTime([&] {
    Scheduler scheduler(1);
    std::atomic<int> fired{0};
    Piece sooner([&](RunContext&) {
      ++fired;
      return kIdle;
    });
    std::atomic<int> postponed_fired{0};
    Piece postponed([&](RunContext&) {
      ++postponed_fired;
      return kIdle;
    });
    std::latch later(1);
    Piece marker([&](RunContext&) {
      later.count_down();
      return kIdle;
    });
    const auto when = Clock::now() + ahead;
    scheduler.WakeAt(sooner, when + 1h);
    scheduler.WakeAt(sooner, when);
    scheduler.WakeAt(postponed, when);
    scheduler.WakeAt(postponed, when + 1h);
    const bool in_time = Clock::now() < when;
    scheduler.WakeAt(marker, when + ahead);
    later.wait();
    WaitUntil([&] { return fired == 1; });
    for (Piece* each : {&sooner, &postponed, &marker}) scheduler.Retire(*each);
    EXPECT_EQ(fired, 1);
    if (in_time) {
      EXPECT_EQ(postponed_fired, 0);
    }
    EXPECT_LE(postponed_fired, 1);
    ahead *= 2;
    return in_time;
  });
}

// ---- ParallelFor ----

// Also with more workers than shares.
class ParallelForOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Scheduler, ParallelForOf, ::testing::Values(2, 4, 21));

TEST_P(ParallelForOf, CoversEveryIndexOnce) {
  Scheduler scheduler(GetParam());
  Piece starter([](RunContext&) { return kIdle; });
  scheduler.Wake(starter);  // the first wake starts the workers
  std::mt19937 random(7);
  for (int round = 0; round < Loops(300, 60); ++round) {
    const auto count = static_cast<int64_t>(random() % 5000);
    const auto grain = static_cast<int64_t>(random() % 97);
    struct Work {
      std::vector<std::atomic<int>> touched;
      int64_t grain;
      std::atomic<int> misaligned{0};
    } work{std::vector<std::atomic<int>>(static_cast<size_t>(count)), std::max<int64_t>(grain, 1)};
    scheduler.ParallelFor(
        count, grain,
        [](void* arg, int64_t begin, int64_t end) {
          auto& w = *static_cast<Work*>(arg);
          if (begin % w.grain != 0) ++w.misaligned;
          for (int64_t i = begin; i < end; ++i) ++w.touched[static_cast<size_t>(i)];
        },
        &work);
    EXPECT_EQ(work.misaligned, 0);
    for (const auto& touched : work.touched) ASSERT_EQ(touched, 1) << "count " << count << ", grain " << grain;
  }
  scheduler.Retire(starter);
}

// Each thread begins with a share of its own, so that it finds in its caches what it wrote in the loop before.
TEST(Scheduler, ParallelForBeginsWithTheShareOfItsThread) {
  Scheduler scheduler(2);
  Piece starter([](RunContext&) { return kIdle; });
  scheduler.Wake(starter);
  for (int round = 0; round < Loops(2000, 200); ++round) {
    struct Work {
      std::atomic<bool> has_first_begun{false};
      std::thread::id first;
    } work;
    scheduler.ParallelFor(
        2, 1,
        [](void* arg, int64_t begin, int64_t end) {
          auto& w = *static_cast<Work*>(arg);
          if (begin == 0) {
            w.first = std::this_thread::get_id();
            w.has_first_begun.store(true, std::memory_order_release);
            return;
          }
          // Who helps must not be through with its own before the caller has begun.
          while (end == 2 && !w.has_first_begun.load(std::memory_order_acquire)) std::this_thread::yield();
        },
        &work);
    ASSERT_EQ(work.first, std::this_thread::get_id()) << "round " << round;
  }
  scheduler.Retire(starter);
}

TEST(Scheduler, ParallelForOfManyCallersAtOnce) {
  Scheduler scheduler(3);
  constexpr int kCallers = 4;
  std::atomic<int64_t> sum{0};
  std::atomic<int> done{0};
  std::vector<std::unique_ptr<Piece>> pieces;
  const int rounds = Loops(100, 20);
  for (int i = 0; i < kCallers; ++i) {
    pieces.push_back(std::make_unique<Piece>([&](RunContext& context) {
      for (int round = 0; round < rounds; ++round) {
        context.scheduler().ParallelFor(
            1000, 10,
            [](void* arg, int64_t begin, int64_t end) {
              static_cast<std::atomic<int64_t>*>(arg)->fetch_add(end - begin);
            },
            &sum);
      }
      ++done;
      return kIdle;
    }));
    scheduler.Wake(*pieces.back());
  }
  WaitUntil([&] { return done == kCallers; });
  for (const auto& piece : pieces) scheduler.Retire(*piece);
  EXPECT_EQ(sum, int64_t{1000} * rounds * kCallers);
}

TEST(Scheduler, ShortLoopsWakeNobodyUntilTheyAddUp) {
  const int64_t of_wake = TheCosts().wake_ns / TheCosts().thread_ns;
  if (of_wake < 4) GTEST_SKIP() << "each loop that is worth two threads is worth a wake-up";
  UnsharedWork work;
  EXPECT_TRUE(work.Add(of_wake)) << "one that is worth it";
  EXPECT_TRUE(work.Add(INT64_MAX)) << "one of which nothing is known";
  EXPECT_FALSE(work.Add(of_wake - 1));
  EXPECT_TRUE(work.Add(2));
  EXPECT_FALSE(work.Add(of_wake - 1)) << "they are counted anew";
  EXPECT_TRUE(work.Add(of_wake)) << "which pays for the one before";
  EXPECT_FALSE(work.Add(of_wake - 1));
  work.Forget();
  EXPECT_FALSE(work.Add(of_wake - 1)) << "there was help";
}

// Of loops that are each too short to wake somebody for.
TEST(Scheduler, ShortLoopsGetHelpInTheEnd) {
  Scheduler scheduler(2);
  ASSERT_TRUE(scheduler.Start().ok());
  struct Seen {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> another{false};
  } seen;
  WaitUntil([&] {
    scheduler.ParallelFor(
        2, 1,
        [](void* arg, int64_t, int64_t) {
          auto& [caller, another] = *static_cast<Seen*>(arg);
          if (std::this_thread::get_id() != caller) another = true;
          std::this_thread::yield();
        },
        &seen, 2);
    return seen.another.load();
  });
}

// Two parts that wait for each other: without the thread that waits for the runnable, the loop would not end, because
// the other worker is not there. What belongs to another runnable is left alone.
TEST(Scheduler, WhoWaitsTakesPartsOfALoop) {
  Scheduler scheduler(2);
  std::latch busy(1);
  std::latch end(1);
  Piece blocker([&](RunContext&) {
    busy.count_down();
    end.wait();
    return kIdle;
  });
  scheduler.Wake(blocker);
  busy.wait();
  std::latch begun(1);
  struct Meeting {
    std::latch both{2};
    std::latch& begun;
  } meeting{.begun = begun};
  std::atomic<bool> is_done{false};
  const auto run = [&](RunContext& context) {
    context.scheduler().ParallelFor(
        2, 1,
        [](void* arg, int64_t begin, int64_t) {
          auto& met = *static_cast<Meeting*>(arg);
          if (begin == 0) met.begun.count_down();
          met.both.arrive_and_wait();
        },
        &meeting);
    is_done = true;
    return kIdle;
  };
  Piece looper(run);
  scheduler.Wake(looper);
  begun.wait();
  EXPECT_FALSE(scheduler.TryRunPartOf(blocker));
  EXPECT_TRUE(scheduler.has_parts());
  EXPECT_TRUE(scheduler.TryRunPartOf(looper));
  WaitUntil([&] { return is_done.load(); });
  EXPECT_FALSE(scheduler.TryRunPartOf(looper));
  end.count_down();
  scheduler.Retire(looper);
  scheduler.Retire(blocker);
}

// What the thread with most to do computes, in units, when parts of a size are dealt out in turn.
int64_t MostOfAThread(int64_t units, int64_t part, int64_t threads) {
  const int64_t parts = (units + part - 1) / part;
  return std::min(units, (parts + threads - 1) / threads * part);
}

TEST(Split, PartsAreWorthAThreadAndEven) {
  for (const int64_t threads : {2, 4, 16}) {
    for (const int64_t grain : {1, 3, 7, 32}) {
      for (int64_t units = 1; units <= 40 * threads; ++units) {
        const int64_t part = EvenGrain(units, grain, threads);
        const int64_t parts = (units + part - 1) / part;
        ASSERT_GE(part, std::min(grain, units)) << units << " units, grain " << grain << ", threads " << threads;
        const int64_t worth = units / grain;
        if (worth < 2) {
          ASSERT_EQ(parts, 1) << "what is not worth two threads is not split";
          continue;
        }
        // Within a unit for each turn, nobody has more to do than in the best split of parts that are worth a thread.
        const int64_t turns = std::clamp<int64_t>(worth / threads, 1, kMostTurns);
        const int64_t best = (units + std::min(worth, threads) - 1) / std::min(worth, threads);
        ASSERT_LE(MostOfAThread(units, part, threads), best + turns)
            << units << " units, grain " << grain << ", threads " << threads;
        if (units % grain == 0) {
          ASSERT_LE(MostOfAThread(units, part, threads), MostOfAThread(units, grain, threads) + turns);
        }
      }
    }
  }
  // Three parts for two threads, seventeen for sixteen: in equal parts for all instead.
  EXPECT_EQ(EvenGrain(300, 100, 2), 150);
  EXPECT_EQ(EvenGrain(1700, 100, 16), 107);
  EXPECT_EQ(EvenGrain(300, 100, 1), 300);
  EXPECT_EQ(EvenGrain(0, 100, 4), 1);
  // Not more turns than it takes.
  EXPECT_EQ(EvenGrain(1'000'000, 1, 2), 1'000'000 / (2 * kMostTurns));
}

// When a loop ends, in picoseconds: threads come one after another, each a hand-off after the one before, take what is
// next, and hand over once more when they are done.
int64_t EndOfLoop(int64_t units, int64_t part, int64_t threads, int64_t unit_ps, int64_t handoff_ps) {
  std::vector<int64_t> free_at(static_cast<size_t>(threads));
  for (int64_t i = 0; i < threads; ++i) free_at[static_cast<size_t>(i)] = i * handoff_ps;
  for (int64_t begin = 0; begin < units; begin += part) {
    *std::min_element(free_at.begin(), free_at.end()) += std::min(part, units - begin) * unit_ps;
  }
  return *std::max_element(free_at.begin(), free_at.end()) + (part < units ? handoff_ps : 0);
}

TEST(WorkCost, NothingIsSplitThatWouldTakeLongerAndWhatIsLargeIs) {
  const Work items[] = {{.elements = 1},           {.elements = 700},   {.multiply_adds = 1},
                        {.multiply_adds = 40'000}, {.bytes = 64 << 10}, {.multiply_adds = 900'000}};
  for (const char* text : {"handoff=20", "default", "handoff=600", "handoff=2400", "element=500,byte=3"}) {
    Costs costs;
    ASSERT_TRUE(ParseCosts(text, costs)) << text;
    const int64_t handoff_ps = 1000 * costs.handoff_ns;
    for (const int64_t threads : {2, 4, 16}) {
      for (const Work& item : items) {
        const int64_t unit_ps = PicosecondsOf(item, costs);
        const int64_t grain = GrainOf(item, costs);
        for (int64_t units = 1; units < 400 * threads * grain; units += 1 + units / 7) {
          const int64_t part = EvenGrain(units, grain, threads);
          const int64_t serial = units * unit_ps;
          // Those who find nothing left when they come do not count.
          const int64_t joining = std::min(threads, (units + part - 1) / part);
          const int64_t end = EndOfLoop(units, part, joining, unit_ps, handoff_ps);
          ASSERT_LE(end, serial) << text << ", " << threads << " threads, " << units << " units of " << unit_ps;
          if (units >= 64 * threads && serial > 30 * threads * 1000 * costs.thread_ns) {
            ASSERT_LE(end, serial / threads + serial / threads / 3)
                << text << ", " << threads << " threads, " << units << " units of " << unit_ps;
          }
        }
      }
    }
  }
}

TEST(WorkCost, AddsElementsToWhatTakesLonger) {
  Costs costs{.element_ps = 100, .multiply_add_ps = 10, .byte_ps = 20, .thread_ns = 3};
  EXPECT_EQ(PicosecondsOf({.elements = 2}, costs), 200);
  EXPECT_EQ(PicosecondsOf({.multiply_adds = 50, .bytes = 20}, costs), 500);
  EXPECT_EQ(PicosecondsOf({.elements = 1, .multiply_adds = 50, .bytes = 30}, costs), 700);
  EXPECT_EQ(GrainOf({.elements = 7}, costs), 4);
  EXPECT_EQ(GrainOf({.elements = 31}, costs), 1);
  EXPECT_EQ(GrainOf({}, costs), 3000) << "nothing to do";
  EXPECT_EQ(GrainOf({.elements = INT64_MAX, .multiply_adds = INT64_MAX}, costs), 1);
}

TEST(WorkCost, IsReadFromAList) {
  Costs costs;
  EXPECT_TRUE(ParseCosts("default", costs));
  EXPECT_EQ(costs, Costs());
  EXPECT_TRUE(ParseCosts("handoff=300,byte=3", costs));
  EXPECT_EQ(costs, (Costs{.byte_ps = 3, .handoff_ns = 300, .thread_ns = 4'000}));
  EXPECT_TRUE(ParseCosts("thread=7,handoff=300,wake=9,element=2,multiply_add=1", costs));
  EXPECT_EQ(costs, (Costs{.element_ps = 2, .multiply_add_ps = 1, .handoff_ns = 300, .thread_ns = 7, .wake_ns = 9}));
  const Costs before = costs;
  for (const char* text : {"", "fast", "byte", "byte=", "byte=0", "byte=-1", "byte=1.5", "byte=2,", ",byte=2",
                           "bytes=2", "byte=99999999999", "default,byte=2"}) {
    EXPECT_FALSE(ParseCosts(text, costs)) << text;
    EXPECT_EQ(costs, before) << text;
  }
}

// In a process that begins beside others its threads may meet a few times only, late.
TEST(WorkCost, AHandoffOfFewRoundsIsNotKnown) {
  EXPECT_EQ(HandoffOf({}), 0);
  EXPECT_EQ(HandoffOf(std::vector<int64_t>{90'000, 45'000}), 0);
  std::vector<int64_t> rounds(32, 700);
  rounds[7] = 400;
  EXPECT_EQ(HandoffOf(rounds), 200);
}

TEST(WorkCost, FollowsSlowHandoffsInPowersOfTwo) {
  const auto found = [](int64_t measured) { return WithHandoff(Costs(), measured); };
  EXPECT_EQ(found(0), Costs()) << "nothing was measured";
  EXPECT_EQ(found(40), Costs());
  EXPECT_EQ(found(225), Costs()) << "noise";
  EXPECT_EQ(found(226), (Costs{.handoff_ns = 300, .thread_ns = 4'000}));
  EXPECT_EQ(found(700), (Costs{.handoff_ns = 600, .thread_ns = 8'000}));
  EXPECT_EQ(found(1'000'000'000), (Costs{.handoff_ns = 4'800, .thread_ns = 64'000})) << "a core that was busy";
}

// ---- Worker threads ----

// Foreign code may block every worker and wait for work that is queued behind it.
TEST(Scheduler, BlockedWorkersGetHelp) {
  Scheduler scheduler(2);
  constexpr int kBlocked = 6;
  std::latch gate(1);
  std::atomic<int> finished{0};
  std::vector<std::unique_ptr<Piece>> pieces;
  for (int i = 0; i < kBlocked; ++i) {
    pieces.push_back(std::make_unique<Piece>([&](RunContext&) {
      gate.wait();
      ++finished;
      return kIdle;
    }));
    scheduler.Wake(*pieces.back());
  }
  Piece opener([&](RunContext&) {
    gate.count_down();
    return kIdle;
  });
  scheduler.Wake(opener);
  WaitUntil([&] { return finished == kBlocked; });
  for (const auto& piece : pieces) scheduler.Retire(*piece);
  scheduler.Retire(opener);
}

// An additional worker is there as long as the others are stuck. Then it leaves, however much there is to do in the
// meantime: each wake-up makes one of those who sleep look.
TEST(Scheduler, AdditionalWorkersLeaveOnceOthersAreFree) {
  Scheduler scheduler(1);
  std::latch gate(1);
  std::latch freed(1);
  Piece stuck([&](RunContext&) {
    gate.wait();
    freed.count_down();
    return kIdle;
  });
  std::mutex mutex;
  std::set<pid_t> threads;  // that have run pieces
  std::atomic<int> runs{0};
  Piece piece([&](RunContext&) {
    std::lock_guard lock(mutex);
    threads.insert(gettid());
    ++runs;
    return kIdle;
  });
  scheduler.Wake(stuck);
  scheduler.Wake(piece);
  WaitUntil([&] { return runs == 1; });
  pid_t additional = 0;
  {
    std::lock_guard lock(mutex);
    ASSERT_EQ(threads.size(), 1U);
    additional = *threads.begin();
  }
  gate.count_down();
  freed.wait();
  const auto is_there = [&] { return access(("/proc/self/task/" + std::to_string(additional)).c_str(), F_OK) == 0; };
  // Never idle for as long as would send it away by itself.
  const auto end = Clock::now() + 60s;
  for (int i = 2; is_there(); ++i) {
    ASSERT_LT(Clock::now(), end) << "the additional worker stays";
    scheduler.Wake(piece);
    WaitUntil([&] { return runs >= i; });
    std::this_thread::sleep_for(10ms);
  }
  scheduler.Wake(piece);
  scheduler.Retire(stuck);
  scheduler.Retire(piece);
}

TEST(Scheduler, ManyRunnables) {
  Scheduler scheduler(3);
  const int count = Loops(20'000, 4'000);
  std::atomic<int> runs{0};
  std::vector<std::unique_ptr<Piece>> pieces;
  for (int i = 0; i < count; ++i) {
    pieces.push_back(std::make_unique<Piece>([&](RunContext&) {
      ++runs;
      return kIdle;
    }));
  }
  std::vector<std::thread> wakers;
  for (int w = 0; w < 4; ++w) {
    wakers.emplace_back([&, w] {
      for (int i = w; i < count; i += 4) scheduler.Wake(*pieces[static_cast<size_t>(i)]);
    });
  }
  for (std::thread& waker : wakers) waker.join();
  WaitUntil([&] { return runs == count; });
  for (const auto& piece : pieces) scheduler.Retire(*piece);
  EXPECT_EQ(runs, count);
}

TEST(Scheduler, EndsCleanlyAtAnyMoment) {
  for (Rounds round(Loops(300, 60)); round.Next();) {
    Scheduler scheduler(2);
    Piece piece([](RunContext&) { return kIdle; });
    if (*round % 3 != 0) scheduler.Wake(piece);
    if (*round % 3 == 2) scheduler.WakeAt(piece, Clock::now() + 1h);
    scheduler.Retire(piece);
  }
}

// ---- Wait lists ----

TEST(WaitList, WakesWhoWaitsAndNobodyElse) {
  Scheduler scheduler(2);
  WaitList list;
  std::atomic<bool> ready{false};
  std::atomic<int> runs[3] = {};
  std::vector<std::unique_ptr<Piece>> pieces;
  for (auto& count : runs) {
    pieces.push_back(std::make_unique<Piece>([&](RunContext&) {
      ++count;
      return kIdle;
    }));
  }
  const auto is_ready = [&] { return ready.load(); };
  EXPECT_TRUE(list.AddUnless(is_ready, pieces[0].get(), &scheduler));
  EXPECT_TRUE(list.AddUnless(is_ready, pieces[0].get(), &scheduler)) << "adding twice is adding once";
  EXPECT_TRUE(list.AddUnless(is_ready, pieces[1].get(), &scheduler));
  list.Remove(pieces[1].get());
  list.SetAndWake([&] { ready = true; });
  EXPECT_FALSE(list.AddUnless(is_ready, pieces[2].get(), &scheduler));
  WaitUntil([&] { return runs[0] == 1; });
  for (const auto& piece : pieces) scheduler.Retire(*piece);
  EXPECT_EQ(runs[0], 1);
  EXPECT_EQ(runs[1], 0);
  EXPECT_EQ(runs[2], 0);
}

TEST(WaitList, NoWakeIsLost) {
  Scheduler scheduler(2);
  for (Rounds round(Loops(5000, 500)); round.Next();) {
    WaitList list;
    std::atomic<bool> ready{false};
    std::atomic<bool> passed{false};
    Piece piece([&](RunContext& context) {
      const auto is_ready = [&] { return ready.load(); };
      if (!is_ready() && list.AddUnless(is_ready, context.runnable(), &context.scheduler())) return kIdle;
      passed = true;
      return kIdle;
    });
    scheduler.Wake(piece);
    list.SetAndWake([&] { ready = true; });
    WaitUntil([&] { return passed.load(); });
    scheduler.Retire(piece);
  }
}

// Once the condition holds a waiter may go on for another reason, finish and be destroyed, while the thread that set
// the condition has yet to wake it. Retire has to wait for that thread.
TEST(WaitList, RetireWaitsForAWakeThatIsUnderWay) {
  Scheduler scheduler(2);
  WaitList list;
  std::atomic<bool> ready{false};
  std::latch parked(1), set(1), release(1), passed(1);
  auto piece = std::make_unique<Piece>([&, first = true](RunContext& context) mutable {
    const auto is_ready = [&] { return ready.load(); };
    if (!is_ready() && list.AddUnless(is_ready, context.runnable(), &context.scheduler())) {
      if (first) parked.count_down();
      first = false;
      return kIdle;
    }
    passed.count_down();
    return kIdle;
  });
  scheduler.Wake(*piece);
  parked.wait();
  std::thread setter([&] {
    list.SetAndWake([&] {
      ready = true;
      set.count_down();
      release.wait();  // stands for a thread that loses its core here
    });
  });
  set.wait();
  scheduler.Wake(*piece);  // as the submission of another task does
  passed.wait();
  std::atomic<bool> retired{false};
  std::thread owner([&] {
    scheduler.Retire(*piece);
    retired = true;
    piece.reset();
  });
  // It must not get through; there is no event to wait for, so it is given a little time to do the wrong thing. However
  // short that turns out, what is right does not fail.
  const auto end = Clock::now() + 50ms;
  while (Clock::now() < end && !retired) std::this_thread::yield();
  EXPECT_FALSE(retired) << "the runnable is gone while a wake-up for it is under way";
  release.count_down();
  setter.join();
  owner.join();
}

// A queue in small, which workers may attend.
class Counted final : public Runnable {
 public:
  Counted() : Runnable(true) {}
  void Submit(Scheduler& scheduler) {
    submitted_.fetch_add(1, std::memory_order_release);
    scheduler.Signal(*this);
  }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  Outcome Run(RunContext&) override {
    EXPECT_FALSE(inside_.exchange(true));
    const uint64_t seen = submitted_.load(std::memory_order_acquire);
    inside_.store(false);
    completed_.store(seen, std::memory_order_release);
    return Outcome::kIdle;
  }
  bool HasMore() const noexcept override {
    return submitted_.load(std::memory_order_acquire) != completed_.load(std::memory_order_relaxed);
  }
  uint64_t Progress() const noexcept override { return completed_.load(std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<uint64_t> submitted_{0};
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<bool> inside_{false};
};

// One worker comes to attend and leaves all the time, because two queues want it, and what is submitted meanwhile is
// never overlooked.
TEST(Scheduler, SubmissionsMeetAWorkerThatLeaves) {
  Scheduler scheduler(1);
  Counted queues[2];
  const auto end = Clock::now() + 3s;  // a machine that has other things to do gets through fewer rounds
  std::atomic<int> lost{0};
  const auto submit = [&](Counted& queue) {
    const auto rounds = static_cast<uint64_t>(Loops(20'000, 2'000));
    for (uint64_t i = 1; i <= rounds && Clock::now() < end; ++i) {
      queue.Submit(scheduler);
      const auto deadline = Clock::now() + 60s;  // what is lost never comes; what is late is not lost
      for (int looks = 1; queue.completed() < i; ++looks) {
        if (looks % 64 == 0) std::this_thread::yield();
        if (looks % 4096 == 0 && Clock::now() >= deadline) {
          lost.fetch_add(1);
          return;
        }
      }
    }
  };
  std::thread other([&] { submit(queues[1]); });
  submit(queues[0]);
  other.join();
  EXPECT_EQ(lost, 0) << "a submission was not run within a minute";
  for (Counted& queue : queues) scheduler.Retire(queue);
}

// Whoever attends a runnable that goes has let go of it when Retire returns.
TEST(Scheduler, RetireEndsAttention) {
  Scheduler scheduler(2);
  for (Rounds round(Loops(2'000, 200)); round.Next();) {
    auto queue = std::make_unique<Counted>();
    for (uint64_t submitted = 1; submitted <= 3; ++submitted) {
      queue->Submit(scheduler);
      WaitUntil([&] { return queue->completed() == submitted; });
    }
    scheduler.Retire(*queue);
  }
}

}  // namespace
}  // namespace reprise::device
