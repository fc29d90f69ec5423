// SPDX-License-Identifier: Apache-2.0
//
// Plans and replays of random graphs, against an oracle that runs the nodes one after another.
#include "exec/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "device/scheduler.h"
#include "exec/replay.h"
#include "scale.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::RunResult;
using testing::Loops;

// ---- Nodes ----

struct ComputePayload {
  uint64_t* target;
  const uint64_t* source;  // null: none
  uint64_t factor;
  uint32_t relax;  ///< iterations of doing nothing, to shift lanes against each other
};
void Compute(const ComputePayload& p) { *p.target = *p.target * p.factor + (p.source != nullptr ? *p.source : 1); }

std::atomic<int> g_destroyed{0};
const ir::TaskType kCompute = {.kind = ir::TaskKind::kKernel,
                               .name = "COMPUTE",
                               .run =
                                   [](RunContext&, void* payload) {
                                     const auto& p = *static_cast<ComputePayload*>(payload);
                                     for (uint32_t i = 0; i < p.relax; ++i) CpuRelax();
                                     Compute(p);
                                     return RunResult::kDone;
                                   },
                               .destroy = [](void*) noexcept { ++g_destroyed; },
                               .never_waits = true,
                               .operands = ir::NoOperands};

struct CopyPayload {
  uint64_t* target;
  const uint64_t* source;
};
const ir::TaskType kCopyCell = {.kind = ir::TaskKind::kCopy,
                                .name = "COPY",
                                .run =
                                    [](RunContext&, void* payload) {
                                      const auto& p = *static_cast<CopyPayload*>(payload);
                                      *p.target = *p.source;
                                      return RunResult::kDone;
                                    },
                                .never_waits = true,
                                .operands = ir::NoOperands};

struct FailPayload {
  int code;
};
const ir::TaskType kFail = {.kind = ir::TaskKind::kKernel,
                            .name = "FAIL",
                            .run =
                                [](RunContext& context, void* payload) {
                                  context.Fail(Error(static_cast<FailPayload*>(payload)->code, "as asked"));
                                  return RunResult::kDone;
                                },
                            .operands = ir::NoOperands};

// A kernel as a plan sees it: one call with an argument block. Its arguments: a cell, and what to return.
struct CallArgs {
  uint64_t* cell;
  int64_t code;
};
int32_t AddTaskId(const RepriseKernelContext* context, const void* args, size_t bytes) {
  const auto& [cell, code] = *static_cast<const CallArgs*>(args);
  EXPECT_EQ(bytes, sizeof(CallArgs));
  EXPECT_EQ(context->struct_size, sizeof(RepriseKernelContext));
  EXPECT_EQ(context->block_count, 1u);
  EXPECT_EQ(context->block_index, 0u);
  EXPECT_STREQ(context->kernel_name, "add_task_id");
  *cell = *cell * 10 + context->task_id;
  return static_cast<int32_t>(code);
}
const ir::TaskType kKernelCall = {
    .kind = ir::TaskKind::kKernel,
    .name = "KERNEL",
    .run =
        [](RunContext&, void*) {
          ADD_FAILURE() << "called through its type";
          return RunResult::kDone;
        },
    .direct =
        [](const void* payload, ir::DirectCall& call) {
          call = {AddTaskId, payload, "add_task_id", sizeof(CallArgs)};
          return true;
        },
    .direct_failed = [](RunContext& context, const void*,
                        int32_t code) { context.Fail(Error(code, "the kernel said so")); },
    .operands = ir::NoOperands};

ir::NodeId AddRecord(ir::Graph& graph, ir::LaneId lane) {
  ir::EdgePayload payload{static_cast<ir::NodeId>(graph.nodes().size()), 0, 0};
  return graph.Add(lane, ir::MakeTask(ir::kEdgeRecord, payload));
}
void AddWait(ir::Graph& graph, ir::LaneId lane, ir::NodeId record) {
  ir::EdgePayload payload{record, 0, 0};
  graph.Add(lane, ir::MakeTask(ir::kEdgeWait, payload));
}
size_t Count(const Plan& plan, Step::Kind kind) {
  return static_cast<size_t>(
      std::count_if(plan.steps().begin(), plan.steps().end(), [&](const Step& step) { return step.kind == kind; }));
}

