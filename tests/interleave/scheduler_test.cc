// SPDX-License-Identifier: Apache-2.0
//
// The hand-off protocol of the scheduler under every interleaving: who wakes whom, who takes what, who may free what.
#include <gtest/gtest.h>

#include "scenario.h"
// Behind the shim:
#include "device/inquiry.h"
#include "expect.h"

namespace interleave {
namespace {

using reprise::FutexWait;
using reprise::FutexWake;
using reprise::SpinLock;
using reprise::device::RunContext;
using reprise::device::Runnable;
using reprise::device::Scheduler;
using reprise::device::WaitList;
using Outcome = Runnable::Outcome;

// Threads of schedules are many and never end: all of them note what they do where the program's own thread does.
const bool kHasActivity = [] {
  const reprise::device::Activity::Turn turn(nullptr);
  return true;
}();

// ---- Spin lock ----

// A lock that looks and takes in two steps.
class BrokenLock {
 public:
  void lock() {
    while (locked_.load()) std::this_thread::yield();
    locked_.store(true);
  }
  void unlock() { locked_.store(false); }

 private:
  std::atomic<bool> locked_{false};
};

template <class Lock>
void ThreeTakeTheLock() {
  Lock lock;
  std::atomic<int> inside{0};
  int sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      std::lock_guard guard(lock);
      INTERLEAVE_CHECK(inside.fetch_add(1) == 0);
      ++sum;
      inside.fetch_sub(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  INTERLEAVE_CHECK(sum == 3);
}

TEST(SpinLocks, LetOneIn) { ExpectSound("", {.preemptions = 3}, ThreeTakeTheLock<SpinLock>); }
TEST(SpinLocks, MutantThatLooksFirst) { ExpectFound("", {}, ThreeTakeTheLock<BrokenLock>, kCheckFailed); }

// ---- A wake-up meets a worker on its way to bed ----

void WakeMeetsSleep(int workers, Device::Start start) {
  Device device(workers, start);
  Flag ran;
  int runs = 0;
  Kept<Piece> piece([&](RunContext&) {
    ++runs;
    ran.Set();
    return Outcome::kIdle;
  });
  device->Wake(*piece);
  ran.Wait();
  device->Retire(*piece);
  INTERLEAVE_CHECK(runs == 1);
  piece.End();
}

TEST(Wake, MeetsASleepingWorker) {
  ExpectSound("/asleep", {.preemptions = 4}, [] { WakeMeetsSleep(1, Device::kAsleep); });
  ExpectSound("/busy", {.preemptions = 3}, [] { WakeMeetsSleep(1, Device::kBusy); });
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, [] { WakeMeetsSleep(1, Device::kBusy); });
}

// The last wake-up of all: the destructor's.
TEST(Wake, SchedulerEndsWhileAWorkerGoesToSleep) {
  const auto program = [] {
    Device device(2, Device::kBusy);
    device.Destroy();
  };
  ExpectSound("", {.preemptions = 2}, program);
  ExpectSound("/spins", {.preemptions = 1, .spin_us = 1}, program);
}

TEST(Wake, MutantMachineThatLosesAWakeUpCall) {
  ExpectFound(
      "", {.lose_wake = 1}, [] { WakeMeetsSleep(1, Device::kAsleep); }, kDeadlock);
}

TEST(Wake, TwoWakersTwoWorkers) {
  const auto program = [] {
    Device device(2);
    Flag ran[2];
    int runs[2] = {};
    Kept<Piece> first([&](RunContext&) {
      ++runs[0];
      ran[0].Set();
      return Outcome::kIdle;
    });
    Kept<Piece> second([&](RunContext&) {
      ++runs[1];
      ran[1].Set();
      return Outcome::kIdle;
    });
    std::thread other([&] { device->Wake(*second); });
    device->Wake(*first);
    ran[0].Wait();
    ran[1].Wait();
    Straight straight;
    other.join();
    device->Retire(*first);
    device->Retire(*second);
    INTERLEAVE_CHECK(runs[0] == 1 && runs[1] == 1);
  };
  ExpectSound("", {.preemptions = 2}, program);
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, program);
}

// The few lines of a sleeping worker and its waker alone, with everything that happens between them.
template <bool kAnnouncesFirst>
void SleepersAndWakers() {
  std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> work{0};
  std::thread worker([&] {
    for (int taken = 0; taken != 2;) {
      if (work.load() != 0) {
        work.fetch_sub(1);
        ++taken;
        continue;
      }
      const uint32_t seen = epoch.load();
      if (!kAnnouncesFirst && work.load() != 0) continue;
      sleepers.fetch_add(1);
      if (!kAnnouncesFirst || work.load() == 0) FutexWait(epoch, seen, std::nullopt);
      sleepers.fetch_sub(1);
    }
  });
  for (int i = 0; i < 2; ++i) {
    work.fetch_add(1);
    if (sleepers.load() != 0) {
      epoch.fetch_add(1);
      FutexWake(epoch, 1);
    }
  }
  worker.join();
}

TEST(SleepingWorker, AnnouncesItselfBeforeItLooks) { ExpectSound("", {.preemptions = 3}, SleepersAndWakers<true>); }
TEST(SleepingWorker, MutantThatLooksFirst) { ExpectFound("", {}, SleepersAndWakers<false>, kDeadlock); }

// ---- Wait lists ----

enum class Setter { kSound, kWakesFirst, kForgets };

// A runnable parks until a condition holds; another thread makes it hold.
void ParkAndSet(Setter setter) {
  Device device(1);
  WaitList list;
  Flag ran;
  std::atomic<uint32_t> position{0};
  Kept<Piece> piece([&](RunContext& context) {
    const auto reached = [&] { return position.load() != 0; };
    if (!reached() && list.AddUnless(reached, context.runnable(), &context.scheduler())) return Outcome::kIdle;
    ran.Set();
    return Outcome::kIdle;
  });
  device->Wake(*piece);
  if (setter == Setter::kWakesFirst) list.WakeIfAnnounced();
  position.store(1, std::memory_order_seq_cst);
  if (setter == Setter::kSound) list.WakeIfAnnounced();
  ran.Wait();
  device->Retire(*piece);
  piece.End();
}

TEST(WaitLists, ConditionThatComesWhileARunnableParks) {
  ExpectSound("", {.preemptions = 3}, [] { ParkAndSet(Setter::kSound); });
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, [] { ParkAndSet(Setter::kSound); });
}
TEST(WaitLists, MutantThatWakesBeforeItSets) {
  ExpectFound(
      "", {}, [] { ParkAndSet(Setter::kWakesFirst); }, kDeadlock);
}
TEST(WaitLists, MutantThatForgetsToWake) {
  ExpectFound(
      "", {}, [] { ParkAndSet(Setter::kForgets); }, kDeadlock);
}

