// SPDX-License-Identifier: Apache-2.0
//
// Executions whose lanes run one after another on one thread, and when that is chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/scheduler.h"
#include "exec/assign.h"
#include "exec/lane_choice.h"
#include "exec/plan.h"
#include "exec/replay.h"
#include "ir/dag.h"
#include "random_graphs.h"
#include "replay_driver.h"

namespace reprise::exec {
namespace {

using device::RunContext;
using ir::RunResult;
using Driver = testing::ReplayDriver;

constexpr uint64_t kSerialNs = 1'000'000;
constexpr uint64_t kFine = kSerialNs, kSlow = 2 * kSerialNs;

/// Executions of these times; how many of the next `most` are serial.
int SerialBehind(LaneChoice& choice, uint64_t serial_ns, int most) {
  int serial = 0;
  for (; serial < most && choice.is_serial(); ++serial) choice.Note(serial_ns);
  return serial;
}

TEST(LaneChoice, NothingIsChosenForOneLaneOrShortGraphs) {
  EXPECT_FALSE(LaneChoice().is_open());
  EXPECT_FALSE(LaneChoice(LaneChoice::kGraceNs - 1).is_open());
  EXPECT_TRUE(LaneChoice(LaneChoice::kGraceNs).is_open());
}

TEST(LaneChoice, LanesThatAreSlowTwiceAreLeft) {
  LaneChoice choice(kSerialNs);
  choice.Note(kSlow);
  EXPECT_FALSE(choice.is_serial()) << "anything may happen once";
  choice.Note(kFine);
  choice.Note(kSlow);
  EXPECT_FALSE(choice.is_serial()) << "once again, not twice in a row";
  choice.Note(kSlow);
  EXPECT_TRUE(choice.is_serial());
}

TEST(LaneChoice, AWakeUpIsNoReason) {
  LaneChoice choice(LaneChoice::kGraceNs);
  for (int i = 0; i < 10; ++i) choice.Note(2 * LaneChoice::kGraceNs);
  EXPECT_FALSE(choice.is_serial());
}

TEST(LaneChoice, TheyAreTriedAgainAndLessAndLess) {
  LaneChoice choice(kSerialNs);
  int before = 0;
  int most = 0;
  for (int i = 0; i < 10; ++i) {
    choice.Note(kSlow);
    choice.Note(kSlow);
    const int serial = SerialBehind(choice, kSerialNs, 100'000);
    EXPECT_GE(serial, before);
    EXPECT_LT(serial, 1000) << "they are tried again";
    most = std::max(most, before = serial);
  }
  choice.Note(kFine);
  choice.Note(kSlow);
  choice.Note(kSlow);
  EXPECT_LT(SerialBehind(choice, kSerialNs, 100'000), most) << "they were fast in between";
}

// What was learnt first may have been too little: when one thread takes as long, the lanes were not slow.
TEST(LaneChoice, OneThreadShowsWhatItTakes) {
  LaneChoice choice(kSerialNs);
  choice.Note(kSlow);
  choice.Note(kSlow);
  ASSERT_GT(SerialBehind(choice, kSlow, 100'000), 0);
  for (int i = 0; i < 10; ++i) choice.Note(kSlow);
  EXPECT_FALSE(choice.is_serial());
}

/// What ran, in order, and where.
struct Log {
  std::vector<std::atomic<uint32_t>> place;  ///< of each task, from 1
  std::atomic<uint32_t> count{0};
  std::atomic<std::thread::id> thread{};
  std::atomic<bool> is_one_thread{true};
};
struct Logged {
  Log* log;
  uint32_t number;
  bool fails;
};
RunResult RunLogged(RunContext& context, void* payload) {
  const auto& logged = *static_cast<Logged*>(payload);
  const uint32_t place = logged.log->count.fetch_add(1) + 1;
  logged.log->place[logged.number] = place;
  if (place == 1) logged.log->thread = std::this_thread::get_id();
  if (logged.log->thread.load() != std::this_thread::get_id()) logged.log->is_one_thread = false;
  if (logged.fails) context.Fail(Error(507015, "as asked"));
  return RunResult::kDone;
}
const ir::TaskType kLogged = [] {
  ir::TaskType type = testing::kPlain;
  type.run = RunLogged;
  return type;
}();

/// Streams whose tasks wait for each other all the time.
class Woven {
 public:
  Woven(unsigned seed, int tasks, int failing = -1) {
    std::mt19937 random(seed);
    log.place = std::vector<std::atomic<uint32_t>>(static_cast<size_t>(tasks) * 3);
    for (int i = 0; i < 3; ++i) testing::AddLane(graph);
    // The origin forks; in the end it waits for all.
    Wait(1, 0);
    Wait(2, 0);
    for (int i = 0; i < tasks; ++i) {
      const auto lane = static_cast<ir::LaneId>(random() % 3);
      Logged payload{&log, static_cast<uint32_t>(graph.nodes().size()), i == failing};
      graph.Add(lane, ir::MakeTask(kLogged, payload));
      if (random() % 3 == 0) Wait(static_cast<ir::LaneId>(random() % 3), lane);
    }
    Wait(0, 1);
    Wait(0, 2);
    dag = ir::BuildDag(graph);
  }
  void Wait(ir::LaneId lane, ir::LaneId for_lane) {
    if (lane != for_lane) testing::AddWait(graph, lane, testing::AddRecord(graph, for_lane));
  }
  std::unique_ptr<Plan> LaidOut(uint32_t lanes) const {
    return Plan::Compile(graph, dag, Schedule(dag, lanes, std::vector<uint32_t>(dag.size(), 100'000)));
  }
  void ExpectOrder() const {
    for (uint32_t node = 0; node < dag.size(); ++node) {
      if (dag.is_junction[node] != 0) continue;
      const uint32_t place = log.place[dag.task[node]];
      EXPECT_NE(place, 0U) << "task " << dag.task[node];
      for (const uint32_t pred : dag.preds_of(node)) {
        if (dag.is_junction[pred] != 0) continue;
        EXPECT_LT(log.place[dag.task[pred]].load(), place) << dag.task[node];
      }
    }
  }
  void Forget() {
    for (auto& place : log.place) place = 0;
    log.count = 0;
    log.is_one_thread = true;
  }

  ir::Graph graph;
  ir::Dag dag;
  Log log;
};

LaneChoice Serial() {
  LaneChoice choice(kSerialNs);
  choice.Note(UINT64_MAX);
  choice.Note(UINT64_MAX);
  EXPECT_TRUE(choice.is_serial());
  return choice;
}

TEST(SerialLanes, OneThreadRunsAllInAnOrderOfTheGraph) {
  device::Scheduler scheduler(3);
  size_t most_lanes = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Woven woven(seed, 60);
    auto plan = woven.LaidOut(2 + seed % 3);
    most_lanes = std::max(most_lanes, plan->lanes().size());
    Replay replay(std::move(plan), scheduler);
    Driver driver(replay, scheduler);
    for (int i = 0; i < 3; ++i) {
      replay.SetLaneChoice(Serial());
      woven.Forget();
      ASSERT_TRUE(driver.Execute().ok());
      EXPECT_EQ(woven.log.count, 60U);
      EXPECT_TRUE(woven.log.is_one_thread);
      woven.ExpectOrder();
      // With all threads in between.
      replay.SetLaneChoice({});
      woven.Forget();
      ASSERT_TRUE(driver.Execute().ok());
      woven.ExpectOrder();
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(most_lanes, 2U);
}

TEST(SerialLanes, AFailureSkipsTheRest) {
  device::Scheduler scheduler(2);
  Woven woven(5, 60, 30);
  Replay replay(woven.LaidOut(3), scheduler);
  ASSERT_GT(replay.plan().lanes().size(), 1U);
  Driver driver(replay, scheduler);
  for (int i = 0; i < 3; ++i) {
    replay.SetLaneChoice(Serial());
    woven.Forget();
    EXPECT_EQ(driver.Execute().code(), 507015);
    EXPECT_LT(woven.log.count, 60U);
  }
}

}  // namespace
}  // namespace reprise::exec
