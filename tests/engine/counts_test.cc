// SPDX-License-Identifier: Apache-2.0
//
// What a launch and a wait cost in things that can be counted: blocks of memory, mutexes, system calls, between the
// first launch and the end of the last wait, in all threads of the process. Times drift; these do not.
#include <dlfcn.h>
#include <pthread.h>
#include <reprise/operation.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine.h"

namespace {

// The bounds, for kOperations of each: launch and wait, launch and wait, … (eager: the waits are one in ten).
constexpr int kOperations = 100;
struct Bound {
  const char* what;
  int64_t allocations;
  int64_t mutexes;       ///< pthread_mutex_lock
  int64_t blocked;       ///< of these, found locked
  int64_t system_calls;  ///< of all threads
};
constexpr Bound kSpinningReplay = {"replay, worker spins", 0, 0, 0, 0};
constexpr Bound kSpinningOperations = {"operations, worker spins", 0, 0, 0, 0};
constexpr Bound kSpinningEager = {"eager, worker spins", 0, 0, 0, 0};
// A wake-up call of the launch, and how the woken worker goes back to sleep: at most three for each operation.
constexpr Bound kSleepingReplay = {"replay, worker sleeps", 0, 0, 0, 300};
constexpr Bound kSleepingOperations = {"operations, worker sleeps", 0, 0, 0, 300};
constexpr Bound kSleepingEager = {"eager, worker sleeps", 0, 0, 0, 300};

// Operations of kOperations replays that a worker may run before the waiting thread comes to them.
constexpr uint64_t kMostElsewhere = 100;

std::atomic<int64_t> g_allocations{0};
std::atomic<int64_t> g_mutexes{0};
std::atomic<int64_t> g_blocked{0};

}  // namespace