// Two setters and a parker that gives up: after Remove and Retire nobody touches the runnable.
void RemoveMeetsWakes(bool retires) {
  Device device(1);
  WaitList list;
  std::atomic<uint32_t> position{0};
  Flag parked;
  Kept<Piece> piece([&](RunContext& context) {
    list.AddUnless([&] { return position.load() != 0; }, context.runnable(), &context.scheduler());
    parked.Set();
    return Outcome::kIdle;
  });
  {
    Straight straight;
    device->Wake(*piece);
    parked.Wait();
    Settle();
  }
  std::thread setter([&] {
    position.store(1);
    list.WakeIfAnnounced();
  });
  list.Remove(&*piece);
  if (retires) device->Retire(*piece);
  piece.End();
  Straight straight;
  setter.join();
}

TEST(WaitLists, RemovedRunnableIsLeftAlone) {
  ExpectSound("", {.preemptions = 3}, [] { RemoveMeetsWakes(true); });
}
TEST(WaitLists, MutantThatDoesNotRetire) {
  ExpectFound(
      "", {}, [] { RemoveMeetsWakes(false); }, kGone);
}

// ---- Helping ----

// The caller takes what it waits for, if the worker has not. Then it goes, as a stream or a replay does.
void HelperMeetsWorker(bool retires) {
  Device device(1);
  std::atomic<int> runs{0};
  std::atomic<int> inside{0};
  Flag ran;
  Kept<Piece> piece([&](RunContext&) {
    INTERLEAVE_CHECK(inside.fetch_add(1) == 0);
    runs.fetch_add(1);
    inside.fetch_sub(1);
    ran.Set();
    return Outcome::kIdle;
  });
  device->Wake(*piece);
  device->TryRun(*piece);
  ran.Wait();
  if (retires) device->Retire(*piece);
  piece.End();
  INTERLEAVE_CHECK(runs.load() == 1);
}

