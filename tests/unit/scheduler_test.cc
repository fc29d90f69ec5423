// SPDX-License-Identifier: Apache-2.0
//
// The scheduler alone: who runs what, when, how often, and on which thread.
#include "device/scheduler.h"
#include "device/spinning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
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

TEST(Scheduler, ParallelForCoversEveryIndexOnce) {
  Scheduler scheduler(4);
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
