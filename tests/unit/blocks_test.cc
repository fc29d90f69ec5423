// SPDX-License-Identifier: Apache-2.0
//
// Element-wise neighbours: which tasks become one step, which must not, and that replays compute the same bits.
#include "exec/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

#include "device/scheduler.h"
#include "device/timeline.h"
#include "exec/plan.h"
#include "exec/replay.h"
#include "scale.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::Elementwise;
using ir::kRowUnit;
using ir::RunResult;
using testing::Loops;

// ------------------------------------------------------------------------------------------------------------- tasks

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
  bool declares = true;
  int64_t grain = 32768;
};

uint64_t Load(const char* from, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

std::atomic<int> g_calls{0};
std::atomic<int64_t> g_longest{0};  // range of a call

void Compute(const Mix& mix, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t b = Load(mix.b + (mix.b_is_single ? 0 : i * mix.b_bytes), mix.b_bytes);
    const uint64_t value = 3 * Load(mix.a + i * mix.a_bytes, mix.a_bytes) + b + mix.addend;
    std::memcpy(mix.out + i * mix.out_bytes, &value, mix.out_bytes);
  }
}

void MixRow(const void* args, int64_t begin, int64_t end) {
  const Mix& mix = **static_cast<const Mix* const*>(args);
  EXPECT_EQ(begin % kRowUnit, 0);
  EXPECT_LE(end, mix.n);
  EXPECT_TRUE(end == mix.n || end % kRowUnit == 0);
  EXPECT_GE(end - begin, std::min(kRowUnit, mix.n));
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
  rows.operand_count = 3;
  rows.operands[0] = {mix.out, mix.out_bytes, true, false};
  rows.operands[1] = {mix.a, mix.a_bytes, false, false};
  rows.operands[2] = {mix.b, mix.b_bytes, false, mix.b_is_single};
  return mix.declares;
}

const ir::TaskType kMix = {
    .kind = ir::TaskKind::kKernel, .name = "MIX", .run = RunMix, .elementwise = DeclareMix, .operands = ir::NoOperands};
const ir::TaskType kOpaque = {.kind = ir::TaskKind::kKernel,
                              .name = "OPAQUE",
                              .run = [](RunContext&, void*) { return RunResult::kDone; },
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
                                   rows.operand_count = 1;
                                   rows.operands[0] = {abort.cell, 4, true, false};
                                   return true;
                                 },
                             .operands = ir::NoOperands};

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
    graph.Add(0, ir::MakeTask(kMix, mix));
    return *this;
  }
  Chain& AddOther(const ir::TaskType& type) {
    uint64_t nothing = 0;
    graph.Add(0, ir::MakeTask(type, nothing));
    return *this;
  }

  /// "b3 r2 s": groups in blocks, rows one after another, other steps, with the number of tasks in each.
  std::string Shape() const {
    const auto plan = Plan::Compile(graph);
    std::string text;
    uint32_t next_row = 0;
    for (const Step& step : plan->steps()) {
      if (!text.empty()) text += ' ';
      if (step.kind != Step::kRows && step.kind != Step::kBlocks) {
        text += 's';
        continue;
      }
      EXPECT_EQ(step.rows.first, next_row);
      next_row += step.rows.count;
      EXPECT_EQ(step.task_id, plan->rows()[step.rows.first].task_id);
      text += (step.kind == Step::kRows ? "r" : step.is_parallel ? "p" : "b") + std::to_string(step.rows.count);
    }
    EXPECT_EQ(next_row, plan->rows().size());
    return text;
  }

  ir::Graph graph;

 private:
  std::vector<char> memory_;
};

/// Runs a replay once, as a stream does.
class Driver final : public device::Runnable {
 public:
  Driver(Replay& replay, device::Scheduler& scheduler) : replay_(replay), scheduler_(scheduler) {}
  Outcome Run(RunContext& context) override {
    if (done_) return Outcome::kIdle;
    const RunResult result = replay_.Run(context, progress_);
    if (result == RunResult::kParked) return Outcome::kIdle;
    if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
    if (context.failed()) error_ = context.TakeError();
    done_ = true;
    done_.notify_all();
    return Outcome::kIdle;
  }
  Status Execute() {
    done_ = false;
    progress_.ticket = replay_.Submit();
    scheduler_.Wake(*this);
    done_.wait(false);
    scheduler_.Retire(*this);
    return std::move(error_);
  }

