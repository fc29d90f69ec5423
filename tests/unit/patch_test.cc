// SPDX-License-Identifier: Apache-2.0
//
// Plans that are brought up to date in place, against plans that are compiled anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "device/scheduler.h"
#include "exec/replay.h"
#include "scale.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::RunResult;
using testing::Loops;

// ---- Tasks ----

// Every task writes its mark behind those of the tasks before it in its lane.
struct Mark {
  std::vector<uint64_t>* log;
  uint64_t mark;
};
void Write(const Mark& mark) { mark.log->push_back(mark.mark); }

RunResult RunMark(RunContext&, void* payload) {
  Write(*static_cast<Mark*>(payload));
  return RunResult::kDone;
}
int32_t CallMark(const RepriseKernelContext*, const void* args, size_t) {
  Write(*static_cast<const Mark*>(args));
  return 0;
}
bool DirectMark(const void* payload, ir::DirectCall& call) {
  call = {CallMark, payload, "mark", sizeof(Mark)};
  return static_cast<const Mark*>(payload)->mark % 4 != 0;  // as kernels of several blocks, some are no single call
}
void CallFailed(RunContext& context, const void*, int32_t code) { context.Fail(Error(code, "failed")); }

const ir::TaskType kKernelMark = {.kind = ir::TaskKind::kKernel,
                                  .name = "KERNEL",
                                  .run = RunMark,
                                  .direct = DirectMark,
                                  .direct_failed = CallFailed,
                                  .operands = ir::NoOperands};
const ir::TaskType kCopyMark = {
    .kind = ir::TaskKind::kCopy, .name = "COPY", .run = RunMark, .operands = ir::NoOperands};
const ir::TaskType kWriteMark = {
    .kind = ir::TaskKind::kValueWrite, .name = "WRITE", .run = RunMark, .operands = ir::NoOperands};
const ir::TaskType kWaitMark = {
    .kind = ir::TaskKind::kValueWait, .name = "WAIT", .run = RunMark, .operands = ir::NoOperands};

struct Edge {
  ir::NodeId record;
  uint32_t event_id = 0;
  uint32_t event_flag = 0;
};
static_assert(sizeof(Edge) == sizeof(ir::EdgePayload));

// ---- Compare ----

/// A step as far as its effect goes.
using Effect = std::tuple<int, const void*, const void*, const void*, uint64_t, uint32_t, uint32_t>;
Effect EffectOf(const Step& step) {
  const bool ordering = step.kind == Step::kWait || step.kind == Step::kPublish;
  const void* code = step.kind == Step::kCall ? reinterpret_cast<const void*>(step.call)
                     : ordering               ? nullptr
                                              : reinterpret_cast<const void*>(step.run);
  return {step.kind,
          code,
          ordering ? nullptr : step.data,
          ordering ? nullptr : static_cast<const void*>(step.type),  // or the name: they share their place
          ordering ? uint64_t{step.target.lane} << 32 | step.target.position : 0,
          step.task_id,
          step.args_bytes};
}
std::vector<std::vector<Effect>> EffectsOf(const Plan& plan) {
  std::vector<std::vector<Effect>> lanes;
  for (const PlanLane& lane : plan.lanes()) {
    auto& effects = lanes.emplace_back();
    for (uint32_t i = lane.begin; i != lane.end; ++i) {
      if (plan.steps()[i].kind != Step::kSkip) effects.push_back(EffectOf(plan.steps()[i]));
    }
  }
  return lanes;
}

size_t Count(const Plan& plan, Step::Kind kind) {
  return static_cast<size_t>(
      std::count_if(plan.steps().begin(), plan.steps().end(), [&](const Step& step) { return step.kind == kind; }));
}

/// Runs a replay once, as a stream does.
class Driver final : public device::Runnable {
 public:
  explicit Driver(Replay& replay) : replay_(replay) { progress_.ticket = replay.Submit(); }
  Outcome Run(RunContext& context) override {
    if (done_) return Outcome::kIdle;
    const RunResult result = replay_.Run(context, progress_);
    if (result == RunResult::kParked) return Outcome::kIdle;
    if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
    done_ = true;
    done_.notify_all();
    return Outcome::kIdle;
  }
  void RunOnce(device::Scheduler& scheduler) {
    scheduler.Wake(*this);
    done_.wait(false);
    scheduler.Retire(*this);
  }

 private:
  Replay& replay_;
  Replay::Progress progress_{};
  std::atomic<bool> done_{false};
};

// ---- Graph ----

