// SPDX-License-Identifier: Apache-2.0
//
// From a partial order to execution lanes, against lanes that take their steps in random order; dag_test.cc has the way
// from captured lanes to a partial order.
#include "exec/assign.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <bitset>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "exec/plan.h"
#include "random_graphs.h"
#include "scale.h"

namespace reprise::exec {
namespace {

using namespace testing;  // NOLINT: the graphs that both tests use
using ir::BuildDag;
using ir::Dag;

std::vector<uint32_t> RandomCosts(const Dag& dag, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> costs(dag.size());
  const uint32_t spread = 1 + random() % 5000;
  for (uint32_t& cost : costs) cost = random() % 16 == 0 ? 0 : 200 + random() % spread;
  return costs;
}

// How the next lane to take a step is found.
enum class Interleaving { kRandom, kFirstLaneFirst, kLastLaneFirst, kAlternating };

/// Runs the assignment step by step, as lanes that see nothing of each other but published positions.
/// Returns the tasks of the graph in the order in which they ran.
std::vector<ir::NodeId> Execute(const Dag& dag, const Assignment& assignment, Interleaving interleaving,
                                std::mt19937& random) {
  const uint32_t lanes = assignment.lanes();
  std::vector<uint32_t> next(assignment.lane_begin.begin(), assignment.lane_begin.end() - 1);
  std::vector<uint32_t> seen(lanes, 0);  // published position
  std::vector<ir::NodeId> ran;
  size_t steps = 0;
  for (uint32_t turn = 0; steps != assignment.nodes.size(); ++turn) {
    std::vector<uint32_t> order(lanes);
    std::iota(order.begin(), order.end(), 0);
    if (interleaving == Interleaving::kLastLaneFirst) std::reverse(order.begin(), order.end());
    if (interleaving == Interleaving::kAlternating)
      std::rotate(order.begin(), order.begin() + turn % lanes, order.end());
    if (interleaving == Interleaving::kRandom) std::shuffle(order.begin(), order.end(), random);
    const auto able = std::find_if(order.begin(), order.end(), [&](uint32_t lane) {
      if (next[lane] == assignment.lane_begin[lane + 1]) return false;
      const auto waits = assignment.waits_of(next[lane]);
      return std::all_of(waits.begin(), waits.end(),
                         [&](const Assignment::Wait& wait) { return seen[wait.lane] >= wait.position; });
    });
    if (able == order.end()) {
      ADD_FAILURE() << "deadlock after " << steps << " of " << assignment.nodes.size() << " steps";
      return ran;
    }
    const uint32_t place = next[*able]++;
    const uint32_t node = assignment.nodes[place];
    if (dag.is_junction[node] == 0) ran.push_back(dag.task[node]);
    if (assignment.published[place] != 0) seen[*able] = place - assignment.lane_begin[*able] + 1;
    ++steps;
  }
  return ran;
}

void ExpectHonoured(const ir::Graph& graph, const std::vector<NodeSet>& before, const std::vector<ir::NodeId>& ran) {
  NodeSet done;
  for (const ir::NodeId task : ran) {
    ASSERT_FALSE(done.test(task)) << "task " << task << " ran twice";
    ASSERT_TRUE((before[task] & ~done).none()) << "task " << task << " ran too early";
    done.set(task);
  }
  for (ir::NodeId id = 0; id < graph.nodes().size(); ++id) {
    ASSERT_EQ(done.test(id), Runs(graph.node(id))) << "task " << id;
  }
}

/// When the last node ends, if nodes and hand-offs take these times.
double Simulate(const Assignment& assignment, const std::vector<uint32_t>& cost_ns, double handoff_ns) {
  const uint32_t lanes = assignment.lanes();
  std::vector<std::vector<double>> finish(lanes);
  size_t done = 0;
  double last = 0;
  while (done != assignment.nodes.size()) {
    const size_t before = done;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      for (;;) {
        const auto place = static_cast<uint32_t>(assignment.lane_begin[lane] + finish[lane].size());
        if (place == assignment.lane_begin[lane + 1]) break;
        double start = finish[lane].empty() ? 0 : finish[lane].back();
        bool able = true;
        for (const Assignment::Wait& wait : assignment.waits_of(place)) {
          able = able && finish[wait.lane].size() >= wait.position;
          if (able) start = std::max(start, finish[wait.lane][wait.position - 1] + handoff_ns);
        }
        if (!able) break;
        finish[lane].push_back(start + cost_ns[assignment.nodes[place]]);
        last = std::max(last, finish[lane].back());
        ++done;
      }
    }
    if (done == before) {
      ADD_FAILURE() << "deadlock";
      break;
    }
  }
  return last;
}

// ---- What qualifies ----

TEST(CanSchedule, OnlyTasksThatNeverWait) {
  ir::Graph graph;
  AddLane(graph);
  AddLane(graph);
  EXPECT_TRUE(CanSchedule(graph)) << "nothing runs";
  AddTask(graph, 0);
  AddWait(graph, 1, AddRecord(graph, 0));
  EXPECT_TRUE(CanSchedule(graph));
  const ir::NodeId waiting = AddTask(graph, 1, kMayWait);
  EXPECT_FALSE(CanSchedule(graph));
  graph.Disable(waiting);
  EXPECT_TRUE(CanSchedule(graph)) << "it does not run";
}

TEST(CanSchedule, RecordsComeBeforeTheirWaits) {
  ir::Graph graph;
  AddLane(graph);
  AddLane(graph);
  AddWait(graph, 1, 1);
  AddRecord(graph, 0);
  EXPECT_FALSE(CanSchedule(graph));
}

TEST(CanSchedule, ContentsOfSlotsMayBecomeAnything) {
  ir::Graph graph;
  AddLane(graph);
  graph.MakeSlot(AddTask(graph, 0));
  EXPECT_FALSE(CanSchedule(graph));
}

TEST(CanSchedule, AsManyLanesAsAStepCanName) {
  ir::Graph graph;
  for (uint32_t i = 0; i < kMaxScheduledLanes; ++i) AddTask(graph, AddLane(graph));
  EXPECT_TRUE(CanSchedule(graph));
  AddLane(graph);
  EXPECT_FALSE(CanSchedule(graph));
}

// ---- Siblings ----

TEST(Siblings, AreThoseWithTheSameNeighbours) {
  size_t groups = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(400, 30)); ++seed) {
    SCOPED_TRACE(seed);
    const Dag dag = BuildDag(*RandomGraph(seed, 300));
    const Siblings siblings = FindSiblings(dag);
    std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, std::vector<uint32_t>> wanted;
    for (uint32_t node = 0; node < dag.size(); ++node) {
      const auto preds = dag.preds_of(node);
      const auto succs = dag.succs_of(node);
      if (dag.is_junction[node] != 0) {
        ASSERT_EQ(siblings.group_of[node], Siblings::kAlone);
        continue;
      }
      wanted[{{preds.begin(), preds.end()}, {succs.begin(), succs.end()}}].push_back(node);
    }
    size_t expected = 0;
    for (const auto& [neighbours, nodes] : wanted) {
      const uint32_t group = siblings.group_of[nodes[0]];
      if (nodes.size() == 1) {
        ASSERT_EQ(group, Siblings::kAlone);
        continue;
      }
      ++expected;
      ASSERT_LT(group, siblings.count());
      const auto members = siblings.members_of(group);
      ASSERT_EQ(std::vector<uint32_t>(members.begin(), members.end()), nodes);
      for (const uint32_t node : nodes) ASSERT_EQ(siblings.group_of[node], group);
    }
    ASSERT_EQ(siblings.count(), expected);
    groups += expected;
  }
  EXPECT_GT(groups, 10u) << "the graphs have none";
}

