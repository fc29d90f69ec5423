// SPDX-License-Identifier: Apache-2.0
//
// Machines that are not made for us: one core, far more busy threads than cores, a worker that loses its core in the
// middle of a graph, and a machine on which nothing is to do. Each test runs in a process of its own, because the
// number of cores and workers is read once.
#include <sys/resource.h>
#include <sys/time.h>

#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "engine.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Threads that compute for nothing, as the program's other threads may do.
class Hogs {
 public:
  explicit Hogs(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Hogs() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

class MachineInChild : public Engine {
 protected:
  uint64_t* NewCells(size_t count) { return static_cast<uint64_t*>(NewMemory(count * 8)); }
  int Sync(aclrtStream stream) { return aclrtSynchronizeStream(stream); }
};

void InChild(const std::string& test, const char* workers = nullptr) {
  if (workers != nullptr) ::setenv("REPRISE_WORKERS", workers, 1);
  testing::Child child("MachineInChild.DISABLED_" + test, "");
  ::unsetenv("REPRISE_WORKERS");
  child.Join();
}

// ---- One core ----

TEST_F(MachineInChild, DISABLED_OneCore) {
  const Alarm alarm;
  ASSERT_EQ(Cores(), 1);
  const int rounds = Loops(300, 30);
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  uint64_t* const cells = NewCells(4);
  const aclmdlRI chain = CaptureChain(origin, cells, 50);
  const aclmdlRI forks = CaptureForks(origin, forked, cells + 1, 4, 5);
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(chain, origin), 0);
    ASSERT_EQ(aclmdlRIExecuteAsync(forks, forked), 0);
    ASSERT_EQ(Sync(origin), 0);
    ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(forked, 60'000), 0);  // does not help
  }
  EXPECT_EQ(cells[0], AxpbOf(0, rounds * 50));
  EXPECT_EQ(cells[1], AxpbOf(0, rounds * 4 * 5));
  EXPECT_EQ(cells[2], AxpbOf(0, rounds * 4 * 5));

  // Host functions, eager and captured; one waits for what another stream does.
  std::atomic<int> calls{0};
  const auto count = [](void* at) { static_cast<std::atomic<int>*>(at)->fetch_add(1); };
  aclmdlRI host = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  ASSERT_EQ(aclrtLaunchHostFunc(origin, count, &calls), 0);
  ASSERT_EQ(Axpb(origin, cells + 3, 1, 1), 0);
  ASSERT_EQ(aclrtLaunchHostFunc(origin, count, &calls), 0);
  ASSERT_EQ(aclmdlRICaptureEnd(origin, &host), 0);
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(host, origin), 0);
    ASSERT_EQ(aclrtLaunchHostFunc(forked, count, &calls), 0);
  }
  ASSERT_EQ(Sync(origin), 0);
  ASSERT_EQ(Sync(forked), 0);
  EXPECT_EQ(calls.load(), 3 * rounds);
  testing::Gate gate;
  gate.Block(origin);
  ASSERT_EQ(aclrtLaunchHostFunc(
                forked, [](void* at) { static_cast<std::atomic<int>*>(at)->store(-1); }, &calls),
            0);
  ASSERT_EQ(Sync(forked), 0);  // although the only worker may be held up
  EXPECT_EQ(calls.load(), -1);
  gate.Open();
  ASSERT_EQ(Sync(origin), 0);

  // Streams that wait for each other's events in turn.
  aclrtEvent events[2] = {};
  for (aclrtEvent& event : events) ASSERT_EQ(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), 0);
  *cells = 0;
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(Axpb(origin, cells), 0);
    ASSERT_EQ(aclrtRecordEvent(events[0], origin), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(forked, events[0]), 0);
    ASSERT_EQ(Axpb(forked, cells), 0);
    ASSERT_EQ(aclrtRecordEvent(events[1], forked), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(origin, events[1]), 0);
  }
  ASSERT_EQ(Sync(origin), 0);
  EXPECT_EQ(*cells, AxpbOf(0, 2 * rounds));
  for (const aclrtEvent event : events) EXPECT_EQ(aclrtDestroyEvent(event), 0);
  for (const aclmdlRI model : {chain, forks, host}) EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(Sync(forked), 0);
}

