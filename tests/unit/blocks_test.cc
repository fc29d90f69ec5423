// SPDX-License-Identifier: Apache-2.0
//
// Element-wise neighbours: which tasks become one step, which must not, and that replays compute the same bits.
#include "exec/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "device/scheduler.h"
#include "device/timeline.h"
#include "exec/plan.h"
#include "exec/replay.h"
#include "replay_driver.h"
#include "scale.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::Elementwise;
using ir::kRangeUnit;
using ir::RunResult;
using testing::Loops;
using Driver = testing::ReplayDriver;

// ---- Tasks ----

// out[i] = 3 * a[i] + b[i] + addend over unsigned integers of 1, 2, 4 or 8 bytes.
struct Mix {
  char* out = nullptr;
  const char* a = nullptr;
  const char* b = nullptr;
  int64_t n = 0;
  uint64_t addend = 1;
  uint8_t out_bytes = 4;
  uint8_t a_bytes = 4;
  uint8_t b_bytes = 4;
  bool b_is_single = false;
  int64_t b_repeats = 0;  // after so many elements; 0: not at all
  bool declares = true;
  bool tells_all = true;
  int64_t grain = 32768;
};

uint64_t Load(const char* from, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

int64_t ElementsOfB(const Mix& mix) { return mix.b_is_single ? 1 : mix.b_repeats != 0 ? mix.b_repeats : mix.n; }

std::atomic<int> g_calls{0};
std::atomic<int64_t> g_longest{0};  // range of a call

void Compute(const Mix& mix, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t b_at = mix.b_is_single ? 0 : mix.b_repeats != 0 ? i % mix.b_repeats : i;
    const uint64_t b = Load(mix.b + b_at * mix.b_bytes, mix.b_bytes);
    const uint64_t value = 3 * Load(mix.a + i * mix.a_bytes, mix.a_bytes) + b + mix.addend;
    std::memcpy(mix.out + i * mix.out_bytes, &value, mix.out_bytes);
  }
}

void MixRow(const void* args, int64_t begin, int64_t end) {
  const Mix& mix = **static_cast<const Mix* const*>(args);
  EXPECT_EQ(begin % kRangeUnit, 0);
  EXPECT_LE(end, mix.n);
  EXPECT_TRUE(end == mix.n || end % kRangeUnit == 0);
  EXPECT_GE(end - begin, std::min(kRangeUnit, mix.n));
  ++g_calls;
  int64_t longest = g_longest.load();
  while (longest < end - begin && !g_longest.compare_exchange_weak(longest, end - begin)) {
  }
  Compute(mix, begin, end);
}

RunResult RunMix(RunContext&, void* payload) {
  const Mix& mix = *static_cast<Mix*>(payload);
  Compute(mix, 0, mix.n);
  return RunResult::kDone;
}

bool DeclareMix(const void* payload, Elementwise& rows) {
  const Mix& mix = *static_cast<const Mix*>(payload);
  rows.call = {MixRow, mix.n, {reinterpret_cast<uint64_t>(&mix)}};
  rows.grain = mix.grain;
  rows.broadcast = mix.b_repeats != 0 ? 0b100 : 0;
  return mix.declares;
}

void OperandsOfMix(const void* payload, ir::OperandSink& sink) {
  const Mix& mix = *static_cast<const Mix*>(payload);
  const auto n = static_cast<uint64_t>(mix.n);
  sink.Take({mix.out, n * mix.out_bytes, ir::Access::kWrite});
  sink.Take({mix.a, n * mix.a_bytes, ir::Access::kRead});
  sink.Take({mix.b, static_cast<uint64_t>(ElementsOfB(mix)) * mix.b_bytes, ir::Access::kRead});
  if (!mix.tells_all) sink.TakeOpaque();
}

const ir::TaskType kMix = {.kind = ir::TaskKind::kKernel,
                           .name = "MIX",
                           .run = RunMix,
                           .never_waits = true,
                           .elementwise = DeclareMix,
                           .operands = OperandsOfMix};
const ir::TaskType kOpaque = {.kind = ir::TaskKind::kKernel,
                              .name = "OPAQUE",
                              .run = [](RunContext&, void*) { return RunResult::kDone; },
                              .never_waits = true,
                              .operands = ir::NoOperands};
const ir::TaskType kFail = {.kind = ir::TaskKind::kKernel,
                            .name = "FAIL",
                            .run =
                                [](RunContext& context, void*) {
                                  context.Fail(Error(507015, "as asked"));
                                  return RunResult::kDone;
                                },
                            .operands = ir::NoOperands};

// Ends the execution from the middle of a group.
struct AbortPayload {
  std::atomic<Replay*>* replay;
  char* cell;  ///< written, so that the group has something
  int64_t n;
};
void AbortRow(const void* args, int64_t, int64_t) {
  const auto& payload = **static_cast<const AbortPayload* const*>(args);
  payload.replay->load()->Abort(Error(507001, "aborted"));
}
const ir::TaskType kAbort = {.kind = ir::TaskKind::kKernel,
                             .name = "ABORT",
                             .run = [](RunContext&, void*) { return RunResult::kDone; },
                             .elementwise =
                                 [](const void* payload, Elementwise& rows) {
                                   const auto& abort = *static_cast<const AbortPayload*>(payload);
                                   rows.call = {AbortRow, abort.n, {reinterpret_cast<uint64_t>(&abort)}};
                                   rows.grain = 1 << 30;
                                   return true;
                                 },
                             .operands =
                                 [](const void* payload, ir::OperandSink& sink) {
                                   const auto& abort = *static_cast<const AbortPayload*>(payload);
                                   sink.Take({abort.cell, 4 * static_cast<uint64_t>(abort.n), ir::Access::kWrite});
                                 }};