struct RandomGraph {
  explicit RandomGraph(unsigned seed) : random(seed) {
    const size_t lanes = 1 + random() % 4;
    logs.resize(lanes);
    for (size_t lane = 0; lane < lanes; ++lane) {
      graph.AddLane(static_cast<int32_t>(lane), static_cast<int32_t>(lane), ir::kNoNode);
    }
    std::vector<ir::NodeId> records;
    const size_t length = 1 + random() % 60;
    for (size_t i = 0; i < length; ++i) {
      const auto lane = static_cast<ir::LaneId>(random() % lanes);
      const auto next = static_cast<ir::NodeId>(graph.nodes().size());
      switch (random() % 6) {
        case 0: {
          Edge edge{next};
          records.push_back(graph.Add(lane, ir::MakeTask(ir::kEdgeRecord, edge)));
          break;
        }
        case 1: {
          if (records.empty()) break;
          Edge edge{records[random() % records.size()]};
          graph.Add(lane, ir::MakeTask(ir::kEdgeWait, edge));
          break;
        }
        case 2: {
          Mark mark = NewMark(lane);
          graph.MakeSlot(graph.Add(lane, ir::MakeTask(kKernelMark, mark)));
          break;
        }
        case 3: {
          Mark mark = NewMark(lane);
          graph.Add(lane, ir::MakeTask(kCopyMark, mark));
          break;
        }
        default: {
          Mark mark = NewMark(lane);
          graph.Add(lane, ir::MakeTask(kKernelMark, mark));
        }
      }
    }
    for (const ir::NodeId record : records) {
      Edge edge{record};
      graph.Add(0, ir::MakeTask(ir::kEdgeReset, edge));
    }
  }

  Mark NewMark(ir::LaneId lane) { return {&logs[lane], ++last_mark}; }

  /// Changes a node at random; true when a plan cannot follow by the step of that node alone.
  bool Change() {
    const auto id = static_cast<ir::NodeId>(random() % graph.nodes().size());
    const ir::Node before = graph.node(id);
    const bool was_edge = before.type->run == nullptr;
    if (random() % 4 == 0) {
      graph.Disable(id);
      return false;
    }
    Mark mark = NewMark(before.lane);
    const bool is_kernel = before.type->kind == ir::TaskKind::kKernel;
    const ir::TaskType& type = is_kernel && random() % 3 != 0 ? kKernelMark
                               : random() % 3 == 0            ? kWaitMark
                                                              : kWriteMark;
    graph.Replace(id, ir::MakeTask(type, mark));
    if (was_edge) return true;
    return type.kind == ir::TaskKind::kValueWait && before.type != &type && !before.disabled;
  }

  /// What a run writes into the logs of the lanes.
  std::vector<std::vector<uint64_t>> Oracle() const {
    std::vector<std::vector<uint64_t>> expected(logs.size());
    for (const ir::Node& node : graph.nodes()) {
      if (node.disabled || node.type->run == nullptr) continue;
      const void* payload = node.payload;
      if (ir::IsSlot(node.type)) payload = static_cast<const ir::SlotPayload*>(payload)->slot->Current()->payload();
      expected[node.lane].push_back(static_cast<const Mark*>(payload)->mark);
    }
    return expected;
  }

  std::mt19937 random;
  std::vector<std::vector<uint64_t>> logs;
  uint64_t last_mark = 0;
  ir::Graph graph;
};

// ---- Tests ----

TEST(Patch, MatchesACompiledPlanAfterRandomChanges) {
  device::Scheduler scheduler(2);
  size_t patched = 0;
  size_t compiled = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(1500, 150)); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    if (random.graph.nodes().empty()) continue;
    auto replay = std::make_unique<Replay>(Plan::Compile(random.graph), scheduler);
    for (int round = 0; round < 6; ++round) {
      bool structural = false;
      const size_t changes = 1 + random.random() % (round % 2 == 0 ? 2 : 8);
      for (size_t i = 0; i < changes; ++i) structural |= random.Change();
      const bool followed = replay->Patch(random.graph.changes());
      if (!structural) {
        EXPECT_TRUE(followed) << "nothing but steps of their own has changed";
      }
      if (!followed) replay = std::make_unique<Replay>(Plan::Compile(random.graph), scheduler);
      ++(followed ? patched : compiled);
      random.graph.ForgetChanges();
      ASSERT_EQ(EffectsOf(replay->plan()), EffectsOf(*Plan::Compile(random.graph)));
      const auto expected = random.Oracle();
      Driver(*replay).RunOnce(scheduler);
      ASSERT_EQ(random.logs, expected);
      for (auto& log : random.logs) log.clear();
    }
  }
  EXPECT_GT(patched, compiled / 4) << "both ways are worth something only if both are gone";
  EXPECT_GT(compiled, 0u);
}