TEST(TryRun, MeetsAWorker) {
  ExpectSound("", {.preemptions = 3}, [] { HelperMeetsWorker(true); });
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, [] { HelperMeetsWorker(true); });
}
TEST(TryRun, MutantThatDoesNotRetire) {
  ExpectFound(
      "", {}, [] { HelperMeetsWorker(false); }, kGone);
}

TEST(TryRun, WorkThatNeedsAWorkerGoesBackToOne) {
  ExpectSound("", {.preemptions = 2}, [] {
    Device device(1);
    int runs = 0;
    Flag ran;
    Kept<Piece> piece([&](RunContext& context) {
      if (!context.on_worker()) return Outcome::kNeedsWorker;
      ++runs;
      ran.Set();
      return Outcome::kIdle;
    });
    device->Wake(*piece);
    device->TryRun(*piece);
    device->TryRun(*piece);
    ran.Wait();
    device->Retire(*piece);
    piece.End();
    INTERLEAVE_CHECK(runs == 1);
  });
}

// Work goes back into the list in the middle of being taken: whoever gets it runs it to its end, and then it may go.
TEST(TryRun, MeetsWorkThatIsRequeued) {
  ExpectSound("", {.preemptions = 3}, [] {
    Device device(1);
    int runs = 0;
    Flag ran;
    Kept<Piece> piece([&](RunContext&) {
      if (++runs == 1) return Outcome::kRequeue;
      ran.Set();
      return Outcome::kIdle;
    });
    device->Wake(*piece);
    while (!ran.IsSet()) {
      if (!device->TryRun(*piece)) std::this_thread::yield();
    }
    device->Retire(*piece);
    piece.End();
    INTERLEAVE_CHECK(runs == 2);
  });
}

// ---- Notified while running ----

// Whoever makes something visible and wakes afterwards is seen, also when the runnable has just looked.
void NotifyWhileRunning(bool sets_first) {
  Device device(1);
  std::atomic<int> posted{0};
  std::atomic<int> inside{0};
  int seen = 0;
  Flag all;
  Kept<Piece> piece([&](RunContext&) {
    INTERLEAVE_CHECK(inside.fetch_add(1) == 0);
    seen = posted.load();
    inside.fetch_sub(1);
    if (seen == 2) all.Set();
    return Outcome::kIdle;
  });
  for (int i = 0; i < 2; ++i) {
    if (sets_first) posted.fetch_add(1);
    device->Wake(*piece);
    if (!sets_first) posted.fetch_add(1);
  }
  all.Wait();
  device->Retire(*piece);
  piece.End();
}

TEST(Notify, WhileRunning) {
  ExpectSound("", {.preemptions = 3}, [] { NotifyWhileRunning(true); });
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, [] { NotifyWhileRunning(true); });
}
TEST(Notify, MutantThatPostsAfterTheWakeUp) {
  ExpectFound(
      "", {}, [] { NotifyWhileRunning(false); }, kDeadlock);
}

TEST(Notify, WhileItIsRequeued) {
  ExpectSound("", {.preemptions = 2}, [] {
    Device device(1);
    std::atomic<int> posted{0};
    int done = 0;
    Flag all;
    Kept<Piece> piece([&](RunContext&) {
      if (done < posted.load()) ++done;
      if (done == 2) all.Set();
      return done < posted.load() ? Outcome::kRequeue : Outcome::kIdle;
    });
    posted.fetch_add(1);
    device->Wake(*piece);
    posted.fetch_add(1);
    device->Wake(*piece);
    all.Wait();
    device->Retire(*piece);
    piece.End();
  });
}

// ---- A queue and its consumer ----

enum class Queue { kSound, kWakesFirst, kTellsBeforeItCounts, kWaiterLooksFirst, kSaysNothing };