/// "b3 r2 s": groups in blocks, rows one after another, other steps, with the number of tasks in each.
std::string ShapeOf(const Plan& plan) {
  std::string text;
  uint32_t next_row = 0;
  for (uint32_t lane = 0; lane < plan.lanes().size(); ++lane) {
    if (lane != 0) text += " |";
    for (uint32_t i = plan.lanes()[lane].begin; i != plan.lanes()[lane].end; ++i) {
      const Step& step = plan.steps()[i];
      if (!text.empty()) text += ' ';
      if (step.kind != Step::kElements && step.kind != Step::kBlocks) {
        text += step.kind == Step::kWait ? 'w' : step.kind == Step::kPublish ? 'o' : 's';
        continue;
      }
      EXPECT_EQ(step.rows.first, next_row);
      next_row += step.rows.count;
      const ElementRun& first = plan.rows_of(step)[0];
      EXPECT_EQ(step.task_id, first.task_id);
      EXPECT_EQ(plan.stream_id(lane, step), plan.stream_id(lane, first));
      text += (step.kind == Step::kElements ? "r"
               : step.blocks.is_parallel    ? "p"
                                            : "b") +
              std::to_string(step.rows.count);
    }
  }
  EXPECT_EQ(next_row, plan.rows().size());
  return text;
}

/// A lane of tasks over one piece of memory.
class Chain {
 public:
  explicit Chain(size_t bytes = size_t{1} << 20) : memory_(bytes) {
    graph.AddLane(0, 0, ir::kNoNode);
    for (size_t i = 0; i < bytes; ++i) memory_[i] = static_cast<char>(i * 7 + i / 256);
  }
  char* at(int64_t offset) { return memory_.data() + offset; }
  std::vector<char>& memory() { return memory_; }

  /// out, a and b are offsets.
  Chain& Add(int64_t n, int64_t out, int64_t a, int64_t b, uint8_t item = 4) {
    Mix mix;
    mix.out = at(out);
    mix.a = at(a);
    mix.b = at(b);
    mix.n = n;
    mix.addend = graph.nodes().size() + 1;
    mix.out_bytes = mix.a_bytes = mix.b_bytes = item;
    return Add(mix);
  }
  Chain& Add(Mix mix) {
    graph.Add(lane, ir::MakeTask(kMix, mix));
    return *this;
  }
  /// What follows goes to a lane of its own, behind what was added so far.
  Chain& Fork() {
    const ir::NodeId record = Record();
    lane = graph.AddLane(static_cast<int32_t>(graph.lanes().size()), 0, record);
    return Wait(record);
  }
  ir::NodeId Record() {
    ir::EdgePayload record{static_cast<ir::NodeId>(graph.nodes().size()), 0, 0};
    return graph.Add(lane, ir::MakeTask(ir::kEdgeRecord, record));
  }
  Chain& Wait(ir::NodeId record) {
    ir::EdgePayload wait{record, 0, 0};
    graph.Add(lane, ir::MakeTask(ir::kEdgeWait, wait));
    return *this;
  }
  /// Computes all tasks in the order in which they were added.
  void ComputeAll() {
    for (const ir::Node& node : graph.nodes()) {
      if (node.type == &kMix && !node.disabled) {
        const auto& mix = *static_cast<const Mix*>(node.payload);
        Compute(mix, 0, mix.n);
      }
    }
  }
  Chain& AddOther(const ir::TaskType& type) {
    uint64_t nothing = 0;
    graph.Add(lane, ir::MakeTask(type, nothing));
    return *this;
  }

  std::string Shape() const { return ShapeOf(*Plan::Compile(graph)); }

  ir::Graph graph;
  ir::LaneId lane = 0;  ///< where tasks are added

 private:
  std::vector<char> memory_;
};

std::unique_ptr<Plan> LaidOut(const ir::Graph& graph, uint32_t lanes, std::span<const uint32_t> costs = {},
                              FusionLog* log = nullptr) {
  const ir::Dag dag = ir::BuildDag(graph);
  return Plan::Compile(graph, dag, Schedule(dag, lanes, costs), log);
}

// ---- What becomes a step ----

constexpr int64_t kLong = 16384;      // 64 KiB of 4 bytes: more than the first cache
constexpr int64_t kFar = 256 * 1024;  // offset of another buffer

TEST(Blocks, ShortNeighboursFollowEachOther) {
  Chain chain;
  for (int i = 0; i < 5; ++i) chain.Add(8, 0, 0, kFar);
  chain.Add(1, 0, 0, 0).Add(300, kFar, 0, 0);
  EXPECT_EQ(chain.Shape(), "r7");
}