/// One task, `width` after it, one after those; each on a stream of its own.
std::unique_ptr<ir::Graph> ForkJoin(uint32_t width) {
  auto graph = std::make_unique<ir::Graph>();
  AddLane(*graph);
  AddTask(*graph, 0);
  const ir::NodeId fork = AddRecord(*graph, 0);
  for (uint32_t i = 0; i < width; ++i) AddWait(*graph, AddLane(*graph), fork);
  for (uint32_t i = 1; i <= width; ++i) AddTask(*graph, i);
  for (uint32_t i = 1; i <= width; ++i) AddWait(*graph, 0, AddRecord(*graph, i));
  AddTask(*graph, 0);
  return graph;
}

TEST(Siblings, AreSplitEvenlyIntoRanges) {
  for (const uint32_t lanes : {2u, 3u, 4u}) {
    for (const uint32_t width : {16u, 256u, 1000u}) {
      SCOPED_TRACE(::testing::Message() << width << " on " << lanes);
      const Dag dag = BuildDag(*ForkJoin(width));
      const Assignment assignment = Schedule(dag, lanes);
      ASSERT_EQ(assignment.lanes(), lanes);
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        std::vector<uint32_t> mine;
        for (uint32_t place = assignment.lane_begin[lane]; place < assignment.lane_begin[lane + 1]; ++place) {
          const uint32_t node = assignment.nodes[place];
          if (node != 0 && node != width + 1) mine.push_back(node);
        }
        EXPECT_GE(mine.size(), width / lanes - 1);
        EXPECT_LE(mine.size(), width / lanes + 2);
        std::vector<uint32_t> breaks;  // one at most, where a lane helped another at the end
        for (size_t i = 1; i < mine.size(); ++i) {
          if (mine[i] != mine[i - 1] + 1) breaks.push_back(mine[i]);
        }
        EXPECT_LE(breaks.size(), 1u);
      }
      // The others wait for the fork, and the join for the others.
      EXPECT_EQ(assignment.waits.size(), size_t{2} * (lanes - 1));
    }
  }
}