/// Runs a replay `times` times, as a stream does.
class Driver final : public device::Runnable {
 public:
  explicit Driver(Replay& replay) : replay_(replay) {}
  Outcome Run(RunContext& context) override {
    while (left_ != 0) {
      const RunResult result = replay_.Run(context, progress_);
      if (result == RunResult::kParked) return Outcome::kIdle;
      if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
      if (context.failed()) error = context.TakeError();
      if (--left_ != 0) progress_.ticket = replay_.Submit();
    }
    done_ = true;
    done_.notify_all();
    return Outcome::kIdle;
  }
  void Start(device::Scheduler& scheduler, int times) {
    left_ = times;
    done_ = false;
    progress_.ticket = replay_.Submit();
    scheduler.Wake(*this);
  }
  void Wait(device::Scheduler& scheduler) {
    done_.wait(false);
    scheduler.Retire(*this);
  }
  Status error;

 private:
  Replay& replay_;
  Replay::Progress progress_{};
  int left_ = 0;
  std::atomic<bool> done_{false};
};

// ---- Dropped waits ----

TEST(Plan, OneLaneHasNoSynchronisation) {
  ir::Graph graph;
  graph.AddLane(0, 0, ir::kNoNode);
  AddWait(graph, 0, AddRecord(graph, 0));
  const auto plan = Plan::Compile(graph);
  EXPECT_TRUE(plan->steps().empty());
  ASSERT_EQ(plan->lanes().size(), 1u);
}

TEST(Plan, DropsWaitsThatEarlierOnesImply) {
  ir::Graph graph;
  graph.AddLane(0, 0, ir::kNoNode);
  const ir::NodeId first = AddRecord(graph, 0);
  const ir::NodeId second = AddRecord(graph, 0);
  const ir::NodeId unused = AddRecord(graph, 0);
  (void)unused;
  graph.AddLane(1, 1, first);
  AddWait(graph, 1, second);
  AddWait(graph, 1, second);  // again
  AddWait(graph, 1, first);   // older than what is known
  AddWait(graph, 0, second);  // in its own lane
  const auto plan = Plan::Compile(graph);
  EXPECT_EQ(Count(*plan, Step::kWait), 1u);
  EXPECT_EQ(Count(*plan, Step::kPublish), 1u) << "only the second record is waited for";
  EXPECT_EQ(plan->lanes()[1].first_wait_lane, 0);
}

TEST(Plan, ResetsVanish) {
  ir::Graph graph;
  graph.AddLane(0, 0, ir::kNoNode);
  ir::EdgePayload payload{AddRecord(graph, 0), 0, 0};
  graph.Add(0, ir::MakeTask(ir::kEdgeReset, payload));
  EXPECT_TRUE(Plan::Compile(graph)->steps().empty());
}

TEST(Plan, DisabledTasksAreLeftOut) {
  ir::Graph graph;
  graph.AddLane(0, 0, ir::kNoNode);
  uint64_t cell = 0;
  ComputePayload payload{&cell, nullptr, 1, 0};
  const ir::NodeId node = graph.Add(0, ir::MakeTask(kCompute, payload));
  EXPECT_EQ(Count(*Plan::Compile(graph), Step::kRun), 1u);
  graph.Disable(node);
  EXPECT_EQ(Count(*Plan::Compile(graph), Step::kRun), 0u);
}

// ---- Random graphs ----

// A graph whose result does not depend on timing if, and only if, its edges hold: each lane computes in its own cell; a
// record is preceded by a copy of that cell into a slot of its own, a wait is followed by a use of that slot.
struct RandomGraph {
  explicit RandomGraph(unsigned seed) : random(seed) {
    const size_t lanes = 1 + random() % 6;
    cells.resize(lanes);
    slots.resize(400);
    for (size_t lane = 0; lane < lanes; ++lane) {
      graph.AddLane(static_cast<int32_t>(lane), static_cast<int32_t>(lane), ir::kNoNode);
    }
    const size_t length = 5 + random() % 120;
    for (size_t i = 0; i < length; ++i) {
      const auto lane = static_cast<ir::LaneId>(random() % lanes);
      switch (random() % 4) {
        case 0:
        case 1: AddCompute(lane, nullptr); break;
        case 2: {
          CopyPayload copy{&slots[records.size()], &cells[lane]};
          graph.Add(lane, ir::MakeTask(kCopyCell, copy));
          records.push_back(AddRecord(graph, lane));
          break;
        }
        default:
          if (records.empty()) break;
          const size_t record = random() % records.size();
          AddWait(graph, lane, records[record]);
          AddCompute(lane, &slots[record]);
          break;
      }
    }
  }