TEST(Blocks, LongNeighboursRunBlockByBlock) {
  Chain chain;
  for (int i = 0; i < 4; ++i) chain.Add(kLong, 0, 0, kFar);
  EXPECT_EQ(chain.Shape(), "b4");
  const auto plan = Plan::Compile(chain.graph);
  const Step& step = plan->steps()[0];
  EXPECT_EQ(step.block % kRangeUnit, 0);
  EXPECT_LE(step.block * 8, 32 * 1024) << "two ranges fit the first cache";
  EXPECT_GE(step.block, kRangeUnit);
}

TEST(Blocks, MuchWorkIsSharedWithWorkers) {
  Chain alone;
  alone.Add(4 * kLong, 0, 0, kFar);
  EXPECT_EQ(alone.Shape(), "p1") << "two grains in one task";
  Chain together;
  for (int i = 0; i < 400; ++i) together.Add(1024, 0, 0, kFar);
  EXPECT_EQ(together.Shape(), "p400") << "more than eight grains in all";
  Chain little;
  for (int i = 0; i < 4; ++i) little.Add(1024, 0, 0, kFar);
  EXPECT_EQ(little.Shape(), "r4") << "fits the first cache, and is not worth a thread";
}

TEST(Blocks, NothingIsGainedWithoutReuse) {
  Chain chain(size_t{4} << 20);
  chain.Add(kLong, 0, kFar, 2 * kFar).Add(kLong, 3 * kFar, 4 * kFar, 5 * kFar);
  EXPECT_EQ(chain.Shape(), "r2");
}

TEST(Blocks, OtherStepsEndAGroup) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  chain.AddOther(kOpaque);
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  chain.Add(8, 0, 0, kFar).AddOther(kOpaque).Add(8, 0, 0, kFar);
  EXPECT_EQ(chain.Shape(), "b2 s b3 r1 s r1");
}

TEST(Blocks, WaitsAndRecordsOfOtherLanesEndAGroup) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  ir::EdgePayload record{static_cast<ir::NodeId>(chain.graph.nodes().size()), 0, 0};
  const ir::NodeId fork = chain.graph.Add(0, ir::MakeTask(ir::kEdgeRecord, record));
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  chain.graph.AddLane(1, 1, fork);
  ir::EdgePayload wait{fork, 0, 0};
  chain.graph.Add(1, ir::MakeTask(ir::kEdgeWait, wait));
  EXPECT_EQ(chain.Shape(), "b2 o b2 | w");
}

TEST(Blocks, AnotherNumberOfElementsEndsAGroup) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  chain.Add(kLong / 2, 0, 0, kFar).Add(kLong / 2, 0, 0, kFar);
  EXPECT_EQ(chain.Shape(), "b2 b2");
}

TEST(Blocks, PartialOverlapEndsAGroup) {
  // The second reads what the first writes, one element further on.
  Chain after_write;
  after_write.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  after_write.Add(kLong, 2 * kFar, 4, kFar).Add(kLong, 2 * kFar, 4, kFar);
  EXPECT_EQ(after_write.Shape(), "b2 b2");
  // The second writes what the first reads.
  Chain after_read;
  after_read.Add(kLong, kFar, 4, kFar).Add(kLong, kFar, 4, kFar).Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  EXPECT_EQ(after_read.Shape(), "b2 b2");
  // Two writes that meet in their last and first bytes.
  Chain edge;
  edge.Add(kLong, 0, 0, kFar).Add(kLong, 4 * kLong - 1, 4 * kLong - 1, kFar).Add(kLong, 4 * kLong - 1, kFar, kFar);
  EXPECT_EQ(edge.Shape(), "r1 b2");
  // Back to back is no overlap.
  Chain adjacent;
  adjacent.Add(kLong, 0, 0, kFar).Add(kLong, 4 * kLong, 4 * kLong, 0);
  EXPECT_EQ(adjacent.Shape(), "b2");
}

TEST(Blocks, OverlapOfWhatIsOnlyReadIsFine) {
  Chain chain;
  chain.Add(kLong, 0, kFar, kFar + 4).Add(kLong, 0, kFar + 8, 0).Add(kLong, 0, kFar, kFar);
  EXPECT_EQ(chain.Shape(), "b3");
  // But then nothing may write there.
  chain.Add(kLong, kFar, 0, 0).Add(kLong, kFar, 0, 0);
  EXPECT_EQ(chain.Shape(), "b3 b2");
}

TEST(Blocks, OtherElementSizesOnTheSameRangeEndAGroup) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  Mix narrow;  // reads the first half of what was written as elements of two bytes
  narrow.out = chain.at(2 * kFar);
  narrow.a = narrow.b = chain.at(0);
  narrow.n = kLong;
  narrow.a_bytes = narrow.b_bytes = 2;
  chain.Add(narrow).Add(narrow);
  EXPECT_EQ(chain.Shape(), "b2 b2");
}

TEST(Blocks, MixedElementSizesOnRangesOfTheirOwnShareAGroup) {
  Chain chain;
  Mix widen;
  widen.out = chain.at(0);
  widen.a = widen.b = chain.at(kFar);
  widen.n = kLong;
  widen.out_bytes = 8;
  widen.a_bytes = widen.b_bytes = 2;
  chain.Add(widen);
  widen.a = chain.at(0);
  widen.a_bytes = 8;
  chain.Add(widen);
  EXPECT_EQ(chain.Shape(), "b2");
}