TEST(Siblings, AreSplitByCost) {
  const uint32_t width = 64;
  const Dag dag = BuildDag(*ForkJoin(width));
  for (const uint32_t heavy : {1u, 30u, width}) {
    std::vector<uint32_t> costs(dag.size(), 1000);
    costs[heavy] = 20000;  // worth twenty
    const Assignment assignment = Schedule(dag, 2, costs);
    ASSERT_EQ(assignment.lanes(), 2u);
    const uint64_t total = std::accumulate(costs.begin(), costs.end(), uint64_t{0});
    EXPECT_LE(assignment.makespan_ns, total / 2 + 2000) << "wherever it stands: " << heavy;
  }
}

// ---- Assignments ----

// Barriers of all lanes without a task between: lanes x lanes dependencies, but not as many edges.
TEST(Schedule, BarriersOfThousandsOfLanesStayLinear) {
  const auto lanes = static_cast<ir::LaneId>(Loops(2000, 200));
  ir::Graph graph;
  for (ir::LaneId lane = 0; lane < lanes; ++lane) AddLane(graph);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    for (ir::LaneId lane = 0; lane < lanes; ++lane) {
      AddTask(graph, lane);
      if (lane != 0) AddWait(graph, 0, AddRecord(graph, lane));
    }
    const ir::NodeId all = AddRecord(graph, 0);
    for (ir::LaneId lane = 1; lane < lanes; ++lane) AddWait(graph, lane, all);
  }
  const Dag dag = BuildDag(graph);
  const Siblings siblings = FindSiblings(dag);
  EXPECT_EQ(siblings.count(), static_cast<uint32_t>(kRounds)) << "each round is one group";
  const Assignment assignment = Schedule(dag, 2);
  EXPECT_EQ(assignment.lanes(), 2u);
  EXPECT_EQ(assignment.serial_ns, uint64_t{1000} * kRounds * lanes) << "junctions cost nothing";
  // Each lane waits for the end of a round once, or for the junction.
  EXPECT_LE(assignment.waits.size(), size_t{2 * kRounds});
}

TEST(Schedule, HonoursEveryDependencyInEveryInterleaving) {
  size_t spread = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(800, 40)); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto graph = RandomGraph(seed, 400);
    const std::vector<NodeSet> before = TasksBefore(*graph);
    const Dag dag = BuildDag(*graph);
    const uint32_t lanes = 1 + random() % 6;
    const auto costs = random() % 3 != 0 ? RandomCosts(dag, seed) : std::vector<uint32_t>();
    const Assignment assignment = Schedule(dag, lanes, costs, random() % 2 == 0 ? kHandoffNs : random() % 1000);
    ASSERT_LE(assignment.lanes(), lanes);
    spread += assignment.lanes() > 1 ? 1 : 0;
    for (const Interleaving interleaving :
         {Interleaving::kFirstLaneFirst, Interleaving::kLastLaneFirst, Interleaving::kAlternating}) {
      ExpectHonoured(*graph, before, Execute(dag, assignment, interleaving, random));
    }
    for (int i = 0; i < 6 && !HasFatalFailure(); ++i) {
      ExpectHonoured(*graph, before, Execute(dag, assignment, Interleaving::kRandom, random));
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(spread, 10u) << "nothing was spread";
}