  void AddCompute(ir::LaneId lane, const uint64_t* source) {
    ComputePayload payload{&cells[lane], source, random() | 1, random() % 4 == 0 ? 300u : 0u};
    graph.Add(lane, ir::MakeTask(kCompute, payload));
  }

  /// Runs the nodes in the order in which they were added, on copies of the cells.
  std::vector<uint64_t> Oracle(int times) {
    const std::vector<uint64_t> before = cells;
    const std::vector<uint64_t> slots_before = slots;
    for (int i = 0; i < times; ++i) {
      for (const ir::Node& node : graph.nodes()) {
        if (node.type == &kCompute) Compute(*static_cast<ComputePayload*>(node.payload));
        if (node.type == &kCopyCell) {
          const auto& p = *static_cast<CopyPayload*>(node.payload);
          *p.target = *p.source;
        }
      }
    }
    std::vector<uint64_t> expected = cells;
    // In place: the payloads hold the addresses.
    std::copy(before.begin(), before.end(), cells.begin());
    std::copy(slots_before.begin(), slots_before.end(), slots.begin());
    return expected;
  }

  /// How many waits a plan must keep, found in the dumbest way.
  size_t NeededWaits() const {
    std::map<std::pair<ir::LaneId, ir::LaneId>, int64_t> known;
    size_t needed = 0;
    for (const ir::Node& node : graph.nodes()) {
      if (node.type != &ir::kEdgeWait) continue;
      const ir::Node& record = graph.node(static_cast<const ir::EdgePayload*>(node.payload)->record);
      if (record.lane == node.lane) continue;
      auto [at, unknown] = known.emplace(std::pair(node.lane, record.lane), -1);
      if (at->second >= int64_t{record.position}) continue;
      at->second = record.position;
      ++needed;
    }
    return needed;
  }

  std::mt19937 random;
  std::vector<uint64_t> cells;
  std::vector<uint64_t> slots;
  std::vector<ir::NodeId> records;
  ir::Graph graph;
};

TEST(Replay, RandomGraphsMatchASequentialRun) {
  device::Scheduler scheduler(3);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(400, 60)); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    const int times = 1 + static_cast<int>(seed % 5);
    const std::vector<uint64_t> expected = random.Oracle(times);
    auto plan = Plan::Compile(random.graph);
    EXPECT_EQ(Count(*plan, Step::kWait), random.NeededWaits());
    EXPECT_LE(Count(*plan, Step::kPublish), Count(*plan, Step::kWait));
    Replay replay(std::move(plan), scheduler);
    Driver driver(replay);
    driver.Start(scheduler, times);
    driver.Wait(scheduler);
    EXPECT_TRUE(driver.error.ok());
    ASSERT_EQ(random.cells, expected) << "seed " << seed;
  }
}

// The same, laid out on execution lanes by costs that are as wrong as can be.
TEST(Replay, ScheduledGraphsMatchASequentialRun) {
  device::Scheduler scheduler(3);
  size_t spread = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(400, 60)); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    const int times = 1 + static_cast<int>(seed % 5);
    const std::vector<uint64_t> expected = random.Oracle(times);
    const ir::Dag dag = ir::BuildDag(random.graph);
    std::vector<uint32_t> costs(dag.size());
    for (uint32_t& cost : costs) cost = random.random() % 10000;
    const Assignment assignment = Schedule(dag, 2 + seed % 3, costs);
    spread += assignment.lanes() > 1 ? 1 : 0;
    Replay replay(Plan::Compile(random.graph, dag, assignment), scheduler);
    Driver driver(replay);
    driver.Start(scheduler, times);
    driver.Wait(scheduler);
    EXPECT_TRUE(driver.error.ok());
    ASSERT_EQ(random.cells, expected) << "seed " << seed;
  }
  EXPECT_GT(spread, 20u) << "nothing was spread";
}