TEST(Blocks, ASingleElementMustNotBeWritten) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar);
  Mix single;
  single.out = chain.at(kFar);
  single.a = chain.at(kFar);
  single.b = chain.at(kFar + 4 * kLong);  // behind
  single.b_is_single = true;
  single.n = kLong;
  chain.Add(single);
  EXPECT_EQ(chain.Shape(), "b3");
  single.out = chain.at(2 * kFar);
  single.a = chain.at(2 * kFar);
  single.b = chain.at(0);  // which the first task writes, element 0 of it
  chain.Add(single).Add(single);
  EXPECT_EQ(chain.Shape(), "b3 b2");
}

TEST(Blocks, WhatIsBroadcastMustNotBeWritten) {
  Chain chain;
  Mix row;  // adds a vector to each row of a matrix, in place
  row.out = chain.at(0);
  row.a = row.out;
  row.b = chain.at(kFar);
  row.b_repeats = 1024;
  row.n = kLong;
  chain.Add(row).Add(kLong, 0, 0, 0).Add(row);
  EXPECT_EQ(chain.Shape(), "b3");
  // What it reads may be read element by element, too, but nobody may write there from then on.
  chain.Add(kLong, 0, kFar, 0).Add(kLong, kFar, 0, 0).Add(kLong, kFar, 0, 0);
  EXPECT_EQ(chain.Shape(), "b4 b2");
  // Nor before: the same range as elements of the vector's size divided by the repetitions.
  Chain narrow;
  Mix bytes;
  bytes.out = narrow.at(kFar);
  bytes.a = bytes.b = bytes.out;
  bytes.out_bytes = bytes.a_bytes = bytes.b_bytes = 1;
  bytes.n = kLong;
  narrow.Add(bytes).Add(bytes);
  row.out = narrow.at(0);
  row.a = row.out;
  row.b = narrow.at(kFar);
  row.b_repeats = kLong / 4;
  narrow.Add(row).Add(row);
  EXPECT_EQ(narrow.Shape(), "b2 b2");
}

TEST(Blocks, WhatIsBroadcastHasItsPlaceInTheCache) {
  const auto block_of = [](int64_t repeats) {
    Chain chain;
    Mix row;
    row.out = chain.at(0);
    row.a = row.out;
    row.b = chain.at(kFar);
    row.b_repeats = repeats;
    row.n = kLong;
    chain.Add(row).Add(row);
    return Plan::Compile(chain.graph)->steps()[0].block;
  };
  EXPECT_EQ(block_of(256), 5888) << "23 of 24 KiB";
  EXPECT_EQ(block_of(4096), 3072) << "half of 24 KiB";
  EXPECT_EQ(block_of(2048), 4096) << "16 of 24 KiB";
}

TEST(Blocks, WhatIsNotDeclaredStaysATask) {
  Chain chain;
  Mix mix;
  mix.out = chain.at(0);
  mix.a = mix.b = chain.at(kFar);
  mix.n = kLong;
  mix.declares = false;
  chain.Add(mix).Add(mix);
  EXPECT_EQ(chain.Shape(), "s s");
  // Nor one that does not tell all memory that the task touches.
  mix.declares = true;
  mix.tells_all = false;
  chain.Add(mix);
  EXPECT_EQ(chain.Shape(), "s s s");
  // Nor does a declaration count that contradicts itself.
  chain.Add(kLong, 4, 0, kFar);
  EXPECT_EQ(chain.Shape(), "s s s s");
}

TEST(Blocks, DisabledTasksAreLeftOut) {
  Chain chain;
  for (int i = 0; i < 3; ++i) chain.Add(kLong, 0, 0, kFar);
  chain.graph.Disable(1);
  EXPECT_EQ(chain.Shape(), "b2");
  EXPECT_EQ(Plan::Compile(chain.graph)->rows()[1].task_id, 2u);
}

TEST(Blocks, ATaskCostsOneRow) {
  Chain chain;
  for (int i = 0; i < 1000; ++i) chain.Add(8, 0, 0, kFar);
  EXPECT_LE(Plan::Compile(chain.graph)->memory_bytes(), 1000 * sizeof(ElementRun) + sizeof(Step));
}

TEST(Blocks, AGroupEndsSomewhere) {
  Chain chain;
  for (int i = 0; i < 2100; ++i) chain.Add(2 * 32768, 0, 0, kFar + kFar);
  EXPECT_EQ(chain.Shape(), "p1000 p1000 p100") << "4 ms each";
}

// ---- Laid out on lanes ----

TEST(ScheduledBlocks, TasksOfSeveralStreamsFuse) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Fork().Add(kLong, 0, 0, kFar).Fork().Add(kLong, 0, 0, kFar).Add(8, 0, 0, kFar);
  ASSERT_TRUE(CanSchedule(chain.graph));
  const auto plan = LaidOut(chain.graph, 2);
  EXPECT_EQ(ShapeOf(*plan), "b3 r1") << "a chain, over three streams";
  const std::span<const ElementRun> rows = plan->rows();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].lane, i);
    EXPECT_EQ(plan->stream_id(0, rows[i]), static_cast<int32_t>(i));
    EXPECT_EQ(plan->node(rows[i]).type, &kMix);
    EXPECT_EQ(plan->node(rows[i]).payload, chain.graph.node(plan->node_id(rows[i])).payload);
  }
  EXPECT_EQ(plan->stream_id(0, plan->steps()[1]), 2);
}

