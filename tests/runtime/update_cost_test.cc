// SPDX-License-Identifier: Apache-2.0
//
// What changes of a graph cost: as many instructions as there are changed tasks, however large the graph is, and no
// memory when groups are updated again and again. Counted, not timed; the times are printed.
#include <malloc.h>
#include <reprise/kernel.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <regex>

#include "../unit/scale.h"
#include "fixture.h"

namespace {
std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_allocations{0};
[[maybe_unused]] void Count() {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// In the place of the C library's, for the libraries too.
extern "C" {
void* __libc_malloc(size_t bytes);                      // NOLINT: the library's own names
void* __libc_memalign(size_t alignment, size_t bytes);  // NOLINT
void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
}
#endif

/// What the counter of instructions counts.
extern "C" __attribute__((noinline, visibility("default"))) int Counted(int (*body)(void*), void* argument) {
  return body(argument);
}

namespace reprise::testing {
namespace {

REPRISE_KERNEL(nothing, REPRISE_KERNEL_VECTOR, (uint64_t, uint64_t, uint64_t)) {}
REPRISE_KERNEL(a_kernel_with_a_name_that_is_long, REPRISE_KERNEL_VECTOR, (uint64_t, uint64_t, uint64_t)) {}
const RepriseKernelDesc kKernels[] = {nothing_desc, a_kernel_with_a_name_that_is_long_desc};
const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 2, kKernels};
constexpr char kKey[] = "update_cost_test";
/// Tells the program, started again under a counter of instructions, how many tasks the graph has.
constexpr char kTasksVariable[] = "REPRISE_TEST_TASKS";
constexpr int kChanged = 10;

class UpdateCost : public Runtime {
 protected:
  static void SetUpTestSuite() {
    static const int32_t registered = repriseRegisterKernels(kKey, &kTable);  // once for all suites
    EXPECT_EQ(0, registered);
  }
  void SetUp() override {
    Runtime::SetUp();
    MUST(aclrtBinaryLoadFromData(kKey, sizeof kKey, nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "nothing", &nothing_));
    MUST(aclrtBinaryGetFunction(binary_, "a_kernel_with_a_name_that_is_long", &long_name_));
    stream_ = NewStream();
  }
  void TearDown() override {
    g_counting = false;
    EXPECT_EQ(0, aclrtSynchronizeDevice());
    EXPECT_EQ(0, aclrtDestroyStream(stream_));
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }

  int Launch(aclrtFuncHandle function, uint64_t value) const {
    uint64_t args[] = {value, value, value};
    return aclrtLaunchKernelWithHostArgs(function, 1, stream_, nullptr, args, sizeof args, nullptr, 0);
  }
  /// A graph of so many tasks; a group of so many more.
  aclmdlRI Capture(int tasks, int grouped = 0, aclrtTaskGrp* group = nullptr, uint64_t value = 1) const {
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < tasks; ++i) EXPECT_EQ(0, Launch(nothing_, value));
    if (group != nullptr) {
      EXPECT_EQ(0, aclmdlRICaptureTaskGrpBegin(stream_));
      for (int i = 0; i < grouped; ++i) EXPECT_EQ(0, Launch(nothing_, 1));
      EXPECT_EQ(0, aclmdlRICaptureTaskGrpEnd(stream_, group));
    }
    EXPECT_EQ(0, aclmdlRICaptureEnd(stream_, &model));
    return model;
  }
  static std::vector<aclmdlRITask> TasksOf(aclmdlRI model) {
    aclrtStream stream = nullptr;
    uint32_t count = 1;
    EXPECT_EQ(0, aclmdlRIGetStreams(model, &stream, &count));
    EXPECT_EQ(0, aclmdlRIGetTasksByStream(stream, nullptr, &count));
    std::vector<aclmdlRITask> tasks(count);
    EXPECT_EQ(0, aclmdlRIGetTasksByStream(stream, tasks.data(), &count));
    return tasks;
  }
  int SetParams(aclmdlRITask task, uint64_t value) const {
    uint64_t args[] = {value, value, value};
    aclmdlRITaskParams params{};
    params.type = ACL_MODEL_RI_TASK_KERNEL;
    params.kernelTaskParams.funcHandle = long_name_;
    params.kernelTaskParams.args = args;
    params.kernelTaskParams.isHostArgs = 1;
    params.kernelTaskParams.argsSize = sizeof args;
    params.kernelTaskParams.numBlocks = 1;
    return aclmdlRITaskSetParams(task, &params);
  }
  int UpdateGroup(aclrtTaskGrp group, int kernels, uint64_t value) const {
    int wrong = aclmdlRICaptureTaskUpdateBegin(stream_, group);
    for (int i = 0; i < kernels; ++i) wrong |= Launch(long_name_, value);
    return wrong | aclmdlRICaptureTaskUpdateEnd(stream_);
  }
  void Run(aclmdlRI model) const {
    EXPECT_EQ(0, aclmdlRIExecuteAsync(model, stream_));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle nothing_ = nullptr;
  aclrtFuncHandle long_name_ = nullptr;
  aclrtStream stream_ = nullptr;
};

// ---- Allocations ----

TEST_F(UpdateCost, SteadyUpdatesOfAGroupAllocateNothingPerKernel) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has its own malloc";
  constexpr int kKernelsOfGroup = 100;
  constexpr int kRounds = 50;
  aclrtTaskGrp group = nullptr;
  const aclmdlRI model = Capture(0, kKernelsOfGroup, &group);
  const auto round = [&](uint64_t value) {
    EXPECT_EQ(0, UpdateGroup(group, kKernelsOfGroup, value));
    Run(model);
  };
  g_counting = true;
  round(1);
  EXPECT_GE(g_allocations, kKernelsOfGroup) << "the first contents need a place, or nothing is counted here";
  g_counting = false;
  for (uint64_t i = 2; i < 20; ++i) round(i);
  g_allocations = 0;
  g_counting = true;
  for (uint64_t i = 0; i < kRounds; ++i) round(i);
  g_counting = false;
  EXPECT_LE(g_allocations, 4 * kRounds) << "a few for each update, none for each of its kernels";
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(UpdateCost, SteadyParameterSetsAllocateNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has its own malloc";
  const aclmdlRI model = Capture(100);
  const auto tasks = TasksOf(model);
  const auto round = [&](uint64_t value) {
    for (const aclmdlRITask task : tasks) EXPECT_EQ(0, SetParams(task, value));
    EXPECT_EQ(0, aclmdlRIUpdate(model));
  };
  for (uint64_t i = 0; i < 3; ++i) round(i);
  g_allocations = 0;
  g_counting = true;
  for (uint64_t i = 0; i < 20; ++i) round(i);
  g_counting = false;
  EXPECT_EQ(g_allocations, 0);
  Run(model);
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

// ---- Instructions ----

// Under the counter: changes and disables tasks of a graph of REPRISE_TEST_TASKS tasks, all over it.
// Disabled, because it is for InstructionsFollowTheChangesAlone alone.
TEST_F(UpdateCost, DISABLED_CountedChild) {
  const char* tasks_text = std::getenv(kTasksVariable);
  ASSERT_NE(tasks_text, nullptr);
  const int size = std::atoi(tasks_text);
  const auto address = [](void* block) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(block)); };
  void* const kept = NewMemory(4096);
  void* const first = NewMemory(4096);
  void* const second = NewMemory(4096);
  const aclmdlRI model = Capture(size, 0, nullptr, address(kept));
  const auto tasks = TasksOf(model);
  const auto change = [&](uint64_t value) {
    int wrong = 0;
    for (int i = 0; i < kChanged; ++i) {
      const aclmdlRITask task = tasks[static_cast<size_t>(size) * static_cast<size_t>(i) / kChanged];
      wrong |= i % 5 == 4 ? aclmdlRITaskDisable(task) : SetParams(task, value);
    }
    return wrong | aclmdlRIUpdate(model);
  };
  EXPECT_EQ(0, change(address(first)));
  EXPECT_EQ(0, aclrtFree(NewMemory(4096)));
  Run(model);  // looks at all tasks, because memory was freed
  // Counted: the changes, the end of memory that only the changed tasks have used, and the next launch.
  auto counted = [&] {
    const int wrong = change(address(second)) | aclrtFree(first);
    return wrong | aclmdlRIExecuteAsync(model, stream_);
  };
  EXPECT_EQ(0, Counted([](void* body) { return (*static_cast<decltype(counted)*>(body))(); }, &counted));
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(0, aclmdlRIDestroy(model));
  EXPECT_EQ(0, aclrtFree(kept));
  EXPECT_EQ(0, aclrtFree(second));
}

/// Instructions inside of Counted while the test above runs; -1 when nothing was counted.
int64_t InstructionsFor(int tasks) {
  std::string self(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  self.resize(length > 0 ? static_cast<size_t>(length) : 0);
  const std::string command =
      std::string(kTasksVariable) + "=" + std::to_string(tasks) +
      " valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=Counted " + self +
      " --gtest_output= --gtest_also_run_disabled_tests --gtest_filter=UpdateCost.*CountedChild 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  std::string output;
  char part[4096];
  for (size_t got; (got = std::fread(part, 1, sizeof part, pipe)) != 0;) output.append(part, got);
  EXPECT_EQ(0, ::pclose(pipe)) << output;
  std::smatch found;
  if (!std::regex_search(output, found, std::regex("Collected : (\\d+)"))) return -1;
  return std::stoll(found[1]);
}

TEST_F(UpdateCost, InstructionsFollowTheChangesAlone) {
  if (kSanitized) GTEST_SKIP() << "valgrind and sanitizers do not go together";
  if (std::system("valgrind --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "valgrind is not installed: nothing counts instructions here";
  }
  const int64_t small = InstructionsFor(1'000);
  const int64_t large = InstructionsFor(100'000);
  std::printf("%d changes, their update and a launch take %lld instructions in 1,000 tasks, %lld in 100,000\n",
              kChanged, static_cast<long long>(small), static_cast<long long>(large));
  ASSERT_GT(small, 0) << "nothing was counted";
  EXPECT_LT(large, 2 * small);
}

// ---- Times ----

TEST_F(UpdateCost, TimesForTheReader) {
  using Clock = std::chrono::steady_clock;
  const int tasks_of_graph = Loops(100'000, 2'000);
  const int changed = Loops(1'000, 100);
  aclrtTaskGrp group = nullptr;
  const aclmdlRI model = Capture(tasks_of_graph, changed, &group);
  const auto tasks = TasksOf(model);
  const auto best_of = [&](auto body) {
    double best = 1e30;
    for (uint64_t i = 0; i < 15; ++i) {
      const auto start = Clock::now();
      body(i);
      best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    return best / changed;
  };
  const size_t stride = static_cast<size_t>(tasks_of_graph / changed);
  const double set = best_of([&](uint64_t value) {
    for (int i = 0; i < changed; ++i) EXPECT_EQ(0, SetParams(tasks[static_cast<size_t>(i) * stride], value));
  });
  EXPECT_EQ(0, aclmdlRIUpdate(model));
  double update = 1e30;
  for (uint64_t round = 0; round < 15; ++round) {
    for (int i = 0; i < changed; ++i) EXPECT_EQ(0, SetParams(tasks[static_cast<size_t>(i) * stride], round));
    const auto start = Clock::now();
    EXPECT_EQ(0, aclmdlRIUpdate(model));
    update = std::min(update, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / changed);
  }
  EXPECT_EQ(0, UpdateGroup(group, changed, 1));
  EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  const double grouped = best_of([&](uint64_t value) {
    EXPECT_EQ(0, UpdateGroup(group, changed, value));
    EXPECT_EQ(0, aclrtSynchronizeStream(stream_));
  });
  // What a run of a replaceable kernel costs, against a kernel that stays.
  const aclmdlRI plain = Capture(changed);
  aclrtTaskGrp other = nullptr;
  const aclmdlRI replaceable = Capture(0, changed, &other);
  const double plain_run = best_of([&](uint64_t) { Run(plain); });
  const double replaceable_run = best_of([&](uint64_t) { Run(replaceable); });
  std::printf(
      "of %d tasks, each of %d: set %.1f ns, update %.1f ns; group update %.1f ns to its end; "
      "run %.2f ns, in a group %.2f ns\n",
      tasks_of_graph, changed, set, update, grouped, plain_run, replaceable_run);
  for (const aclmdlRI each : {model, plain, replaceable}) EXPECT_EQ(0, aclmdlRIDestroy(each));
}

}  // namespace
}  // namespace reprise::testing