// From the graph itself: the plan changes when the costs are known, the results do not.
TEST(Replay, LearntGraphsMatchASequentialRun) {
  device::Scheduler scheduler(3);
  size_t scheduled = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(300, 40)); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(5000 + seed);
    const int times = 1 + static_cast<int>(seed % 8);
    const std::vector<uint64_t> expected = random.Oracle(times);
    Replay replay(random.graph, scheduler);
    scheduled += replay.plan().is_scheduled() ? 1 : 0;
    Driver driver(replay);
    driver.Start(scheduler, times);
    driver.Wait(scheduler);
    EXPECT_TRUE(driver.error.ok());
    ASSERT_EQ(random.cells, expected) << "seed " << seed;
  }
  EXPECT_GT(scheduled, 10u);
}

// What takes nanoseconds is not worth a second core, and that shows only when it has run.
TEST(Replay, CostsAreLearntOnce) {
  if (Loops(2, 1) == 1) GTEST_SKIP() << "instrumented tasks take long";
  device::Scheduler scheduler(2);
  ir::Graph graph;
  uint64_t cells[4] = {};
  graph.AddLane(30, 0, ir::kNoNode);
  for (int i = 0; i < 4; ++i) {
    if (i != 0) graph.AddLane(30 + i, i, ir::kNoNode);
    ComputePayload compute{&cells[i], nullptr, 1, 0};
    graph.Add(static_cast<ir::LaneId>(i), ir::MakeTask(kCompute, compute));
  }
  Replay replay(graph, scheduler);
  EXPECT_EQ(replay.plan().lanes().size(), 2u) << "unknown costs count as a microsecond each";
  const auto run = [&](int times) {
    Driver driver(replay);
    driver.Start(scheduler, times);
    driver.Wait(scheduler);
    EXPECT_TRUE(driver.error.ok());
  };
  run(3);
  EXPECT_EQ(replay.plan().lanes().size(), 2u) << "three executions are measured";
  run(1);
  EXPECT_EQ(replay.plan().lanes().size(), 1u);
  const Plan* const learnt = &replay.plan();
  run(20);
  EXPECT_EQ(&replay.plan(), learnt) << "once";
}

TEST(Replay, FailuresOfScheduledTasksNameTheirStream) {
  device::Scheduler scheduler(2);
  ir::Graph graph;
  uint64_t cells[2] = {};
  graph.AddLane(30, 0, ir::kNoNode);
  graph.AddLane(31, 1, ir::kNoNode);
  ComputePayload compute{&cells[0], nullptr, 1, 0};
  graph.Add(0, ir::MakeTask(kCompute, compute));
  AddWait(graph, 1, AddRecord(graph, 0));
  FailPayload fail{507015};
  graph.Add(1, ir::MakeTask(kFail, fail));
  compute.target = &cells[1];
  graph.Add(1, ir::MakeTask(kCompute, compute));
  const ir::Dag dag = ir::BuildDag(graph);
  auto plan = Plan::Compile(graph, dag, Schedule(dag, 2));
  ASSERT_EQ(plan->lanes().size(), 1u) << "a chain";
  const Step& failing = plan->steps()[1];
  EXPECT_EQ(plan->stream_id(0, failing), 31);
  EXPECT_EQ(plan->node(0, failing).type, &kFail);
  Replay replay(std::move(plan), scheduler);
  Driver driver(replay);
  driver.Start(scheduler, 1);
  driver.Wait(scheduler);
  ASSERT_EQ(driver.error.code(), 507015);
  EXPECT_NE(driver.error.detail().culprit.find("task 1 (FAIL) of graph stream"), std::string::npos);
  EXPECT_EQ(cells[0], 1u);
  EXPECT_EQ(cells[1], 0u) << "nothing behind the failure runs";
}

// Executions from several streams run one after another, whatever the streams do.
TEST(Replay, ExecutionsOfOnePlanDoNotOverlap) {
  device::Scheduler scheduler(3);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(60, 10)); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(1000 + seed);
    constexpr int kDrivers = 4;
    constexpr int kTimes = 10;
    const std::vector<uint64_t> expected = random.Oracle(kDrivers * kTimes);
    Replay replay(Plan::Compile(random.graph), scheduler);
    std::vector<std::unique_ptr<Driver>> drivers;
    for (int i = 0; i < kDrivers; ++i) drivers.push_back(std::make_unique<Driver>(replay));
    for (const auto& driver : drivers) driver->Start(scheduler, kTimes);
    for (const auto& driver : drivers) driver->Wait(scheduler);
    ASSERT_EQ(random.cells, expected) << "seed " << seed;
  }
}

