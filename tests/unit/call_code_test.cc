// SPDX-License-Identifier: Apache-2.0
//
// Machine code for calls of kernels, against the loop over steps that it stands for.
#include "exec/call_code.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/env.h"
#include "device/scheduler.h"
#include "exec/code_choice.h"
#include "exec/replay.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::RunResult;

constexpr int32_t kDevice = 3;

// ---- Kernels ----

/// What a kernel was given; `which` of the functions it was.
using Seen = std::tuple<int, uint32_t, std::string, int32_t, int32_t, const void*, size_t, uint64_t>;
std::vector<Seen> g_seen;
const RepriseKernelContext* g_current = nullptr;  // what a run keeps up to date
std::atomic<uint32_t> g_failed{0};

/// Arguments: a number to be seen, and what to do.
struct Args {
  uint64_t number = 0;
  int32_t code = 0;
  bool fails_others = false;  ///< sets the mark, as another lane would
};
template <int Which>
int32_t Kernel(const RepriseKernelContext* context, const void* args, size_t bytes) {
  Args given;
  if (args != nullptr) given = *static_cast<const Args*>(args);
  g_seen.emplace_back(Which, context->task_id, context->kernel_name, context->device_id, context->stream_id, args,
                      bytes, given.number);
  EXPECT_EQ(context->struct_size, sizeof(RepriseKernelContext));
  EXPECT_EQ(context->block_index, 0u);
  EXPECT_EQ(context->block_count, 1u);
  // Where the compiler expects the stack to be aligned.
  alignas(16) volatile uint64_t aligned[2] = {};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&aligned[0]) % 16, 0u);
  if (given.fails_others) g_failed = CallCode::kFailed;
  return given.code;
}
constexpr RepriseKernelFn kFunctions[] = {Kernel<0>, Kernel<1>, Kernel<2>, Kernel<3>, Kernel<4>};
constexpr const char* kNames[] = {"zero", "one", "two", "three", "four"};

/// A payload that says how it is called; with arguments of its own, elsewhere or none.
struct Called {
  int which;
  const void* args;
  uint32_t bytes;
};
const ir::TaskType kCalled = {.kind = ir::TaskKind::kKernel,
                              .name = "KERNEL",
                              .run =
                                  [](RunContext&, void*) {
                                    ADD_FAILURE() << "called through its type";
                                    return RunResult::kDone;
                                  },
                              .direct =
                                  [](const void* payload, ir::DirectCall& call) {
                                    const auto& called = *static_cast<const Called*>(payload);
                                    call = {kFunctions[called.which], called.args, kNames[called.which], called.bytes};
                                    return true;
                                  },
                              .direct_failed = [](RunContext& context, const void*,
                                                  int32_t code) { context.Fail(Error(code, "the kernel said so")); },
                              .never_waits = true,
                              .operands = ir::NoOperands};
const ir::TaskType kOther = {.kind = ir::TaskKind::kCopy,
                             .name = "COPY",
                             .run = [](RunContext&, void*) { return RunResult::kDone; },
                             .never_waits = true,
                             .operands = ir::NoOperands};

class CallCodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef __x86_64__
    GTEST_SKIP() << "no code for this processor";
#endif
    graph.AddLane(7, 0, ir::kNoNode);
    g_seen.clear();
    g_failed = 0;
  }

  ir::NodeId Add(int which, const Args* args, uint32_t bytes = sizeof(Args)) {
    Called called{which, args, args == nullptr ? 0 : bytes};
    return graph.Add(0, ir::MakeTask(kCalled, called));
  }
  ir::NodeId AddOther() {
    Called called{};
    return graph.Add(0, ir::MakeTask(kOther, called));
  }
  /// Kernels in no regular order, with arguments one behind the other.
  void AddMixed(int count) {
    all.resize(static_cast<size_t>(count));
    uint32_t random = 12345;
    for (Args& args : all) {
      random = random * 1664525 + 1013904223;
      args.number = random;
      Add(static_cast<int>(random >> 16) % 5, &args);
    }
  }

  std::unique_ptr<const CallCode> Make(const Plan& plan, uint32_t least_run = 1) {
    std::unique_ptr<const CallCode> code = CallCode::Make(plan, least_run, kDevice);
    EXPECT_NE(code, nullptr);
    return code;
  }
  /// What the loop would call from step `begin` on.
  std::vector<Seen> Expected(const Plan& plan, uint32_t begin, uint32_t end) {
    std::vector<Seen> expected;
    for (uint32_t i = begin; i != end; ++i) {
      const Step& step = plan.steps()[i];
      const auto* const at = std::find(std::begin(kFunctions), std::end(kFunctions), step.call);
      expected.emplace_back(static_cast<int>(at - std::begin(kFunctions)), step.task_id, step.name, kDevice, 7,
                            step.data, step.args_bytes,
                            step.data == nullptr ? 0 : static_cast<const Args*>(step.data)->number);
    }
    return expected;
  }

  ir::Graph graph;
  std::vector<Args> all;
};

// ---- Code ----