class OneLane : public ::testing::Test {
 protected:
  void SetUp() override {
    graph.AddLane(0, 0, ir::kNoNode);
    for (uint64_t i = 1; i <= 5; ++i) AddMark(2 * i + 1);
    plan = Plan::Compile(graph);
  }
  ir::NodeId AddMark(uint64_t value) {
    Mark mark{&log, value};
    return graph.Add(0, ir::MakeTask(kKernelMark, mark));
  }
  void Replace(ir::NodeId node, const ir::TaskType& type, uint64_t value) {
    Mark mark{&log, value};
    graph.Replace(node, ir::MakeTask(type, mark));
  }

  std::vector<uint64_t> log;
  ir::Graph graph;
  std::unique_ptr<Plan> plan;
};

TEST_F(OneLane, ChangesAreListedOnceUntilTheyAreForgotten) {
  EXPECT_TRUE(graph.changes().empty());
  for (int i = 0; i < 3; ++i) Replace(2, kKernelMark, 21);
  graph.Disable(4);
  graph.Disable(4);
  EXPECT_EQ(graph.changes(), (std::vector<ir::NodeId>{2, 4}));
  graph.ForgetChanges();
  EXPECT_TRUE(graph.changes().empty());
  Replace(2, kKernelMark, 23);
  EXPECT_EQ(graph.changes(), (std::vector<ir::NodeId>{2}));
}

TEST_F(OneLane, ADisabledTaskTakesNoMoreThanItsStep) {
  for (const ir::NodeId node : {0u, 2u, 4u}) graph.Disable(node);
  ASSERT_TRUE(plan->Patch(graph.changes()));
  EXPECT_EQ(plan->steps().size(), 5u);
  EXPECT_EQ(Count(*plan, Step::kSkip), 3u);
  device::Scheduler scheduler(1);
  Replay replay(std::move(plan), scheduler);
  Driver(replay).RunOnce(scheduler);
  EXPECT_EQ(log, (std::vector<uint64_t>{5, 9}));
}

TEST_F(OneLane, ADisabledTaskStaysDisabledWhenItIsReplaced) {
  graph.Disable(2);
  ASSERT_TRUE(plan->Patch(graph.changes()));
  graph.ForgetChanges();
  Replace(2, kWriteMark, 50);
  ASSERT_TRUE(plan->Patch(graph.changes()));
  EXPECT_EQ(EffectsOf(*plan), EffectsOf(*Plan::Compile(graph)));
}

TEST_F(OneLane, AWaitWhereNoneWasNeedsANewPlan) {
  Replace(1, kWaitMark, 7);
  EXPECT_FALSE(plan->Patch(graph.changes()));
  plan = Plan::Compile(graph);
  graph.ForgetChanges();
  Replace(1, kWaitMark, 9);  // another cell, say
  EXPECT_TRUE(plan->Patch(graph.changes()));
  EXPECT_EQ(EffectsOf(*plan), EffectsOf(*Plan::Compile(graph)));
}

TEST_F(OneLane, AnEdgeThatBecomesATaskNeedsANewPlan) {
  graph.AddLane(1, 1, ir::kNoNode);
  Edge edge{static_cast<ir::NodeId>(graph.nodes().size())};
  const ir::NodeId record = graph.Add(0, ir::MakeTask(ir::kEdgeRecord, edge));
  const ir::NodeId wait = graph.Add(1, ir::MakeTask(ir::kEdgeWait, edge));
  const ir::NodeId again = graph.Add(1, ir::MakeTask(ir::kEdgeWait, edge));  // takes no step
  for (const ir::NodeId node : {again, record}) {
    plan = Plan::Compile(graph);
    graph.ForgetChanges();
    graph.Disable(wait);  // means nothing to an edge
    ASSERT_TRUE(plan->Patch(graph.changes()));
    EXPECT_EQ(Count(*plan, Step::kWait), 1u);
    Replace(node, kWriteMark, 11);
    EXPECT_FALSE(plan->Patch(graph.changes())) << node;
  }
  plan = Plan::Compile(graph);
  EXPECT_EQ(Count(*plan, Step::kWait), 0u) << "there is no record any more";
}

TEST_F(OneLane, AGraphDoesNotGrowWithTheNumberOfItsChanges) {
  const size_t before = graph.memory_bytes();
  for (uint64_t i = 0; i < 1000; ++i) Replace(3, i % 2 != 0 ? kKernelMark : kWriteMark, i);
  EXPECT_EQ(graph.memory_bytes(), before);
}

}  // namespace
}  // namespace reprise::exec