TEST(ScheduledBlocks, WhatIsWaitedForEndsAGroup) {
  Chain chain;  // two branches of two tasks each, between two tasks of the origin
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Fork();
  chain.Add(kLong, 2 * kFar, 0, kFar).Add(kLong, 2 * kFar, 2 * kFar, kFar);
  const ir::NodeId join = chain.Record();
  chain.lane = 0;
  chain.Add(kLong, 3 * kFar / 2, 0, kFar).Add(kLong, 3 * kFar / 2, 3 * kFar / 2, kFar);
  chain.Wait(join).Add(kLong, 0, 2 * kFar, 3 * kFar / 2).Add(kLong, 0, 0, kFar);
  const auto costs = std::vector<uint32_t>(8, 100'000);
  EXPECT_EQ(ShapeOf(*LaidOut(chain.graph, 2, costs)), "b2 o b2 o | w b2 w b2");
  EXPECT_EQ(ShapeOf(*LaidOut(chain.graph, 1, costs)), "b8") << "nobody waits";
}

TEST(ScheduledBlocks, TheLogNamesTheCapturedStream) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Fork();
  chain.Add(kLong, 0, 0, kFar).Add(kLong / 2, 0, 0, kFar);
  FusionLog log;
  log.wants_reasons = true;
  EXPECT_EQ(ShapeOf(*LaidOut(chain.graph, 2, {}, &log)), "b3 r1");
  EXPECT_EQ(log.fused, 3u);
  EXPECT_EQ(log.not_fused, 1u);
  ASSERT_EQ(log.apart.size(), 1u);
  EXPECT_EQ(log.apart[0].lane, 1u);
  EXPECT_EQ(log.apart[0].task_id, 2u) << "behind the wait and a task";
  EXPECT_STREQ(log.apart[0].why, "it has another number of elements");
}

TEST(ScheduledBlocks, ChangesOfFusedTasksNeedANewPlan) {
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Fork().Add(kLong, 0, 0, kFar).AddOther(kOpaque).Add(8, 0, 0, kFar);
  const auto node_of = [&](uint32_t lane, uint32_t position) { return chain.graph.lanes()[lane].nodes[position]; };
  auto plan = LaidOut(chain.graph, 2);
  ASSERT_EQ(ShapeOf(*plan), "b2 s r1");
  for (const ir::NodeId fused : {node_of(0, 0), node_of(1, 1), node_of(1, 3)}) {
    EXPECT_FALSE(plan->Patch({&fused, 1}));
  }
  const ir::NodeId other = node_of(1, 2);
  Mix mix = *static_cast<const Mix*>(chain.graph.node(node_of(1, 3)).payload);
  chain.graph.Replace(other, ir::MakeTask(kMix, mix));
  EXPECT_TRUE(plan->Patch({&other, 1})) << "a step of its own";
  EXPECT_EQ(plan->steps()[1].type, &kMix);
  const ir::NodeId second = node_of(1, 1);
  chain.graph.Disable(second);
  EXPECT_FALSE(plan->Patch({&second, 1})) << "its neighbour runs without it";
  chain.graph.Disable(other);
  plan = LaidOut(chain.graph, 2);
  EXPECT_EQ(ShapeOf(*plan), "r2") << "a group of one is not worth a step of its own";
  EXPECT_TRUE(plan->Patch({&other, 1})) << "as before";
}

// ---- Execution ----

TEST(BlocksReplay, SplitsAndSharesAndComputesTheSame) {
  for (const int workers : {1, 3}) {
    SCOPED_TRACE(workers);
    device::Scheduler scheduler(workers);
    Chain chain;
    Chain expected;
    for (Chain* one : {&chain, &expected}) {
      for (int i = 0; i < 20; ++i) one->Add(kLong + 77, i % 2 * kFar, (i + 1) % 2 * kFar, 2 * kFar);
    }
    for (const ir::Node& node : expected.graph.nodes()) {
      const auto& mix = *static_cast<const Mix*>(node.payload);
      Compute(mix, 0, mix.n);
    }
    ASSERT_EQ(chain.Shape(), "p20");
    Replay replay(Plan::Compile(chain.graph), scheduler);
    Driver driver(replay, scheduler);
    g_calls = 0;
    g_longest = 0;
    EXPECT_TRUE(driver.Execute().ok());
    EXPECT_GT(g_calls.load(), 20 * 4) << "in blocks";
    EXPECT_EQ(g_calls.load() % 20, 0);
    EXPECT_LE(g_longest.load(), 32 * 1024 / 8);
    EXPECT_EQ(chain.memory(), expected.memory());
  }
}