TEST(Replay, CancelledPlacesAreSkipped) {
  device::Scheduler scheduler(2);
  RandomGraph random(5);
  const std::vector<uint64_t> expected = random.Oracle(2);
  Replay replay(Plan::Compile(random.graph), scheduler);
  const uint64_t first = replay.Submit();
  Driver a(replay), b(replay);
  a.Start(scheduler, 1);
  const uint64_t between = replay.Submit();
  b.Start(scheduler, 1);
  replay.Cancel(between);
  replay.Cancel(first);
  a.Wait(scheduler);
  b.Wait(scheduler);
  EXPECT_EQ(random.cells, expected);
}

TEST(Replay, FirstFailureSkipsTheRestAndTheNextRunIsClean) {
  device::Scheduler scheduler(2);
  ir::Graph graph;
  uint64_t cells[2] = {};
  graph.AddLane(0, 0, ir::kNoNode);
  const ir::NodeId fork = AddRecord(graph, 0);
  graph.AddLane(1, 1, fork);
  AddWait(graph, 1, fork);
  FailPayload fail{507015};
  const ir::NodeId failing = graph.Add(1, ir::MakeTask(kFail, fail));
  ComputePayload compute{&cells[1], nullptr, 1, 0};
  graph.Add(1, ir::MakeTask(kCompute, compute));
  const ir::NodeId join = AddRecord(graph, 1);
  AddWait(graph, 0, join);
  compute.target = &cells[0];
  graph.Add(0, ir::MakeTask(kCompute, compute));
  Replay replay(Plan::Compile(graph), scheduler);
  Driver driver(replay);
  driver.Start(scheduler, 1);
  driver.Wait(scheduler);
  EXPECT_EQ(driver.error.code(), 507015);
  EXPECT_EQ(cells[0], 0u);
  EXPECT_EQ(cells[1], 0u);
  static_cast<FailPayload*>(graph.node(failing).payload)->code = 507016;
  driver.Start(scheduler, 1);
  driver.Wait(scheduler);
  EXPECT_EQ(driver.error.code(), 507016) << "the failure of an earlier run must not show again";
}

TEST(Graph, DestroysEachPayloadOnce) {
  g_destroyed = 0;
  {
    ir::Graph graph;
    graph.AddLane(0, 0, ir::kNoNode);
    uint64_t cell = 0;
    ComputePayload payload{&cell, nullptr, 1, 0};
    for (int i = 0; i < 100; ++i) graph.Add(0, ir::MakeTask(kCompute, payload));
    graph.MakeSlot(3);
    graph.Replace(4, ir::MakeTask(kCompute, payload));
    EXPECT_EQ(g_destroyed, 1) << "the replaced one";
  }
  EXPECT_EQ(g_destroyed, 101);
}

TEST(Replay, KernelsAreCalledWithoutTheirType) {
  device::Scheduler scheduler(2);
  uint64_t cell = 0;
  ir::Graph graph;
  graph.AddLane(7, 7, ir::kNoNode);
  for (int i = 0; i < 4; ++i) {
    CallArgs args{&cell, 0};
    graph.Add(0, ir::MakeTask(kKernelCall, args));
  }
  graph.Disable(2);
  Replay replay(Plan::Compile(graph), scheduler);
  EXPECT_EQ(Count(replay.plan(), Step::kCall), 3u);
  Driver driver(replay);
  driver.Start(scheduler, 2);
  driver.Wait(scheduler);
  EXPECT_EQ(cell, 13013u) << "tasks 0, 1 and 3, twice";
  EXPECT_TRUE(driver.error.ok());
}

TEST(Replay, ReturnedNumberOfAKernelEndsTheExecution) {
  device::Scheduler scheduler(2);
  uint64_t cell = 0;
  ir::Graph graph;
  graph.AddLane(7, 7, ir::kNoNode);
  for (const int code : {0, 507015, 0, 507016}) {
    CallArgs args{&cell, code};
    graph.Add(0, ir::MakeTask(kKernelCall, args));
  }
  Replay replay(Plan::Compile(graph), scheduler);
  Driver driver(replay);
  driver.Start(scheduler, 1);
  driver.Wait(scheduler);
  EXPECT_EQ(cell, 1u) << "nothing behind the failure runs";
  ASSERT_EQ(driver.error.code(), 507015);
  EXPECT_NE(driver.error.detail().culprit.find("task 1 (KERNEL) of graph stream 7"), std::string::npos);
}

}  // namespace
}  // namespace reprise::exec