// A stream in small: the producer publishes and wakes, whoever runs it drains, a thread waits until all is done.
class SmallStream final : public Runnable {
 public:
  explicit SmallStream(Queue kind, bool attended = false) : Runnable(attended), kind_(kind), attended_(attended) {}

  void Submit(Scheduler& scheduler) {
    if (kind_ == Queue::kWakesFirst) Rouse(scheduler);
    published_.fetch_add(1, std::memory_order_release);
    if (kind_ != Queue::kWakesFirst) Rouse(scheduler);
  }

  bool HasMore() const noexcept override {
    return kind_ != Queue::kSaysNothing && attended_ && published_.load() != completed_.load();
  }
  uint64_t Progress() const noexcept override { return completed_.load(); }

  Outcome Run(RunContext&) override {
    INTERLEAVE_CHECK(inside_.fetch_add(1) == 0);
    uint64_t done = completed_.load(std::memory_order_relaxed);
    for (uint64_t limit; (limit = published_.load(std::memory_order_acquire)) != done;) {
      for (; done != limit; ++done) {
        ++ran;
        if (kind_ == Queue::kTellsBeforeItCounts) Tell();
        completed_.store(done + 1, std::memory_order_release);
      }
    }
    inside_.fetch_sub(1);
    if (kind_ != Queue::kTellsBeforeItCounts) Tell();
    return Outcome::kIdle;
  }

  void Wait(Scheduler& scheduler, bool helps) {
    const uint64_t target = published_.load(std::memory_order_acquire);
    const auto reached = [&] { return completed_.load(std::memory_order_acquire) >= target; };
    while (!reached()) {
      if (helps && scheduler.TryRun(*this)) {
        PreferHelper();
        continue;
      }
      if (kind_ == Queue::kWaiterLooksFirst && reached()) continue;
      waiters_.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t seen = word_.load(std::memory_order_acquire);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (kind_ == Queue::kWaiterLooksFirst || !reached()) FutexWait(word_, seen, std::nullopt);
      waiters_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  void PreferTheOwner() { PreferHelper(); }

  std::atomic<int> ran{0};

 private:
  void Rouse(Scheduler& scheduler) {
    if (attended_) {
      scheduler.Signal(*this);
    } else {
      scheduler.Wake(*this);
    }
  }
  void Tell() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_relaxed) == 0) return;
    word_.fetch_add(1, std::memory_order_release);
    FutexWake(word_, INT_MAX);
  }

  const Queue kind_;
  const bool attended_;
  std::atomic<uint64_t> published_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> word_{0};
  std::atomic<int> inside_{0};
};

void SubmitAndWait(Queue kind, Device::Start start, bool helps, int tasks) {
  Device device(1, start);
  Kept<SmallStream> stream(kind);
  for (int i = 0; i < tasks; ++i) stream->Submit(*device);
  stream->Wait(*device, helps);
  device->Retire(*stream);
  INTERLEAVE_CHECK(stream->ran == tasks);
  stream.End();
}

TEST(Stream, SubmissionMeetsAConsumerThatGoesIdle) {
  ExpectSound("/asleep", {.preemptions = 3}, [] { SubmitAndWait(Queue::kSound, Device::kAsleep, false, 2); });
  ExpectSound("/busy", {.preemptions = 3}, [] { SubmitAndWait(Queue::kSound, Device::kBusy, false, 2); });
  ExpectSound("/helps", {.preemptions = 3}, [] { SubmitAndWait(Queue::kSound, Device::kAsleep, true, 2); });
  ExpectSound("/spins", {.preemptions = 2, .spin_us = 1}, [] { SubmitAndWait(Queue::kSound, Device::kBusy, true, 2); });
}
TEST(Stream, MutantThatWakesBeforeItPublishes) {
  ExpectFound(
      "", {}, [] { SubmitAndWait(Queue::kWakesFirst, Device::kAsleep, false, 1); }, kDeadlock);
}
TEST(Stream, MutantThatTellsBeforeItCounts) {
  ExpectFound(
      "", {}, [] { SubmitAndWait(Queue::kTellsBeforeItCounts, Device::kAsleep, false, 1); }, kDeadlock);
}
TEST(Stream, MutantWaiterThatLooksFirst) {
  ExpectFound(
      "", {}, [] { SubmitAndWait(Queue::kWaiterLooksFirst, Device::kAsleep, false, 1); }, kDeadlock);
}