// A wait is necessary when, without it, its source could still be running: nothing else leads from there to here.
TEST(Schedule, KeepsNoWaitThatOthersImply) {
  size_t waits = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(150, 10)); ++seed) {
    SCOPED_TRACE(seed);
    const Dag dag = BuildDag(*RandomGraph(seed, 300));
    const Assignment assignment = Schedule(dag, 2 + seed % 5, RandomCosts(dag, seed));
    const auto count = static_cast<uint32_t>(assignment.nodes.size());
    std::vector<uint32_t> lane_of(count);
    for (uint32_t lane = 0; lane < assignment.lanes(); ++lane) {
      std::fill(lane_of.begin() + assignment.lane_begin[lane], lane_of.begin() + assignment.lane_begin[lane + 1], lane);
    }
    std::vector<uint8_t> waited(count, 0);
    const auto source_of = [&](const Assignment::Wait& wait) {
      return assignment.lane_begin[wait.lane] + wait.position - 1;
    };
    // Whether `from` comes before `to`, by lanes and waits other than the one left out.
    const auto leads = [&](uint32_t from, uint32_t to, const Assignment::Wait* left_out) {
      std::vector<uint32_t> open{to};
      std::vector<uint8_t> seen(count, 0);
      while (!open.empty()) {
        const uint32_t place = open.back();
        open.pop_back();
        std::vector<uint32_t> inputs;
        if (place != assignment.lane_begin[lane_of[place]]) inputs.push_back(place - 1);
        for (const Assignment::Wait& wait : assignment.waits_of(place)) {
          if (&wait != left_out) inputs.push_back(source_of(wait));
        }
        for (const uint32_t input : inputs) {
          if (input == from) return true;
          if (seen[input] == 0) open.push_back(input);
          seen[input] = 1;
        }
      }
      return false;
    };
    for (uint32_t place = 0; place < count; ++place) {
      for (const Assignment::Wait& wait : assignment.waits_of(place)) {
        ASSERT_NE(wait.lane, lane_of[place]);
        ASSERT_FALSE(leads(source_of(wait), place, &wait)) << "place " << place;
        waited[source_of(wait)] = 1;
        ++waits;
      }
    }
    ASSERT_EQ(waited, assignment.published) << "exactly what somebody waits for is published";
  }
  EXPECT_GT(waits, 100u);
}

TEST(Schedule, IsDeterministic) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const Dag dag = BuildDag(*RandomGraph(seed, 300));
    const auto costs = RandomCosts(dag, seed);
    const Assignment a = Schedule(dag, 3, costs);
    const Assignment b = Schedule(BuildDag(*RandomGraph(seed, 300)), 3, costs);
    EXPECT_EQ(a.nodes, b.nodes);
    EXPECT_EQ(a.lane_begin, b.lane_begin);
    EXPECT_EQ(a.waits, b.waits);
    EXPECT_EQ(a.wait_begin, b.wait_begin);
    EXPECT_EQ(a.published, b.published);
    EXPECT_EQ(a.makespan_ns, b.makespan_ns);
  }
}

TEST(Schedule, NothingIsOneEmptyLane) {
  ir::Graph graph;
  AddLane(graph);
  const Assignment assignment = Schedule(BuildDag(graph), 2);
  EXPECT_EQ(assignment.lanes(), 1u);
  EXPECT_TRUE(assignment.nodes.empty());
  EXPECT_EQ(assignment.makespan_ns, 0u);
}