TEST_F(CallCodeTest, GivesKernelsWhatTheLoopGives) {
  AddMixed(300);
  const auto plan = Plan::Compile(graph);
  const auto code = Make(*plan);
  const CallCode::Run* const run = code->Find(0);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->end, 300u);
  for (int round = 0; round < 3; ++round) {
    g_seen.clear();
    EXPECT_EQ(code->Call(*run, g_current, g_failed).step, UINT32_MAX);
    EXPECT_EQ(g_seen, Expected(*plan, 0, 300));
  }
  EXPECT_GE(code->memory_bytes(), 300 * sizeof(RepriseKernelContext));
}

TEST_F(CallCodeTest, ReachesArgumentsAnywhere) {
  void* const far = mmap(reinterpret_cast<void*>(0x100000000000), sizeof(Args), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(far, MAP_FAILED);
  auto* const args = new (far) Args{77};
  Args near[3] = {{1}, {2}, {3}};
  const std::vector<char> large(2 * sizeof(Args) + 3000);
  for (const bool far_first : {false, true}) {
    const ir::NodeId first = far_first ? Add(4, args) : Add(0, &near[0]);
    Add(1, nullptr);
    Add(2, args);
    Add(3, &near[2]);
    Add(3, reinterpret_cast<const Args*>(large.data()), 3000);
    Add(1, &near[1]);
    AddOther();
    const auto plan = Plan::Compile(graph);
    const auto code = Make(*plan);
    const CallCode::Run* const run = code->Find(first);
    ASSERT_NE(run, nullptr);
    g_seen.clear();
    EXPECT_EQ(code->Call(*run, g_current, g_failed).step, UINT32_MAX);
    EXPECT_EQ(g_seen, Expected(*plan, run->begin, run->end));
  }
  munmap(far, sizeof(Args));
}

TEST_F(CallCodeTest, ReachesFunctionsNearAndFar) {
  // Pages lie where libraries do, and this program elsewhere, so that both kinds of calls are there.
  AddMixed(20);
  const auto plan = Plan::Compile(graph);
  void* const near = dlsym(RTLD_DEFAULT, "sched_yield");  // which takes anything and returns 0
  ASSERT_NE(near, nullptr);
  const_cast<Step&>(plan->steps()[10]).call = reinterpret_cast<RepriseKernelFn>(near);
  const auto code = Make(*plan);
  const CallCode::Run* const run = code->Find(0);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(code->Call(*run, g_current, g_failed).step, UINT32_MAX);
  std::vector<Seen> expected = Expected(*plan, 0, 10);
  const std::vector<Seen> behind = Expected(*plan, 11, 20);
  expected.insert(expected.end(), behind.begin(), behind.end());
  EXPECT_EQ(g_seen, expected);
}

TEST_F(CallCodeTest, StopsBehindTheKernelThatFails) {
  AddMixed(25);
  const auto plan = Plan::Compile(graph);
  const auto code = Make(*plan);
  for (uint32_t bad = 0; bad != 25; ++bad) {
    for (const int32_t number : {1, -1, 507015, 256, INT32_MIN}) {
      g_seen.clear();
      all[bad].code = number;
      const CallCode::Stop stop = code->Call(*code->Find(0), g_current, g_failed);
      all[bad].code = 0;
      EXPECT_EQ(stop.step, bad);
      EXPECT_EQ(stop.code, number);
      EXPECT_EQ(g_seen, Expected(*plan, 0, bad + 1));
      ASSERT_NE(g_current, nullptr);
      EXPECT_EQ(g_current->task_id, bad) << "who looks sees what runs";
    }
  }
}

TEST_F(CallCodeTest, StopsWhenAnotherLaneHasFailed) {
  AddMixed(25);
  const auto plan = Plan::Compile(graph);
  const auto code = Make(*plan);
  for (const uint32_t bad : {0u, 7u, 24u}) {
    g_seen.clear();
    all[bad].fails_others = true;
    const CallCode::Stop stop = code->Call(*code->Find(0), g_current, g_failed);
    all[bad].fails_others = false;
    g_failed = 0;
    EXPECT_EQ(stop.step, bad);
    EXPECT_EQ(stop.code, 0);
    EXPECT_EQ(g_seen, Expected(*plan, 0, bad + 1));
  }
}

TEST_F(CallCodeTest, TakesRunsThatAreLongEnough) {
  AddMixed(5);
  AddOther();
  std::vector<Args> more(3);
  for (const Args& args : more) Add(1, &args);
  AddOther();
  std::vector<Args> last(6);
  for (const Args& args : last) Add(2, &args);
  const auto plan = Plan::Compile(graph);
  const auto code = Make(*plan, 5);
  EXPECT_NE(code->Find(0), nullptr);
  EXPECT_EQ(code->Find(1), nullptr) << "only where a run begins";
  EXPECT_EQ(code->Find(6), nullptr) << "too short";
  ASSERT_NE(code->Find(10), nullptr);
  EXPECT_EQ(code->Call(*code->Find(10), g_current, g_failed).step, UINT32_MAX);
  EXPECT_EQ(g_seen, Expected(*plan, 10, 16));
  EXPECT_EQ(CallCode::Count(*plan, 5).calls, 11u);
  EXPECT_EQ(CallCode::Count(*plan, 1).calls, 14u);
  EXPECT_EQ(CallCode::Make(*plan, 7, kDevice), nullptr);
}

TEST_F(CallCodeTest, CountsChangesOfFunctions) {
  const Args args;
  for (const int which : {0, 0, 1, 1, 1, 0, 2}) Add(which, &args);
  const auto plan = Plan::Compile(graph);
  EXPECT_EQ(CallCode::Count(*plan, 1).changes, 3u);
}

TEST_F(CallCodeTest, PagesAreNeverWrittenAndExecuted) {
  AddMixed(2000);
  const auto plan = Plan::Compile(graph);
  const auto code = Make(*plan);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) EXPECT_EQ(line.find(" rwx"), std::string::npos) << line;
}