TEST(Stream, TwoProducers) {
  ExpectSound("", {.preemptions = 2}, [] {
    Device device(1);
    Kept<SmallStream> stream(Queue::kSound);
    std::thread other([&] { stream->Submit(*device); });
    stream->Submit(*device);
    {
      Straight straight;
      other.join();
    }
    stream->Wait(*device, true);
    device->Retire(*stream);
    INTERLEAVE_CHECK(stream->ran == 2);
    stream.End();
  });
}

// ---- Attended by a worker ----

// A worker that has run the stream once looks after it while it spins, then leaves and sleeps; submissions come at any
// time meanwhile and touch nothing but the count. In the end it must have let go.
void SubmitToAttended(Queue kind, bool helps, int tasks, bool retires = true) {
  Device device(1);
  Kept<SmallStream> stream(kind, true);
  for (int i = 0; i < tasks; ++i) {
    stream->Submit(*device);
    stream->Wait(*device, helps);
  }
  if (retires) device->Retire(*stream);
  INTERLEAVE_CHECK(stream->ran == tasks);
  stream.End();
}

TEST(Attention, SubmissionMeetsAWorkerThatLeaves) {
  ExpectSound("", {.preemptions = 2, .spin_us = 1}, [] { SubmitToAttended(Queue::kSound, false, 2); });
  ExpectSound("/longer", {.preemptions = 2, .spin_us = 3}, [] { SubmitToAttended(Queue::kSound, false, 2); });
}
TEST(Attention, HelperMeetsTheWorker) {
  ExpectSound("", {.preemptions = 2, .spin_us = 1}, [] { SubmitToAttended(Queue::kSound, true, 2); });
  ExpectSound("/thrice", {.preemptions = 1, .spin_us = 2}, [] { SubmitToAttended(Queue::kSound, true, 3); });
}
TEST(Attention, MutantThatSubmitsAfterTheSignal) {
  ExpectFound(
      "", {.spin_us = 1}, [] { SubmitToAttended(Queue::kWakesFirst, false, 2); }, kDeadlock);
}
TEST(Attention, MutantThatDoesNotSayThatThereIsMore) {
  ExpectFound(
      "", {.spin_us = 1}, [] { SubmitToAttended(Queue::kSaysNothing, false, 2); }, kDeadlock);
}
TEST(Attention, MutantThatDoesNotRetire) {
  ExpectFound(
      "", {.spin_us = 1}, [] { SubmitToAttended(Queue::kSound, false, 1, false); }, kGone);
}

TEST(Attention, TwoProducers) {
  ExpectSound("", {.preemptions = 2, .spin_us = 1}, [] {
    Device device(1);
    Kept<SmallStream> stream(Queue::kSound, true);
    {
      Straight straight;
      stream->Submit(*device);
      stream->Wait(*device, false);
    }
    std::thread other([&] { stream->Submit(*device); });
    stream->Submit(*device);
    {
      Straight straight;
      other.join();
    }
    stream->Wait(*device, true);
    device->Retire(*stream);
    INTERLEAVE_CHECK(stream->ran == 3);
    stream.End();
  });
}

// The owner takes the work before whoever brings it has put it into the list: an entry that means nothing is left
// there, in which a spinning worker finds the stream that goes.
TEST(Attention, EntryOfAStreamThatGoes) {
  ExpectSound("", {.preemptions = 3, .spin_us = 1}, [] {
    Device device(1, Device::kBusy);
    Kept<SmallStream> stream(Queue::kSound, true);
    std::thread producer([&] {
      stream->PreferTheOwner();
      stream->Submit(*device);
    });
    while (stream->ran == 0) {
      if (!device->TryRun(*stream)) std::this_thread::yield();
    }
    producer.join();
    device->Retire(*stream);
    stream.End();
  });
}