TEST(Schedule, OneLaneInTheOrderOfCaptureUnlessMorePay) {
  // A chain over many streams.
  ir::Graph chain;
  ir::NodeId last = ir::kNoNode;
  for (uint32_t i = 0; i < 30; ++i) {
    const ir::LaneId lane = AddLane(chain);
    if (last != ir::kNoNode) AddWait(chain, lane, last);
    AddTask(chain, lane);
    last = AddRecord(chain, lane);
  }
  Assignment assignment = Schedule(BuildDag(chain), 4);
  EXPECT_EQ(assignment.lanes(), 1u);
  std::vector<uint32_t> in_order(30);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(assignment.nodes, in_order);
  EXPECT_TRUE(assignment.waits.empty());
  EXPECT_EQ(assignment.makespan_ns, assignment.serial_ns);
  // Two branches too short for the price of a hand-off.
  const Dag two = BuildDag(*ForkJoin(2));
  EXPECT_EQ(Schedule(two, 2, std::vector<uint32_t>(4, 100)).lanes(), 1u);
  EXPECT_EQ(Schedule(two, 2, std::vector<uint32_t>(4, 10000)).lanes(), 2u);
  EXPECT_EQ(Schedule(two, 1, std::vector<uint32_t>(4, 10000)).lanes(), 1u);
  EXPECT_EQ(Schedule(two, 2, std::vector<uint32_t>{9000, 1000, 1000, 9000}).lanes(), 1u) << "only a twentieth faster";
  EXPECT_EQ(Schedule(two, 2, std::vector<uint32_t>{3000, 2000, 2000, 3000}).lanes(), 2u);
  EXPECT_EQ(Schedule(two, 2, std::vector<uint32_t>(4, 0)).lanes(), 1u) << "nothing to win";
  EXPECT_EQ(Schedule(two, 9, std::vector<uint32_t>(4, 10000)).lanes(), 2u) << "no more lanes than are used";
}

TEST(Schedule, EstimateIsWhatASimulationFinds) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Dag dag = BuildDag(*RandomGraph(seed, 400));
    std::vector<uint32_t> costs = RandomCosts(dag, seed);
    for (uint32_t node = 0; node < dag.size(); ++node) costs[node] *= dag.is_junction[node] == 0 ? 1 : 0;
    const Assignment assignment = Schedule(dag, 1 + seed % 4, costs);
    // Dropped waits can only make it shorter.
    EXPECT_LE(Simulate(assignment, costs, kHandoffNs), static_cast<double>(assignment.makespan_ns));
    EXPECT_GE(Simulate(assignment, costs, kHandoffNs), 0.9 * static_cast<double>(assignment.makespan_ns));
  }
}

// ---- Quality and price ----

// A thousand tasks of 0.5 to 5 us with three inputs each on average, from anywhere before, or from the newest few.
struct TimedGraph {
  /// With `most_lanes`, tasks beyond them go to any lane, which adds dependencies.
  TimedGraph(uint32_t count, uint32_t window, uint64_t seed, uint32_t most_lanes = UINT32_MAX) {
    std::mt19937_64 random(seed);
    std::vector<ir::NodeId> records;
    std::vector<uint64_t> finish;
    for (uint32_t i = 0; i < count; ++i) {
      costs.push_back(500 + static_cast<uint32_t>(random() % 4500));
      total += costs.back();
      const uint32_t room = std::min(i, window);
      std::set<uint32_t> inputs;
      const auto wanted = static_cast<size_t>(std::min<uint64_t>(room, random() % 7));
      while (inputs.size() < wanted) inputs.insert(i - room + static_cast<uint32_t>(random() % room));
      // Lanes are used again and again, but only where their newest task is an input anyway.
      ir::LaneId lane = ir::LaneId{UINT32_MAX};
      for (const uint32_t input : inputs) {
        const ir::Node& record = graph.node(records[input]);
        if (graph.lanes()[record.lane].nodes.back() == records[input]) lane = record.lane;
      }
      if (lane == UINT32_MAX && graph.lanes().size() < most_lanes) lane = AddLane(graph);
      if (lane == UINT32_MAX) lane = static_cast<ir::LaneId>(random() % most_lanes);
      uint64_t start = 0;
      for (const uint32_t input : inputs) {
        AddWait(graph, lane, records[input]);
        start = std::max(start, finish[input]);
      }
      AddTask(graph, lane);
      records.push_back(AddRecord(graph, lane));
      finish.push_back(start + costs.back());
      critical = std::max(critical, finish.back());
    }
  }
  double Bound() const { return std::max(static_cast<double>(critical), static_cast<double>(total) / 2); }

  ir::Graph graph;
  std::vector<uint32_t> costs;
  uint64_t critical = 0;
  uint64_t total = 0;
};