/// The definition of a group: what one of its tasks writes, every other one touches as the same elements or not at all.
void ExpectIndependent(const Plan& plan, const Step& step) {
  struct Place {
    const char* begin;
    const char* end;
    int64_t item_bytes;
    bool is_written;
  };
  std::vector<Place> places;
  for (const ElementRun& row : plan.rows_of(step)) {
    const auto& mix = *static_cast<const Mix*>(plan.node(row).payload);
    ASSERT_EQ(mix.n, plan.rows_of(step)[0].call.count);
    const auto add = [&](const char* begin, int64_t item_bytes, int64_t count, bool is_written) {
      // Nothing is the same as what is not read element by element.
      places.push_back({begin, begin + item_bytes * count, count == mix.n ? item_bytes : 0, is_written});
    };
    add(mix.out, mix.out_bytes, mix.n, true);
    add(mix.a, mix.a_bytes, mix.n, false);
    add(mix.b, mix.b_bytes, ElementsOfB(mix), false);
  }
  for (const Place& x : places) {
    for (const Place& y : places) {
      const bool is_same = x.begin == y.begin && x.end == y.end && x.item_bytes == y.item_bytes;
      ASSERT_TRUE(!x.is_written || is_same || x.begin >= y.end || y.begin >= x.end);
    }
  }
}

// Tasks over few places that overlap in every way, of sizes around blocks; each group is held against its definition.
TEST(BlocksReplay, RandomChainsMatchASequentialRun) {
  constexpr int64_t kCounts[] = {1, 8, 255, 256, 257, 511, 512, 513, 1024, 2048, 3071, 3073, 6144, 9000};
  constexpr uint8_t kItems[] = {1, 2, 4, 8};
  device::Scheduler one(1);
  device::Scheduler several(3);
  size_t groups = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(150, 25)); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Chain chain(400000);
    int64_t count = 1;
    const size_t length = 1 + random() % 30;
    const uint8_t usual = kItems[random() % 4];
    while (chain.graph.nodes().size() < length) {
      if (random() % 4 == 0 || count == 1) count = kCounts[random() % std::size(kCounts)];
      Mix mix;
      mix.n = count;
      mix.addend = random();
      const auto item = [&] { return random() % 5 == 0 ? kItems[random() % 4] : usual; };
      mix.out_bytes = item();
      mix.a_bytes = item();
      mix.b_bytes = item();
      mix.b_is_single = random() % 6 == 0;
      if (!mix.b_is_single && count > 1 && random() % 4 == 0) {
        mix.b_repeats = random() % 2 == 0 ? 1 + static_cast<int64_t>(random()) % (count - 1) : (count + 1) / 2;
      }
      mix.grain = random() % 3 == 0 ? 512 : 32768;
      const auto place = [&] {
        const int64_t shift = random() % 6 == 0 ? static_cast<int64_t>(random() % 64) * 8 : 0;
        return chain.at(static_cast<int64_t>(random() % 4) * 80000 + shift);
      };
      mix.out = place();
      mix.a = place();
      mix.b = place();
      // A task may not overlap itself but for being the same.
      const auto clashes = [&](const char* in, int64_t bytes, int64_t elements) {
        const bool is_same = in == mix.out && bytes == mix.out_bytes && elements == mix.n;
        return !is_same && in < mix.out + mix.n * mix.out_bytes && mix.out < in + bytes * elements;
      };
      if (clashes(mix.a, mix.a_bytes, mix.n) || clashes(mix.b, mix.b_bytes, ElementsOfB(mix))) continue;
      if (random() % 12 == 0) chain.AddOther(kOpaque);
      chain.Add(mix);
    }
    auto plan = Plan::Compile(chain.graph);
    for (const Step& step : plan->steps()) {
      if (step.kind != Step::kBlocks) continue;
      ++groups;
      ExpectIndependent(*plan, step);
    }
    const std::vector<char> before = chain.memory();
    for (const ir::Node& node : chain.graph.nodes()) {
      if (node.type == &kMix)
        Compute(*static_cast<const Mix*>(node.payload), 0, static_cast<const Mix*>(node.payload)->n);
    }
    const std::vector<char> expected = chain.memory();
    for (device::Scheduler* scheduler : {&one, &several}) {
      std::copy(before.begin(), before.end(), chain.memory().begin());
      Replay replay(Plan::Compile(chain.graph), *scheduler);
      Driver driver(replay, *scheduler);
      EXPECT_TRUE(driver.Execute().ok());
      ASSERT_TRUE(chain.memory() == expected);
    }
  }
  EXPECT_GT(groups, 20u) << "the programs have something to run in blocks";
}

/// Streams that compute in memory of their own and hand it on through copies that nobody writes again, so that the
/// result depends on nothing but the edges.
struct RandomStreams {
  static constexpr int64_t kStride = 16 * 1024;
  static constexpr size_t kMostRecords = 14;
  explicit RandomStreams(unsigned seed) : chain((10 + kMostRecords) * kStride) {
    std::mt19937 random(seed);
    const auto lanes = static_cast<ir::LaneId>(2 + random() % 4);
    for (ir::LaneId lane = 1; lane < lanes; ++lane) {
      chain.graph.AddLane(static_cast<int32_t>(lane), 0, ir::kNoNode);
    }
    std::vector<ir::NodeId> records;
    const int64_t usual = random() % 2 == 0 ? 3100 : 600;
    for (size_t i = 5 + random() % 60; i != 0; --i) {
      chain.lane = static_cast<ir::LaneId>(random() % lanes);
      const int64_t n = random() % 8 == 0 ? 8 : usual;
      const auto own = [&] { return (2 * int64_t{chain.lane} + static_cast<int64_t>(random() % 2)) * kStride; };
      const auto slot = [&](size_t record) { return (10 + static_cast<int64_t>(record)) * kStride; };
      const auto kind = random() % 8;
      if (kind == 0 && records.size() < kMostRecords) {
        chain.Add(usual, slot(records.size()), own(), own());
        records.push_back(chain.Record());
      } else if (kind == 1 && !records.empty()) {
        const size_t record = random() % records.size();
        chain.Wait(records[record]).Add(usual, own(), slot(record), slot(record));
      } else if (kind == 2) {
        chain.AddOther(kOpaque);
      } else {
        chain.Add(n, own(), own(), own());
      }
    }
  }
  Chain chain;
};