// Our functions come first in the order of symbols, for the libraries too. operator new ends in malloc. Sanitizers
// bring their own, which are left in place.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define REPRISE_EXPORT __attribute__((visibility("default")))
extern "C" {
void* __libc_malloc(size_t bytes);                      // NOLINT: names of glibc
void* __libc_calloc(size_t count, size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, size_t bytes);       // NOLINT
void* __libc_memalign(size_t alignment, size_t bytes);  // NOLINT

REPRISE_EXPORT void* malloc(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
REPRISE_EXPORT void* calloc(size_t count, size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
REPRISE_EXPORT void* realloc(void* memory, size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
REPRISE_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
REPRISE_EXPORT int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
REPRISE_EXPORT int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real{nullptr};
  g_mutexes.fetch_add(1, std::memory_order_relaxed);
  if (pthread_mutex_trylock(mutex) == 0) return 0;
  g_blocked.fetch_add(1, std::memory_order_relaxed);
  Lock lock = real.load(std::memory_order_acquire);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    real.store(lock, std::memory_order_release);
  }
  return lock(mutex);
}
}
#endif

namespace reprise::engine {
namespace {

constexpr int kWarm = 300;
constexpr int kAttempts = 9;
constexpr std::chrono::seconds kPatience{60};  // with a machine that is too busy for a good attempt
constexpr const char* kSpin = "1000000";       // longer than anything here takes

// Another way into a graph: an object of the program. Notes on which threads it runs.
struct Places {
  uint64_t here = 0;
  uint64_t elsewhere = 0;
};
class Look final : public Operation {
 public:
  explicit Look(Places& places) : places_(places) {}
  void Run(uint64_t) override { ++(::pthread_equal(self_, ::pthread_self()) != 0 ? places_.here : places_.elsewhere); }
  OperationInfo Describe() const override { return {"look", {}}; }

 private:
  Places& places_;
  const pthread_t self_ = ::pthread_self();
};

// A stream, and a model of a few nodes on it.
class Counts : public Engine {
 protected:
  void SetUp() override {
    Engine::SetUp();
    if (HasFatalFailure()) return;
    stream_ = NewStream();
    cell_ = static_cast<uint64_t*>(NewMemory(8));
    model_ = CaptureChain(stream_, cell_, kNodes);
    MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < kLooks; ++i) LaunchOperation(stream_, std::make_unique<Look>(places_));
    MUST(aclmdlRICaptureEnd(stream_, &looks_));
  }
  void TearDown() override {
    EXPECT_EQ(places_.here + places_.elsewhere, static_cast<uint64_t>(looked_) * kLooks);
    EXPECT_ACL(0, aclmdlRIDestroy(looks_));
    EXPECT_EQ(*cell_, AxpbOf(0, ran_));
    EXPECT_ACL(0, aclmdlRIDestroy(model_));
    EXPECT_ACL(0, aclrtFree(cell_));
    EXPECT_ACL(0, aclrtDestroyStream(stream_));
    Runtime::TearDown();
  }

  // No expectations within: they would be counted.
  void Replays(int count) {
    for (int i = 0; i < count; ++i) {
      failures_ += aclmdlRIExecuteAsync(model_, stream_) != 0 ? 1 : 0;
      failures_ += aclrtSynchronizeStream(stream_) != 0 ? 1 : 0;
    }
    ran_ += int64_t{count} * kNodes;
  }
  void LookReplays(int count) {
    for (int i = 0; i < count; ++i) {
      failures_ += aclmdlRIExecuteAsync(looks_, stream_) != 0 ? 1 : 0;
      failures_ += aclrtSynchronizeStream(stream_) != 0 ? 1 : 0;
    }
    looked_ += count;
  }
  void Launches(int count) {
    for (int i = 0; i < count; ++i) {
      failures_ += Axpb(stream_, cell_) != 0 ? 1 : 0;
      if (i % 10 == 9) failures_ += aclrtSynchronizeStream(stream_) != 0 ? 1 : 0;
    }
    failures_ += aclrtSynchronizeStream(stream_) != 0 ? 1 : 0;
    ran_ += count;
  }

  static constexpr int kNodes = 20;
  static constexpr int kLooks = 10;
  aclrtStream stream_ = nullptr;
  uint64_t* cell_ = nullptr;
  aclmdlRI model_ = nullptr;
  aclmdlRI looks_ = nullptr;
  Places places_;
  int64_t ran_ = 0;
  int64_t looked_ = 0;
  int failures_ = 0;
};

using CountsInChild = Counts;

struct Counted {
  int64_t allocations = INT64_MAX;
  int64_t mutexes = INT64_MAX;
  int64_t blocked = INT64_MAX;
};

bool IsWithin(const Bound& bound, const Counted& counted) {
  return counted.allocations <= bound.allocations && counted.mutexes <= bound.mutexes &&
         counted.blocked <= bound.blocked;
}

// The least of some attempts: on a busy machine a thread may lose its core in the middle of one, for so long that it
// has lost it in all of them; then there are further ones until all is within the bound.
template <class Work>
Counted Count(const Bound& bound, Work work, const std::function<bool()>& all_else_is_well = {}) {
  Counted least;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto is_well = [&] { return IsWithin(bound, least) && (!all_else_is_well || all_else_is_well()); };
  for (int attempt = 0; attempt < kAttempts || (!is_well() && std::chrono::steady_clock::now() < end); ++attempt) {
    if (attempt >= kAttempts) ::sched_yield();
    const int64_t allocations = g_allocations.load();
    const int64_t mutexes = g_mutexes.load();
    const int64_t blocked = g_blocked.load();
    work();
    least.allocations = std::min(least.allocations, g_allocations.load() - allocations);
    least.mutexes = std::min(least.mutexes, g_mutexes.load() - mutexes);
    least.blocked = std::min(least.blocked, g_blocked.load() - blocked);
  }
  return least;
}

void ExpectWithin(const Bound& bound, const Counted& counted) {
  std::printf("%-24s per %d: %lld allocations, %lld mutexes, %lld of them blocked\n", bound.what, kOperations,
              static_cast<long long>(counted.allocations), static_cast<long long>(counted.mutexes),
              static_cast<long long>(counted.blocked));
  EXPECT_LE(counted.allocations, bound.allocations) << bound.what;
  EXPECT_LE(counted.mutexes, bound.mutexes) << bound.what;
  EXPECT_LE(counted.blocked, bound.blocked) << bound.what;
}

TEST_F(CountsInChild, DISABLED_MemoryAndMutexes) {
  const Alarm alarm;
  const bool spins = testing::Child::Argument() == "spins";
  Replays(kWarm);
  const auto expect = [&](const Bound& bound, const auto&... count) { ExpectWithin(bound, Count(bound, count...)); };
  expect(spins ? kSpinningReplay : kSleepingReplay, [&] { Replays(kOperations); });
  if (spins) {
    LookReplays(kWarm);
    // The thread that waits does the work: nothing changes cores.
    uint64_t least = UINT64_MAX;
    const auto look = [&] {
      const uint64_t before = places_.elsewhere;
      LookReplays(kOperations);
      least = std::min(least, places_.elsewhere - before);
    };
    expect(kSpinningOperations, look, [&] { return least <= kMostElsewhere; });
    std::printf("%-24s per %d: %llu of %d ran on another thread\n", kSpinningOperations.what, kOperations,
                static_cast<unsigned long long>(least), kOperations * kLooks);
    EXPECT_LE(least, kMostElsewhere);
  }
  Launches(kWarm);
  expect(spins ? kSpinningEager : kSleepingEager, [&] { Launches(kOperations); });
  EXPECT_EQ(failures_, 0);
}

void InChild(const char* test, const char* spin_us, const std::string& argument) {
  ::setenv("REPRISE_WORKERS", "1", 1);
  ::setenv("REPRISE_SPIN_US", spin_us, 1);
  testing::Child child(test, argument);
  child.Join();
}

TEST(Bounds, OfMemoryAndMutexesWhileAWorkerSpins) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring their own malloc and mutexes";
  InChild("CountsInChild.DISABLED_MemoryAndMutexes", kSpin, "spins");
}
TEST(Bounds, OfMemoryAndMutexesWhileTheWorkerSleeps) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring their own malloc and mutexes";
  InChild("CountsInChild.DISABLED_MemoryAndMutexes", "0", "sleeps");
}