struct Excess {
  double known = 0;
  double unit = 0;
};
Excess WorstOver(uint32_t window) {
  Excess worst;
  for (uint64_t seed = 40; seed < 40 + static_cast<uint64_t>(Loops(40, 5)); ++seed) {
    const TimedGraph timed(1000, window, seed);
    const Dag dag = BuildDag(timed.graph);
    EXPECT_EQ(dag.size(), 1000u);
    worst.known =
        std::max(worst.known, Simulate(Schedule(dag, 2, timed.costs), timed.costs, kHandoffNs) / timed.Bound());
    worst.unit = std::max(worst.unit, Simulate(Schedule(dag, 2), timed.costs, kHandoffNs) / timed.Bound());
  }
  return worst;
}

TEST(Schedule, WideGraphsEndNearTheBound) {
  const Excess worst = WorstOver(UINT32_MAX);
  EXPECT_LE(worst.known, 1.06);
  EXPECT_LE(worst.unit, 1.06);
}

TEST(Schedule, DeepGraphsEndNearTheBound) {
  const Excess worst = WorstOver(8);
  EXPECT_LE(worst.known, 1.15);
  EXPECT_LE(worst.unit, 1.25);
}

// Of this thread, so that other work on the machine counts little.
double CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

TEST(Schedule, TakesLinearTime) {
  // Others share the core's caches and its threads: the least of some tries, and of more as long as it is too much.
  // Quadratic time would take a hundred times as long for ten times as many, so that both bounds leave room.
  std::map<uint32_t, double> best_ms;
  const auto measure = [&](uint32_t count, const std::function<bool()>& is_enough) {
    // With records and waits the graph has five times as many nodes.
    const TimedGraph timed(static_cast<uint32_t>(Loops(static_cast<int>(count), 2000)), 1000, 1, 256);
    ASSERT_TRUE(CanSchedule(timed.graph));
    best_ms[count] = 1e9;
    for (int i = 0; i < 5 || (i < 50 && !is_enough()); ++i) {
      const double begin = CpuMs();
      const Dag dag = BuildDag(timed.graph);
      const Assignment assignment = Schedule(dag, 2, timed.costs);
      best_ms[count] = std::min(best_ms[count], CpuMs() - begin);
      ASSERT_EQ(assignment.nodes.size(), timed.costs.size());
    }
    RecordProperty("ms_for_" + std::to_string(count), std::to_string(best_ms[count]));
  };
  const auto small_is_fast = [&] { return testing::kSanitized || best_ms[10000] < 50; };
  const auto is_linear = [&] { return testing::kSanitized || best_ms[100000] < 35 * best_ms[10000]; };
  measure(10000, small_is_fast);
  measure(100000, is_linear);
  EXPECT_TRUE(small_is_fast()) << best_ms[10000] << " ms for fifty thousand nodes of the graph";
  EXPECT_TRUE(is_linear()) << best_ms[100000] << " ms for ten times as many nodes, against " << best_ms[10000];
}

// ---- Plans ----

TEST(ScheduledPlan, HasTheStepsOfTheAssignment) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(200, 20)); ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = RandomGraph(seed, 400);
    const std::vector<NodeSet> before = TasksBefore(*graph);
    const Dag dag = BuildDag(*graph);
    const auto plan = Plan::Compile(*graph, dag, Schedule(dag, 1 + seed % 4));
    ASSERT_TRUE(plan->is_scheduled());
    const auto lanes = static_cast<uint32_t>(plan->lanes().size());
    // As a replay does it, lanes taking turns at random.
    std::mt19937 random(seed);
    std::vector<uint32_t> at;
    for (const PlanLane& lane : plan->lanes()) at.push_back(lane.begin);
    std::vector<uint32_t> progress(lanes, 0);
    std::vector<ir::NodeId> ran;
    uint32_t idle = 0;
    for (uint32_t turn = 0; idle < lanes; ++turn) {
      const uint32_t lane = turn % lanes;
      ++idle;
      if (at[lane] == plan->lanes()[lane].end) continue;
      const Step& step = plan->steps()[at[lane]];
      const ir::NodeId id = plan->node_id(lane, step);
      const ir::Node node = graph->node(id);
      const ir::Node found = plan->node(lane, step);
      ASSERT_TRUE(found.lane == node.lane && found.position == node.position);
      ASSERT_TRUE(found.type == node.type && found.payload == node.payload);
      ASSERT_EQ(plan->stream_id(lane, step), 100 + static_cast<int32_t>(node.lane));
      ASSERT_EQ(step.task_id, node.position);
      if (step.kind == Step::kWait) {
        if (at[lane] == plan->lanes()[lane].begin) {
          ASSERT_EQ(plan->lanes()[lane].first_wait_lane, static_cast<int32_t>(step.target.lane));
        }
        if (progress[step.target.lane] < step.target.position) continue;
      } else {
        ASSERT_TRUE(at[lane] != plan->lanes()[lane].begin || plan->lanes()[lane].first_wait_lane == -1);
        if (step.kind == Step::kPublish) {
          ASSERT_EQ(step.target.lane, lane);
          ASSERT_GT(step.target.position, progress[lane]);
          progress[lane] = step.target.position;
        } else {
          ASSERT_EQ(step.kind, static_cast<uint32_t>(Step::kRun));
          ASSERT_EQ(step.type, node.type);
          ASSERT_EQ(step.data, node.payload);
          ran.push_back(id);
        }
      }
      ++at[lane];
      idle = 0;
      turn += static_cast<uint32_t>(random() % lanes);
    }
    for (uint32_t lane = 0; lane < lanes; ++lane) ASSERT_EQ(at[lane], plan->lanes()[lane].end) << "deadlock";
    ExpectHonoured(*graph, before, ran);
    if (HasFailure()) break;
  }
}