// The worker leaves one stream for another, and both get what they are owed.
TEST(Attention, AnotherStreamComes) {
  ExpectSound("", {.preemptions = 2, .spin_us = 1}, [] {
    Device device(1);
    Kept<SmallStream> first(Queue::kSound, true);
    Kept<SmallStream> second(Queue::kSound, true);
    {
      Straight straight;
      first->Submit(*device);
      first->Wait(*device, false);
    }
    std::thread other([&] { second->Submit(*device); });
    first->Submit(*device);
    first->Wait(*device, false);
    {
      Straight straight;
      other.join();
    }
    second->Wait(*device, false);
    device->Retire(*first);
    device->Retire(*second);
    INTERLEAVE_CHECK(first->ran == 2 && second->ran == 1);
    first.End();
    second.End();
  });
}

// Two workers: only one looks after the stream, and what it is busy with is seen by the other.
TEST(Attention, TwoWorkers) {
  ExpectSound("", {.preemptions = 1, .spin_us = 1}, [] {
    Device device(2);
    Kept<SmallStream> stream(Queue::kSound, true);
    Flag ran;
    Kept<Piece> piece([&](RunContext&) {
      ran.Set();
      return Outcome::kIdle;
    });
    stream->Submit(*device);
    device->Wake(*piece);
    stream->Submit(*device);
    stream->Wait(*device, false);
    ran.Wait();
    device->Retire(*piece);
    device->Retire(*stream);
    INTERLEAVE_CHECK(stream->ran == 2);
    piece.End();
    stream.End();
  });
}

// The two sides of leaving alone: one publishes and asks whether somebody looks, the other says that it goes and looks.
template <bool kSaysFirst>
void PublishMeetsLeave() {
  std::atomic<bool> more{false};
  std::atomic<bool> attended{true};
  Flag woken;
  std::thread worker([&] {
    if (!kSaysFirst && more.load()) woken.Set();
    attended.store(false);
    if (kSaysFirst && more.load()) woken.Set();
  });
  more.store(true);
  if (!attended.load()) woken.Set();
  woken.Wait();
  worker.join();
}

TEST(Attention, SaysThatItLeavesAndLooks) { ExpectSound("", {.preemptions = 3}, PublishMeetsLeave<true>); }
TEST(Attention, MutantThatLooksFirst) { ExpectFound("", {}, PublishMeetsLeave<false>, kDeadlock); }

// ---- Parallel loops ----

struct Sum {
  std::atomic<int> calls{0};
  int covered[4] = {};
  bool splits_update = false;

  static void Body(void* arg, int64_t begin, int64_t end) {
    Sum& sum = *static_cast<Sum*>(arg);
    for (int64_t i = begin; i < end; ++i) ++sum.covered[i];
    if (sum.splits_update) {
      sum.calls.store(sum.calls.load() + 1);
    } else {
      sum.calls.fetch_add(1);
    }
  }
};

void LoopWithHelpers(int workers, bool splits_update) {
  Device device(workers);
  Kept<Sum> sum;
  sum->splits_update = splits_update;
  device->ParallelFor(2, 1, Sum::Body, &*sum);
  INTERLEAVE_CHECK(sum->calls.load() == 2);
  INTERLEAVE_CHECK(sum->covered[0] == 1 && sum->covered[1] == 1);
  sum.End();  // a helper that comes late must not touch it
}

TEST(ParallelFor, HelperJoinsLate) {
  // In slices: a worker looks at a loop that has nothing left to give until its owner has taken it away.
  ExpectSound("", {.preemptions = 2, .slices = true}, [] { LoopWithHelpers(2, false); });
  ExpectSound("/spins", {.preemptions = 1, .spin_us = 1, .slices = true}, [] { LoopWithHelpers(2, false); });
}
TEST(ParallelFor, MutantBodyThatUpdatesInTwoSteps) {
  ExpectFound(
      "", {.slices = true}, [] { LoopWithHelpers(2, true); }, kCheckFailed);
}

// The way in which helpers join and the owner leaves, alone.
template <bool kWaitsForHelpers>
void JoinAndLeave() {
  struct Job {
    std::atomic<int> next{0};
    std::atomic<int> active{0};
    std::atomic<int> done{0};
  };
  SpinLock lock;
  Job* jobs = nullptr;
  const auto work = [](Job& job) {
    while (job.next.fetch_add(1) < 2) job.done.fetch_add(1);
  };
  Kept<Job> job;
  {
    std::lock_guard guard(lock);
    jobs = &*job;
  }
  std::thread helper([&] {
    Job* found = nullptr;
    {
      std::lock_guard guard(lock);
      found = jobs;
      if (found != nullptr) found->active.fetch_add(1);
    }
    if (found == nullptr) return;
    work(*found);
    found->active.fetch_sub(1);
  });
  work(*job);
  {
    std::lock_guard guard(lock);
    jobs = nullptr;
  }
  while (kWaitsForHelpers && job->active.load() != 0) std::this_thread::yield();
  if (kWaitsForHelpers) INTERLEAVE_CHECK(job->done.load() == 2);
  job.End();
  helper.join();
}