 private:
  Replay& replay_;
  device::Scheduler& scheduler_;
  Replay::Progress progress_{};
  Status error_;
  std::atomic<bool> done_{true};
};

// ------------------------------------------------------------------------------------------------ what becomes a step

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
  EXPECT_EQ(step.block % kRowUnit, 0);
  EXPECT_LE(step.block * 8, 32 * 1024) << "two ranges fit the first cache";
  EXPECT_GE(step.block, kRowUnit);
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
  EXPECT_EQ(chain.Shape(), "b2 s b2 s");
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

TEST(Blocks, WhatIsNotDeclaredStaysATask) {
  Chain chain;
  Mix mix;
  mix.out = chain.at(0);
  mix.a = mix.b = chain.at(kFar);
  mix.n = kLong;
  mix.declares = false;
  chain.Add(mix).Add(mix);
  EXPECT_EQ(chain.Shape(), "s s");
  // Nor does a declaration count that contradicts itself.
  chain.Add(kLong, 4, 0, kFar);
  EXPECT_EQ(chain.Shape(), "s s s");
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
  EXPECT_LE(Plan::Compile(chain.graph)->memory_bytes(), 1000 * sizeof(Row) + sizeof(Step));
}

TEST(Blocks, AGroupEndsSomewhere) {
  Chain chain;
  for (int i = 0; i < 2100; ++i) chain.Add(2 * 32768, 0, 0, kFar + kFar);
  EXPECT_EQ(chain.Shape(), "p1024 p1024 p52");
}

// --------------------------------------------------------------------------------------------------------- execution

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
      mix.grain = random() % 3 == 0 ? 512 : 32768;
      const auto place = [&] {
        const int64_t shift = random() % 6 == 0 ? static_cast<int64_t>(random() % 64) * 8 : 0;
        return chain.at(static_cast<int64_t>(random() % 4) * 80000 + shift);
      };
      mix.out = place();
      mix.a = place();
      mix.b = place();
      // A task may not overlap itself but for being the same.
      const auto clashes = [&](const char* in, int64_t bytes, bool is_single) {
        const bool is_same = in == mix.out && bytes == mix.out_bytes && !is_single;
        return !is_same && in < mix.out + mix.n * mix.out_bytes && mix.out < in + bytes * (is_single ? 1 : mix.n);
      };
      if (clashes(mix.a, mix.a_bytes, false) || clashes(mix.b, mix.b_bytes, mix.b_is_single)) continue;
      if (random() % 12 == 0) chain.AddOther(kOpaque);
      chain.Add(mix);
    }
    auto plan = Plan::Compile(chain.graph);
    for (const Step& step : plan->steps()) {
      if (step.kind != Step::kBlocks) continue;
      ++groups;
      std::vector<Elementwise::Operand> operands;
      for (uint32_t i = 0; i < step.rows.count; ++i) {
        const Row& row = plan->rows()[step.rows.first + i];
        Elementwise declared;
        ASSERT_TRUE(DeclareMix(plan->node(0, row).payload, declared));
        ASSERT_EQ(declared.call.count, plan->rows()[step.rows.first].call.count);
        operands.insert(operands.end(), declared.operands, declared.operands + declared.operand_count);
      }
      const int64_t n = plan->rows()[step.rows.first].call.count;
      for (const Elementwise::Operand& x : operands) {
        for (const Elementwise::Operand& y : operands) {
          if (!x.is_write) continue;
          const auto* x_begin = static_cast<const char*>(x.base);
          const auto* y_begin = static_cast<const char*>(y.base);
          const bool is_same = x_begin == y_begin && x.item_bytes == y.item_bytes && !y.is_single;
          const bool meets =
              x_begin < y_begin + y.item_bytes * (y.is_single ? 1 : n) && y_begin < x_begin + x.item_bytes * n;
          ASSERT_TRUE(is_same || !meets);
        }
      }
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

}  // namespace
}  // namespace reprise::exec