// ---- In replays ----

/// A stream's part in an execution.
void RunOnce(Replay& replay, device::Scheduler& scheduler) {
  class Driver final : public device::Runnable {
   public:
    explicit Driver(Replay& replay) : replay_(replay) { progress_.ticket = replay.Submit(); }
    Outcome Run(RunContext& context) override {
      if (done_) return Outcome::kIdle;
      context.device_id = kDevice;
      const RunResult result = replay_.Run(context, progress_);
      if (result == RunResult::kParked) return Outcome::kIdle;
      if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
      if (context.failed()) last_error = context.TakeError();
      done_ = true;
      done_.notify_all();
      return Outcome::kIdle;
    }
    void Wait() { done_.wait(false); }
    Status last_error;

   private:
    Replay& replay_;
    Replay::Progress progress_{};
    std::atomic<bool> done_{false};
  } driver(replay);
  scheduler.Wake(driver);
  driver.Wait();
  scheduler.Retire(driver);
}

// Whatever the clock says, and so whether there is code in the end, results are the same.
TEST_F(CallCodeTest, ReplaysAreTheSameBeforeAndBehindTheChoice) {
  AddMixed(200);
  device::Scheduler scheduler(1);
  Replay replay(graph, scheduler);
  for (int i = 0; i < 60; ++i) {
    g_seen.clear();
    if (i % 5 == 4) all[150].code = 507015;
    RunOnce(replay, scheduler);
    all[150].code = 0;
    ASSERT_EQ(g_seen, Expected(replay.plan(), 0, i % 5 == 4 ? 151 : 200)) << i;
  }
}

TEST_F(CallCodeTest, ReplaysAreTheSameWithCodeForAll) {
  AddMixed(200);
  device::Scheduler scheduler(1);
  auto plan = Plan::Compile(graph);
  plan->SetCallCode(CallCode::Make(*plan, 1, kDevice));
  ASSERT_NE(plan->call_code(), nullptr);
  Replay replay(std::move(plan), scheduler);
  for (int i = 0; i < 5; ++i) {
    g_seen.clear();
    if (i == 2) all[100].code = 9;
    RunOnce(replay, scheduler);
    all[100].code = 0;
    ASSERT_EQ(g_seen, Expected(replay.plan(), 0, i == 2 ? 101 : 200)) << i;
  }
}

TEST_F(CallCodeTest, AChangedPlanHasNoCodeThatIsOld) {
  AddMixed(50);
  auto plan = Plan::Compile(graph);
  plan->SetCallCode(CallCode::Make(*plan, 1, kDevice));
  ASSERT_NE(plan->call_code(), nullptr);
  device::Scheduler scheduler(1);
  Replay replay(std::move(plan), scheduler);
  const Args other{99};
  Called called{4, &other, sizeof other};
  graph.Replace(20, ir::MakeTask(kCalled, called));
  ASSERT_TRUE(replay.Patch(graph.changes()));
  RunOnce(replay, scheduler);
  EXPECT_EQ(g_seen, Expected(replay.plan(), 0, 50));
  EXPECT_EQ(std::get<7>(g_seen[20]), 99u);
}

// ---- The choice ----

void Settle(CodeChoice& choice, Plan& plan) {
  for (int i = 0; i < 100 && choice.is_open(); ++i) {
    choice.Begin(plan, kDevice);
    choice.End(false);
  }
  EXPECT_FALSE(choice.is_open());
}

TEST_F(CallCodeTest, OneFunctionAgainAndAgainNeedsNoCode) {
  if (EnvInt(EnvVar::kCallCode) != 1) GTEST_SKIP() << "the program was told how to choose";
  std::vector<Args> args(100);
  for (const Args& one : args) Add(2, &one);
  const auto plan = Plan::Compile(graph);
  CodeChoice choice;
  Settle(choice, *plan);
  EXPECT_EQ(plan->call_code(), nullptr);
}

TEST_F(CallCodeTest, AChangedPlanIsLookedAtAgain) {
  AddMixed(100);
  const auto plan = Plan::Compile(graph);
  CodeChoice choice;
  Settle(choice, *plan);
  choice.Reopen();
  EXPECT_TRUE(choice.is_open());
  Settle(choice, *plan);
}

}  // namespace
}  // namespace reprise::exec