void ExpectSequentialResult(Chain& chain, Replay& replay, device::Scheduler& scheduler, int times) {
  const std::vector<char> before = chain.memory();
  for (int i = 0; i < times; ++i) chain.ComputeAll();
  const std::vector<char> expected = chain.memory();
  std::copy(before.begin(), before.end(), chain.memory().begin());
  Driver driver(replay, scheduler);
  for (int i = 0; i < times; ++i) EXPECT_TRUE(driver.Execute().ok());
  ASSERT_TRUE(chain.memory() == expected);
}

TEST(BlocksReplay, RandomStreamsMatchASequentialRun) {
  device::Scheduler scheduler(3);
  size_t spread = 0;
  size_t across = 0;  // groups with tasks of several streams
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(50, 10)); ++seed) {
    SCOPED_TRACE(seed);
    RandomStreams streams(seed);
    ASSERT_TRUE(CanSchedule(streams.chain.graph));
    std::mt19937 random(seed);
    std::vector<uint32_t> costs(ir::BuildDag(streams.chain.graph).size());
    for (uint32_t& cost : costs) cost = random() % 10000;
    auto plan = LaidOut(streams.chain.graph, 1 + seed % 3, costs);
    spread += plan->lanes().size() > 1 && !plan->rows().empty() ? 1 : 0;
    for (const Step& step : plan->steps()) {
      if (step.kind != Step::kBlocks) continue;
      ExpectIndependent(*plan, step);
      const std::span<const ElementRun> rows = plan->rows_of(step);
      across += rows.front().lane != rows.back().lane ? 1 : 0;
    }
    Replay replay(std::move(plan), scheduler);
    ExpectSequentialResult(streams.chain, replay, scheduler, 2);
    if (HasFatalFailure()) break;
  }
  EXPECT_GT(spread, 5u);
  EXPECT_GT(across, 5u);
}

// The layout changes behind the third execution, and tasks fuse in both.
TEST(BlocksReplay, LearntStreamsMatchASequentialRun) {
  device::Scheduler scheduler(3);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(12, 4)); ++seed) {
    SCOPED_TRACE(seed);
    RandomStreams streams(100 + seed);
    Replay replay(streams.chain.graph, scheduler);
    ASSERT_TRUE(replay.plan().is_scheduled());
    size_t tasks = 0;
    for (const ir::Node& node : streams.chain.graph.nodes()) tasks += node.type == &kMix ? 1 : 0;
    EXPECT_EQ(replay.plan().rows().size(), tasks);
    ExpectSequentialResult(streams.chain, replay, scheduler, 6);
    EXPECT_EQ(replay.plan().rows().size(), tasks) << "laid out again";
    if (HasFatalFailure()) break;
  }
}

// Rows are measured one by one, and what takes nanoseconds is not worth a second core.
TEST(BlocksReplay, CostsOfRowsAreLearnt) {
  if (Loops(2, 1) == 1) GTEST_SKIP() << "instrumented tasks take long";
  device::Scheduler scheduler(2);
  Chain chain;
  const ir::TaskType little{.kind = ir::TaskKind::kKernel,
                            .name = "LITTLE",
                            .run = [](RunContext&, void*) { return RunResult::kDone; },
                            .never_waits = true,
                            .elementwise =
                                [](const void*, Elementwise& rows) {
                                  rows = {{[](const void*, int64_t, int64_t) {}, 8, {}}, 32768};
                                  return true;
                                },
                            .operands = ir::NoOperands};
  chain.AddOther(little);
  for (int i = 1; i < 4; ++i) {
    chain.lane = chain.graph.AddLane(i, i, ir::kNoNode);
    chain.AddOther(little);
  }
  Replay replay(chain.graph, scheduler);
  EXPECT_EQ(ShapeOf(replay.plan()), "r2 | r2") << "unknown costs count as a microsecond each";
  Driver driver(replay, scheduler);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(driver.Execute().ok());
  EXPECT_EQ(ShapeOf(replay.plan()), "r4");
}

TEST(BlocksReplay, NothingRunsBehindAFailure) {
  device::Scheduler scheduler(2);
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Add(8, kFar, 0, 0);
  chain.AddOther(kFail);
  const size_t before = chain.graph.nodes().size();
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Add(8, kFar, 0, 0);
  ASSERT_EQ(chain.Shape(), "b2 r1 s b2 r1");
  const std::vector<char> start = chain.memory();
  for (size_t i = 0; i < before - 1; ++i) {
    const auto& mix = *static_cast<const Mix*>(chain.graph.node(static_cast<ir::NodeId>(i)).payload);
    Compute(mix, 0, mix.n);
  }
  const std::vector<char> expected = chain.memory();
  Replay replay(Plan::Compile(chain.graph), scheduler);
  Driver driver(replay, scheduler);
  for (int times = 0; times < 3; ++times) {
    std::copy(start.begin(), start.end(), chain.memory().begin());
    const Status status = driver.Execute();
    EXPECT_EQ(status.code(), 507015);
    EXPECT_NE(status.detail().culprit.find("task 3"), std::string::npos) << status.detail().culprit;
    EXPECT_TRUE(chain.memory() == expected);
  }
}