// The counters see what they are there for, in the libraries too.
TEST_F(Counts, SeeAllocationsAndMutexes) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring their own malloc and mutexes";
  const int64_t allocations = g_allocations.load();
  const int64_t mutexes = g_mutexes.load();
  aclmdlRI model = CaptureChain(stream_, cell_, 100);
  EXPECT_GT(g_allocations.load(), allocations);
  EXPECT_GT(g_mutexes.load(), mutexes);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

// ---- System calls ----

// A call that does nothing and that a tracer knows: the end of one phase and the beginning of the next.
constexpr int kMark = -77'000;
void Mark(int phase) { ::syscall(SYS_close, kMark - phase); }

TEST_F(CountsInChild, DISABLED_SystemCalls) {
  const Alarm alarm;
  Replays(kWarm);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Mark(1);
    Replays(kOperations);
    Mark(0);
  }
  Launches(kWarm);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Mark(2);
    Launches(kOperations);
    Mark(0);
  }
  LookReplays(kWarm);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Mark(4);
    LookReplays(kOperations);
    Mark(0);
  }
  Mark(3);
  for (int i = 0; i < 7; ++i) ::syscall(SYS_getppid);
  Mark(0);
  EXPECT_EQ(failures_, 0);
}

using CallCounts = std::map<long, int64_t>;  // by number

int64_t Sum(const CallCounts& calls) {
  int64_t sum = 0;
  for (const auto& [number, count] : calls) sum += count;
  return sum;
}

struct Traced {
  bool permitted = false;
  int status = -1;
  std::map<int, std::vector<CallCounts>> phases;
  CallCounts Least(int phase) {
    auto& attempts = phases[phase];
    const auto least = std::min_element(attempts.begin(), attempts.end(),
                                        [](const auto& a, const auto& b) { return Sum(a) < Sum(b); });
    return least != attempts.end() ? *least : CallCounts{{-1, INT_MAX}};
  }
};