// Children inherit the cores.
TEST(Machine, WithOneCore) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (core < CPU_SETSIZE && !CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  InChild("OneCore");
  InChild("OneCore", "3");  // more workers than cores
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// ---- Oversubscription ----

TEST_F(MachineInChild, DISABLED_Oversubscribed) {
  const Alarm alarm;
  constexpr int kThreads = 8;
  const int replays = Loops(60, 10);
  const Hogs hogs(4 * Cores());
  const aclrtStream origin = NewStream();
  uint64_t* const shared_cell = NewCells(1);
  const aclmdlRI shared = CaptureChain(origin, shared_cell, 10);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&] {
      EXPECT_EQ(aclrtSetCurrentContext(context_), 0);
      const aclrtStream own = NewStream();
      const aclrtStream forked = NewStream();
      uint64_t* const cells = NewCells(2);
      const aclmdlRI model = CaptureForks(own, forked, cells, 3, 4);
      start.arrive_and_wait();
      for (int i = 0; i < replays; ++i) {
        EXPECT_EQ(aclmdlRIExecuteAsync(model, own), 0);
        EXPECT_EQ(aclmdlRIExecuteAsync(shared, own), 0);
        if (i % 4 == 0) {
          EXPECT_EQ(Sync(own), 0);
        }
      }
      EXPECT_EQ(Sync(own), 0);
      EXPECT_EQ(cells[0], AxpbOf(0, replays * 3 * 4));
      EXPECT_EQ(cells[1], AxpbOf(0, replays * 3 * 4));
      EXPECT_EQ(aclmdlRIDestroy(model), 0);
      EXPECT_EQ(aclrtFree(cells), 0);
      EXPECT_EQ(aclrtDestroyStream(own), 0);
      EXPECT_EQ(aclrtDestroyStream(forked), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*shared_cell, AxpbOf(0, int64_t{kThreads} * replays * 10));
  EXPECT_EQ(aclmdlRIDestroy(shared), 0);
}

TEST(Machine, Oversubscribed) { InChild("Oversubscribed"); }

// ---- Descheduled ----

// A kernel of one lane does not return: the other lane goes on up to the join, other streams go on altogether, and the
// replay ends when the kernel does.
TEST_F(MachineInChild, DISABLED_KernelThatTakesLong) {
  const Alarm alarm;
  struct Slow {
    std::atomic<bool> entered{false};
    std::atomic<bool> open{false};
  } slow;
  const auto wait = [](void* at) {
    auto& [entered, open] = *static_cast<Slow*>(at);
    entered.store(true);
    entered.notify_all();
    open.wait(false);
  };
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  const aclrtStream other = NewStream();
  uint64_t* const cells = NewCells(3);
  aclrtEvent fork = nullptr;
  aclrtEvent join = nullptr;
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  ASSERT_EQ(aclrtRecordEvent(fork, origin), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(forked, fork), 0);
  ASSERT_EQ(Axpb(forked, cells), 0);
  ASSERT_EQ(Call(forked, wait, &slow), 0);
  ASSERT_EQ(Axpb(forked, cells), 0);
  ASSERT_EQ(Axpb(origin, cells + 1), 0);
  ASSERT_EQ(aclrtRecordEvent(join, forked), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(origin, join), 0);
  ASSERT_EQ(Axpb(origin, cells), 0);
  ASSERT_EQ(aclmdlRICaptureEnd(origin, &model), 0);
  const aclmdlRI chain = CaptureChain(other, cells + 2, 20);

  ASSERT_EQ(aclmdlRIExecuteAsync(model, origin), 0);
  slow.entered.wait(false);
  const int replays = Loops(500, 50);
  for (int i = 0; i < replays; ++i) {
    ASSERT_EQ(aclmdlRIExecuteAsync(chain, other), 0);
    ASSERT_EQ(Sync(other), 0);
  }
  EXPECT_EQ(cells[2], AxpbOf(0, replays * 20));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(origin, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  slow.open.store(true);
  slow.open.notify_all();
  ASSERT_EQ(Sync(origin), 0);
  EXPECT_EQ(cells[0], AxpbOf(0, 3));
  EXPECT_EQ(cells[1], AxpbOf(0, 1));
  for (const aclmdlRI done : {model, chain}) EXPECT_EQ(aclmdlRIDestroy(done), 0);
  for (const aclrtEvent event : {fork, join}) EXPECT_EQ(aclrtDestroyEvent(event), 0);
}

// A worker gets its core only when nobody else wants it, and others always do. What it holds it gives back late, but it
// does; what others can do, they do.
TEST_F(MachineInChild, DISABLED_WorkerWithoutACore) {
  const Alarm alarm;
  const auto step_back = [](void* done) {
    const sched_param none{};
    // On a worker only: the thread that synchronises must go on as it is.
    if (::gettid() != ::getpid()) sched_setscheduler(0, SCHED_IDLE, &none);
    static_cast<std::atomic<int>*>(done)->fetch_add(1);
  };
  std::atomic<int> stepped_back{0};
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  uint64_t* const cells = NewCells(2);
  ASSERT_EQ(aclrtLaunchHostFunc(origin, step_back, &stepped_back), 0);  // foreign code runs on workers
  ASSERT_EQ(Sync(origin), 0);
  ASSERT_EQ(stepped_back.load(), 1);
  const aclmdlRI model = CaptureForks(origin, forked, cells, 5, 10);
  const Hogs hogs(Cores());
  // Seconds may pass before such a worker gets its core again, on a machine that has other things to do, too: as many
  // replays as there is time for.
  const int most_replays = Loops(20, 4);
  int replays = 0;
  const auto begin = Clock::now();
  while (replays == 0 || (replays < most_replays && Clock::now() < begin + std::chrono::seconds(5))) {
    ++replays;
    ASSERT_EQ(aclmdlRIExecuteAsync(model, origin), 0);
    ASSERT_EQ(Sync(origin), 0);
  }
  std::printf("%d replays with a worker without a core: %lld ms\n", replays,
              static_cast<long long>(std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count()));
  EXPECT_EQ(cells[0], AxpbOf(0, replays * 5 * 10));
  EXPECT_EQ(cells[1], AxpbOf(0, replays * 5 * 10));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST(Machine, WithAKernelThatTakesLong) {
  InChild("KernelThatTakesLong", "2");
  InChild("KernelThatTakesLong", "1");
}
TEST(Machine, WithAWorkerWithoutACore) {
  InChild("WorkerWithoutACore", "2");
  InChild("WorkerWithoutACore", "1");
}

// ---- Idle ----

int64_t CpuUs() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * int64_t{1'000'000} + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

// Ten milliseconds after the last launch nothing spins any more.
TEST_F(MachineInChild, DISABLED_Idle) {
  const Alarm alarm;
  const aclrtStream origin = NewStream();
  const aclrtStream forked = NewStream();
  uint64_t* const cells = NewCells(2);
  const aclmdlRI model = CaptureForks(origin, forked, cells, 3, 10);
  constexpr milliseconds kPause{10};
  constexpr milliseconds kIdle{200};
  constexpr int64_t kMostUs = 200'000 / 50;  // 2% of a core
  // A busy machine lets threads go to sleep late, in the middle of the time that is measured, so the first good try
  // counts. Each begins with replays, and what spins for longer than the pause spins behind each.
  int64_t least = INT64_MAX;
  int replays = 0;
  const auto end = Clock::now() + std::chrono::seconds(60);
  while (replays == 0 || (least >= kMostUs && Clock::now() < end)) {
    for (int i = 0; i < 50; ++i, ++replays) {
      ASSERT_EQ(aclmdlRIExecuteAsync(model, origin), 0);
      ASSERT_EQ(Sync(origin), 0);
    }
    // The sleeps are the subject here: the time in which nothing may happen.
    std::this_thread::sleep_for(kPause);
    const int64_t before = CpuUs();
    std::this_thread::sleep_for(kIdle);
    least = std::min(least, CpuUs() - before);
  }
  std::printf("%lld us of CPU time within %d ms of nothing to do\n", static_cast<long long>(least),
              static_cast<int>(kIdle.count()));
  EXPECT_LT(least, kMostUs);
  EXPECT_EQ(cells[0], AxpbOf(0, replays * 3 * 10));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST(Machine, WithNothingToDo) { InChild("Idle"); }

}  // namespace
}  // namespace reprise::engine