// An abort that comes in the middle: the group is finished, so that each of its tasks has run, and the rest is skipped.
TEST(BlocksReplay, AnAbortedGroupIsWhole) {
  device::Scheduler scheduler(1);
  Chain chain;
  std::atomic<Replay*> target{nullptr};
  chain.Add(kLong, 0, 0, kFar);
  AbortPayload abort{&target, chain.at(2 * kFar), kLong};
  chain.graph.Add(0, ir::MakeTask(kAbort, abort));
  chain.Add(kLong, 0, 0, kFar);
  chain.AddOther(kOpaque);
  chain.Add(kLong, 0, 0, kFar).Add(8, 0, 0, kFar);
  ASSERT_EQ(chain.Shape(), "b3 s r2");
  const std::vector<char> start = chain.memory();
  for (const ir::NodeId node : {0u, 2u}) {
    const auto& mix = *static_cast<const Mix*>(chain.graph.node(node).payload);
    Compute(mix, 0, mix.n);
  }
  const std::vector<char> expected = chain.memory();
  std::copy(start.begin(), start.end(), chain.memory().begin());
  Replay replay(Plan::Compile(chain.graph), scheduler);
  target = &replay;
  Driver driver(replay, scheduler);
  EXPECT_EQ(driver.Execute().code(), 507001);
  EXPECT_TRUE(chain.memory() == expected);
}

// Rows that follow each other are tasks of their own: an abort skips the rest of them.
TEST(BlocksReplay, AnAbortSkipsTheRowsBehindIt) {
  device::Scheduler scheduler(1);
  Chain chain;
  std::atomic<Replay*> target{nullptr};
  chain.Add(8, 0, 0, kFar);
  AbortPayload abort{&target, chain.at(2 * kFar), 8};
  chain.graph.Add(0, ir::MakeTask(kAbort, abort));
  chain.Add(8, 0, 0, kFar);
  ASSERT_EQ(chain.Shape(), "r3");
  const std::vector<char> start = chain.memory();
  Compute(*static_cast<const Mix*>(chain.graph.node(0).payload), 0, 8);
  const std::vector<char> expected = chain.memory();
  std::copy(start.begin(), start.end(), chain.memory().begin());
  Replay replay(Plan::Compile(chain.graph), scheduler);
  target = &replay;
  Driver driver(replay, scheduler);
  EXPECT_EQ(driver.Execute().code(), 507001);
  EXPECT_TRUE(chain.memory() == expected);
}

TEST(BlocksReplay, ATimelineShowsEachTask) {
  device::Scheduler scheduler(2);
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Add(kLong, 0, 0, kFar).Add(8, 0, 0, kFar).Add(8, 0, 0, kFar);
  ASSERT_EQ(chain.Shape(), "b3 r2");
  const std::vector<char> start = chain.memory();
  Replay replay(Plan::Compile(chain.graph), scheduler);
  Driver driver(replay, scheduler);
  EXPECT_TRUE(driver.Execute().ok());
  const std::vector<char> expected = chain.memory();
  std::copy(start.begin(), start.end(), chain.memory().begin());
  const auto path = std::filesystem::temp_directory_path() / ("blocks_" + std::to_string(getpid()) + ".json");
  const uint64_t session = device::Timeline::Get().Start({});
  EXPECT_TRUE(driver.Execute().ok());
  ASSERT_TRUE(device::Timeline::Get().Stop(session, path.string()).ok());
  EXPECT_TRUE(chain.memory() == expected);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t tasks = 0;
  for (size_t at = text.find("\"MIX\""); at != std::string::npos; at = text.find("\"MIX\"", at + 1)) ++tasks;
  EXPECT_GE(tasks, 5u) << text;
  for (int task = 0; task < 5; ++task) {
    EXPECT_NE(text.find("\"task\":" + std::to_string(task)), std::string::npos) << text;
  }
  std::filesystem::remove(path);
}

TEST(BlocksReplay, ATimelineShowsTheStreamOfEachTask) {
  device::Scheduler scheduler(1);
  Chain chain;
  chain.Add(kLong, 0, 0, kFar).Fork().Add(kLong, 0, 0, kFar).Fork().Add(kLong, 0, 0, kFar);
  Replay replay(LaidOut(chain.graph, 1), scheduler);
  ASSERT_EQ(ShapeOf(replay.plan()), "b3");
  Driver driver(replay, scheduler);
  const auto path = std::filesystem::temp_directory_path() / ("streams_" + std::to_string(getpid()) + ".json");
  const uint64_t session = device::Timeline::Get().Start({});
  EXPECT_TRUE(driver.Execute().ok());
  ASSERT_TRUE(device::Timeline::Get().Stop(session, path.string()).ok());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* task : {R"("stream":0,"task":0)", R"("stream":1,"task":1)", R"("stream":2,"task":1)"}) {
    EXPECT_NE(text.find(task), std::string::npos) << task << " in " << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace reprise::exec