TEST(ParallelFor, OwnerWaitsForThoseWhoJoined) { ExpectSound("", {.preemptions = 3}, JoinAndLeave<true>); }
TEST(ParallelFor, MutantOwnerThatLeaves) { ExpectFound("", {}, JoinAndLeave<false>, kGone); }

// ---- Timers ----

// A runnable waits for a condition with a deadline; the condition comes, the timer is cancelled, the runnable goes.
void ConditionMeetsTimer(bool cancels) {
  Device device(1);
  WaitList list;
  std::atomic<bool> holds{false};
  Flag ran;
  bool armed = false;
  const auto deadline = reprise::Clock::now() + std::chrono::milliseconds(1);
  Kept<Piece> piece([&](RunContext& context) {
    if (!armed) {
      armed = true;
      context.scheduler().WakeAt(*context.runnable(), deadline);
    }
    const auto ready = [&] { return holds.load(); };
    if (!ready() && reprise::Clock::now() < deadline &&
        list.AddUnless(ready, context.runnable(), &context.scheduler())) {
      return Outcome::kIdle;
    }
    list.Remove(context.runnable());
    if (cancels) context.scheduler().CancelTimer(*context.runnable());
    ran.Set();
    return Outcome::kIdle;
  });
  device->Wake(*piece);
  holds.store(true);
  list.WakeIfAnnounced();
  ran.Wait();
  if (cancels) {
    device->Retire(*piece);
  } else {
    list.Remove(&*piece);
  }
  piece.End();
  Straight straight;
  Flag never;
  if (!cancels) never.Wait();  // until the timer comes
}

TEST(Timers, ConditionMeetsDeadline) {
  ExpectSound("", {.preemptions = 2, .timeouts = true}, [] { ConditionMeetsTimer(true); });
}
TEST(Timers, MutantThatLeavesTheTimer) {
  ExpectFound(
      "", {.timeouts = true}, [] { ConditionMeetsTimer(false); }, kGone);
}

// The clock reaches an hour only when everybody sleeps: what comes first and what never comes is exact here.
constexpr auto kHour = std::chrono::hours(1);

void TimersInOrder(bool swaps) {
  constexpr size_t kTimers = 3;
  Device device(1);
  Flag last;
  std::string order;
  const auto start = reprise::Clock::now();
  const auto when = [&](size_t i) { return start + static_cast<int>(i + 1) * kHour; };
  std::vector<std::unique_ptr<Piece>> pieces;
  for (size_t i = 0; i < kTimers; ++i) {
    pieces.push_back(std::make_unique<Piece>([&, i](RunContext&) {
      INTERLEAVE_CHECK(swaps || reprise::Clock::now() >= when(i));
      order += static_cast<char>('0' + i);
      if (order.size() == kTimers) last.Set();
      return Outcome::kIdle;
    }));
  }
  for (const size_t i : {2, 0, 1}) device->WakeAt(*pieces[i], when(swaps ? kTimers - 1 - i : i));
  last.Wait();
  Straight straight;
  for (const auto& piece : pieces) device->Retire(*piece);
  INTERLEAVE_CHECK(order == "012");
}

TEST(Timers, FireInTheOrderOfTheirTimes) {
  ExpectSound("", {.preemptions = 2, .timeouts = true}, [] { TimersInOrder(false); });
}
TEST(Timers, MutantWithOtherTimes) {
  ExpectFound(
      "", {.timeouts = true}, [] { TimersInOrder(true); }, kCheckFailed);
}

enum class Timing { kSound, kNotCancelled, kNotReplaced };