// This program once more, with one test as its body, and every system call of every thread of it.
Traced Trace(const char* test, const char* spin_us) {
  ::setenv("REPRISE_WORKERS", "1", 1);
  ::setenv("REPRISE_SPIN_US", spin_us, 1);
  const std::string filter = std::string("--gtest_filter=") + test;
  char* const arguments[] = {const_cast<char*>("/proc/self/exe"), const_cast<char*>(filter.c_str()),
                             const_cast<char*>("--gtest_also_run_disabled_tests"), const_cast<char*>("--gtest_output="),
                             nullptr};
  constexpr int kNotPermitted = 99;
  Traced traced;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNotPermitted);
    ::execv("/proc/self/exe", arguments);
    ::_exit(kNotPermitted);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return traced;
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SETOPTIONS, child, nullptr, kOptions) != 0) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return traced;
  }
  traced.permitted = true;
  ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  CallCounts calls;
  int phase = 0;
  for (;;) {
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0) break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child) continue;
      traced.status = status;
      break;
    }
    long signal = 0;
    if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info info{};
      if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        const int marked = kMark - static_cast<int>(info.entry.args[0]);
        if (info.entry.nr == SYS_close && marked >= 0 && marked < 100) {
          if (phase != 0) traced.phases[phase].push_back(calls);
          calls.clear();
          phase = marked;
        } else {
          ++calls[static_cast<long>(info.entry.nr)];
        }
      }
    } else if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
      signal = WSTOPSIG(status);
    }
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
  }
  return traced;
}

void ExpectWithin(const Bound& bound, const CallCounts& calls) {
  std::string which;
  for (const auto& [number, count] : calls) {
    which += (number == SYS_futex ? " futex" : " number " + std::to_string(number)) + ": " + std::to_string(count);
  }
  std::printf("%-24s per %d: %lld system calls%s\n", bound.what, kOperations, static_cast<long long>(Sum(calls)),
              which.c_str());
  EXPECT_LE(Sum(calls), bound.system_calls) << bound.what << ":" << which;
}

void CountSystemCalls(const char* spin_us, const Bound& replay, const Bound& eager, const Bound& operations) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make calls of their own";
  const Alarm alarm;
  const std::pair<const Bound&, int> rows[] = {{replay, 1}, {eager, 2}, {operations, 4}};
  Traced all;
  // All attempts of one child take a few milliseconds; a thread may be without a core for longer.
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool within = false; !within;) {
    Traced traced = Trace("CountsInChild.DISABLED_SystemCalls", spin_us);
    if (!traced.permitted) GTEST_SKIP() << "no permission for ptrace here";
    ASSERT_TRUE(WIFEXITED(traced.status) && WEXITSTATUS(traced.status) == 0) << "status " << traced.status;
    EXPECT_EQ(traced.Least(3)[SYS_getppid], 7) << "the tracer itself miscounts";
    within = true;
    for (const auto& [bound, phase] : rows) {
      std::vector<CallCounts>& attempts = all.phases[phase];
      attempts.insert(attempts.end(), traced.phases[phase].begin(), traced.phases[phase].end());
      within = within && Sum(all.Least(phase)) <= bound.system_calls;
    }
    if (std::chrono::steady_clock::now() >= end) break;
  }
  for (const auto& [bound, phase] : rows) ExpectWithin(bound, all.Least(phase));
}

TEST(Bounds, OfSystemCallsWhileAWorkerSpins) {
  if (Cores() < 2) GTEST_SKIP() << "nobody spins on a single core";
  CountSystemCalls(kSpin, kSpinningReplay, kSpinningEager, kSpinningOperations);
}
TEST(Bounds, OfSystemCallsWhileTheWorkerSleeps) {
  CountSystemCalls("0", kSleepingReplay, kSleepingEager, kSleepingOperations);
}

}  // namespace
}  // namespace reprise::engine