int32_t NoKernel(const RepriseKernelContext*, const void*, size_t) { return 0; }
struct BytesPayload {
  uint32_t args_bytes;
};
ir::TaskType CallType() {
  ir::TaskType type = Type(ir::TaskKind::kKernel, true);
  type.direct = [](const void* payload, ir::DirectCall& call) {
    call = {NoKernel, payload, "none", static_cast<const BytesPayload*>(payload)->args_bytes};
    return true;
  };
  return type;
}
const ir::TaskType kCalled = CallType();

TEST(ScheduledPlan, KernelsAreCalledUnlessTheirArgumentsAreTooMany) {
  ir::Graph graph;
  for (int i = 0; i < 3; ++i) AddLane(graph);
  for (const uint32_t bytes : {8u, kMaxDirectArgsBytes, kMaxDirectArgsBytes + 1}) {
    BytesPayload payload{bytes};
    graph.Add(2, ir::MakeTask(kCalled, payload));
  }
  const Dag dag = BuildDag(graph);
  const auto scheduled = Plan::Compile(graph, dag, Schedule(dag, 2));
  const auto compiled = Plan::Compile(graph);
  for (const Plan* plan : {scheduled.get(), compiled.get()}) {
    ASSERT_EQ(plan->steps().size(), 3u);
    EXPECT_EQ(plan->steps()[0].kind, static_cast<uint32_t>(Step::kCall));
    EXPECT_EQ(plan->steps()[0].args_bytes, 8u);
    EXPECT_EQ(plan->steps()[1].kind, static_cast<uint32_t>(Step::kCall));
    EXPECT_EQ(plan->steps()[1].args_bytes, kMaxDirectArgsBytes);
    EXPECT_EQ(plan->steps()[2].kind, static_cast<uint32_t>(Step::kRun));
    for (const Step& step : plan->steps()) EXPECT_EQ(step.lane, 2u);
  }
  EXPECT_EQ(scheduled->lanes().size(), 1u);
  EXPECT_EQ(scheduled->lanes()[0].stream_id, 102);
}

// A step has no room for the number of its lane, and does not need it: the lane of the plan is the captured one.
TEST(ScheduledPlan, LanesBeyondTheBitsOfAStepAreKnownByThePlan) {
  ir::Graph graph;
  for (uint32_t i = 0; i < kMaxScheduledLanes + 10; ++i) AddTask(graph, AddLane(graph));
  const auto plan = Plan::Compile(graph);
  EXPECT_FALSE(plan->is_scheduled());
  for (const uint32_t lane : {0u, kMaxScheduledLanes, kMaxScheduledLanes + 9}) {
    const Step& step = plan->steps()[plan->lanes()[lane].begin];
    EXPECT_EQ(plan->node_id(lane, step), lane);
    EXPECT_EQ(plan->stream_id(lane, step), 100 + static_cast<int32_t>(lane));
  }
}

}  // namespace
}  // namespace reprise::exec