// One timer is cancelled, one is set again for sooner and one for later; all of that before the first of them comes.
void CancelAndReplace(Timing timing) {
  Device device(1);
  Flag marked;
  int cancelled = 0;
  int sooner = 0;
  int later = 0;
  const auto counts = [](int& runs) {
    return [&runs](RunContext&) {
      ++runs;
      return Outcome::kIdle;
    };
  };
  Piece to_cancel(counts(cancelled)), to_hasten(counts(sooner)), to_postpone(counts(later));
  Piece marker([&](RunContext&) {
    marked.Set();
    return Outcome::kIdle;
  });
  const auto start = reprise::Clock::now();
  device->WakeAt(to_cancel, start + kHour);
  device->WakeAt(to_hasten, start + 3 * kHour);
  device->WakeAt(to_postpone, start + kHour);
  device->WakeAt(to_hasten, start + kHour);
  if (timing != Timing::kNotReplaced) device->WakeAt(to_postpone, start + 3 * kHour);
  device->WakeAt(marker, start + 2 * kHour);
  if (timing != Timing::kNotCancelled) {
    device->CancelTimer(to_cancel);
    device->CancelTimer(to_cancel);  // harmless
  }
  marked.Wait();
  Straight straight;
  for (Piece* each : {&to_cancel, &to_hasten, &to_postpone, &marker}) device->Retire(*each);
  INTERLEAVE_CHECK(cancelled == 0);
  INTERLEAVE_CHECK(sooner == 1);
  INTERLEAVE_CHECK(later == 0);
}

TEST(Timers, CancelledAndReplacedOnesNeverFire) {
  ExpectSound("", {.preemptions = 2, .timeouts = true}, [] { CancelAndReplace(Timing::kSound); });
}
TEST(Timers, MutantThatCancelsNothing) {
  ExpectFound(
      "", {.timeouts = true}, [] { CancelAndReplace(Timing::kNotCancelled); }, kCheckFailed);
}
TEST(Timers, MutantThatReplacesNothing) {
  ExpectFound(
      "", {.timeouts = true}, [] { CancelAndReplace(Timing::kNotReplaced); }, kCheckFailed);
}

// ---- Taking turns ----

// What asks to be run again goes behind what is queued already. No timeout comes, so no second worker does.
void TakeTurns(bool requeues) {
  Device device(1);
  Flag queued;
  Flag done[2];
  std::string order;
  Piece gate([&](RunContext&) {
    queued.Wait();
    return Outcome::kIdle;
  });
  const auto letter = [&](char name, Flag& ended) {
    return [&order, &ended, requeues, name, left = 3](RunContext&) mutable {
      do {
        order += name;
        if (--left == 0) {
          ended.Set();
          return Outcome::kIdle;
        }
      } while (!requeues);
      return Outcome::kRequeue;
    };
  };
  Piece a(letter('a', done[0])), b(letter('b', done[1]));
  device->Wake(gate);  // keeps the only worker until both are queued
  device->Wake(a);
  device->Wake(b);
  queued.Set();
  for (Flag& each : done) each.Wait();
  Straight straight;
  for (Piece* each : {&gate, &a, &b}) device->Retire(*each);
  INTERLEAVE_CHECK(order == "ababab");
}

TEST(Requeue, LetsOthersRun) {
  ExpectSound("", {.preemptions = 2}, [] { TakeTurns(true); });
}
TEST(Requeue, MutantThatGoesOn) {
  ExpectFound(
      "", {}, [] { TakeTurns(false); }, kCheckFailed);
}

// ---- Stuck worker ----

// The only worker waits in foreign code for something that is queued behind it: the monitor brings another one.
TEST(Monitor, AddsAWorkerWhenAllAreStuck) {
  ExpectSound("", {.preemptions = 2, .timeouts = true}, [] {
    Device device(1);
    Flag ran;
    Kept<Piece> stuck([&](RunContext&) {
      ran.Wait();
      return Outcome::kIdle;
    });
    Kept<Piece> behind([&](RunContext&) {
      ran.Set();
      return Outcome::kIdle;
    });
    device->Wake(*stuck);
    device->Wake(*behind);
    ran.Wait();
    Straight straight;
    device->Retire(*behind);
    device->Retire(*stuck);
  });
}

}  // namespace
}  // namespace interleave
