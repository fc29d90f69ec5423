// SPDX-License-Identifier: Apache-2.0
//
// From lanes, records and waits to a partial order, against an oracle that goes from node to node.
#include "ir/dag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "ir/order.h"
#include "random_graphs.h"
#include "scale.h"

namespace reprise::ir {
namespace {

using namespace testing;  // NOLINT: the graphs that both tests use

// ---- Graphs of captures ----

TEST(Dag, OrdersWhatTheGraphOrdersAndNothingElse) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(1500, 60)); ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = RandomGraph(seed, 400);
    ASSERT_LE(graph->nodes().size(), kMostNodes);
    const Dag dag = BuildDag(*graph);
    const std::vector<NodeSet> wanted = TasksBefore(*graph);
    const std::vector<NodeSet> before = TasksBefore(dag);
    NodeSet tasks;
    for (uint32_t node = 0; node < dag.size(); ++node) {
      ASSERT_EQ(before[node], wanted[dag.task[node]]) << "node " << node << ", task " << dag.task[node];
      ASSERT_TRUE(node == 0 || dag.task[node - 1] < dag.task[node]) << "order of capture";
      if (dag.is_junction[node] == 0) tasks.set(dag.task[node]);
      const auto preds = dag.preds_of(node);
      for (size_t i = 0; i < preds.size(); ++i) {
        ASSERT_LT(preds[i], node);
        ASSERT_TRUE(i == 0 || preds[i - 1] < preds[i]);
        const auto back = dag.succs_of(preds[i]);
        ASSERT_TRUE(std::binary_search(back.begin(), back.end(), node));
      }
    }
    EXPECT_EQ(dag.preds.size(), dag.succs.size());
    for (NodeId id = 0; id < graph->nodes().size(); ++id) ASSERT_EQ(tasks.test(id), Runs(graph->node(id)));
  }
}

TEST(Dag, DropsEdgesThatOthersImply) {
  Graph graph;
  AddLane(graph);
  AddLane(graph);
  AddTask(graph, 0);
  const NodeId first = AddRecord(graph, 0);
  AddTask(graph, 0);
  const NodeId second = AddRecord(graph, 0);
  AddWait(graph, 1, first);
  AddWait(graph, 1, second);  // implies the first
  AddTask(graph, 1);          // node 2
  AddWait(graph, 1, first);   // known
  AddWait(graph, 1, AddRecord(graph, 1));
  AddTask(graph, 1);                       // node 3
  AddWait(graph, 0, AddRecord(graph, 1));  // implies the task of lane 0 before
  AddTask(graph, 0);                       // node 4
  const Dag dag = BuildDag(graph);
  ASSERT_EQ(dag.size(), 5u);
  EXPECT_EQ(dag.preds, (std::vector<uint32_t>{0, 1, 2, 3})) << "a chain, although two lanes";
}

TEST(Dag, OfEachLaneOnlyTheNewestNodeIsAPredecessor) {
  Graph graph;
  for (int i = 0; i < 22; ++i) AddLane(graph);
  AddTask(graph, 0);
  AddWait(graph, 1, AddRecord(graph, 0));
  for (LaneId lane = 2; lane < 22; ++lane) AddTask(graph, lane);
  AddTask(graph, 0);
  for (LaneId lane = 2; lane < 22; ++lane) AddWait(graph, 0, AddRecord(graph, lane));
  AddTask(graph, 0);  // has so many predecessors that not all are looked at
  AddWait(graph, 1, AddRecord(graph, 0));
  AddTask(graph, 1);
  const Dag dag = BuildDag(graph);
  ASSERT_EQ(dag.size(), 24u);
  EXPECT_EQ(dag.preds_of(22).size(), 21u);
  ASSERT_EQ(dag.preds_of(23).size(), 1u);
  EXPECT_EQ(dag.preds_of(23)[0], 22u);
}

TEST(Dag, WaitsAreHandedOnByLanesWithoutTasks) {
  Graph graph;
  for (int i = 0; i < 4; ++i) AddLane(graph);
  AddTask(graph, 0);
  AddTask(graph, 1);
  AddWait(graph, 2, AddRecord(graph, 0));
  AddWait(graph, 2, AddRecord(graph, 1));
  AddWait(graph, 3, AddRecord(graph, 2));
  AddTask(graph, 3);
  const Dag dag = BuildDag(graph);
  ASSERT_EQ(dag.size(), 3u);
  EXPECT_EQ(dag.preds, (std::vector<uint32_t>{0, 1}));
}

// Barriers of all lanes without a task between: lanes x lanes dependencies, but not as many edges.
TEST(Dag, BarriersOfThousandsOfLanesStayLinear) {
  const auto lanes = static_cast<LaneId>(Loops(2000, 200));
  Graph graph;
  for (LaneId lane = 0; lane < lanes; ++lane) AddLane(graph);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    for (LaneId lane = 0; lane < lanes; ++lane) {
      AddTask(graph, lane);
      if (lane != 0) AddWait(graph, 0, AddRecord(graph, lane));
    }
    const NodeId all = AddRecord(graph, 0);
    for (LaneId lane = 1; lane < lanes; ++lane) AddWait(graph, lane, all);
  }
  const Dag dag = BuildDag(graph);
  EXPECT_EQ(std::count(dag.is_junction.begin(), dag.is_junction.end(), 1), kRounds);
  EXPECT_EQ(dag.size(), kRounds * (lanes + 1));
  EXPECT_LE(dag.preds.size(), size_t{2} * kRounds * lanes);
}

// ---- Any graph ----

const TaskType kHost = Type(TaskKind::kHostFunc, false);
const TaskType kExternal = Type(TaskKind::kExternalWait, false);

/// Tasks of every kind, and records and waits in any order: waits before their records, circles, waits for nothing.
std::unique_ptr<Graph> AnyGraph(unsigned seed) {
  std::mt19937 random(seed);
  auto graph = std::make_unique<Graph>();
  const uint32_t lanes = 1 + random() % 6;
  for (uint32_t i = 0; i < lanes; ++i) AddLane(*graph);
  const auto length = static_cast<NodeId>(2 + random() % 80);
  const uint32_t tasks = 2 + random() % 12;  // how usual they are: circles are rare where waits are
  while (graph->nodes().size() < length) {
    const auto lane = static_cast<LaneId>(random() % lanes);
    switch (random() % (6 + tasks)) {
      case 0:
      case 1:
      case 2: AddRecord(*graph, lane); break;
      case 3: AddWait(*graph, lane, random() % (length + 2)); break;  // of whatever stands there, or will
      case 4: AddWait(*graph, lane, random() % (graph->nodes().size() + 1)); break;
      case 5: graph->Disable(AddTask(*graph, lane, kHost)); break;
      case 6: graph->MakeSlot(AddTask(*graph, lane)); break;
      case 7: AddTask(*graph, lane, kHost); break;
      case 8: AddTask(*graph, lane, kExternal); break;
      case 9: AddTask(*graph, lane, kMayWait); break;
      default: AddTask(*graph, lane); break;
    }
  }
  return graph;
}

/// From the definition alone: for each node all nodes that come before it, by going round until nothing is new.
std::vector<NodeSet> NodesBefore(const Graph& graph) {
  const auto count = static_cast<NodeId>(graph.nodes().size());
  std::vector<NodeSet> before(count);
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (NodeId id = 0; id < count; ++id) {
      const Node node = graph.node(id);
      NodeSet now = before[id];
      const auto add = [&](NodeId input) {
        now |= before[input];
        now.set(input);
      };
      if (node.position != 0) add(graph.lanes()[node.lane].nodes[node.position - 1]);
      if (node.type == &kEdgeWait) {
        const NodeId record = EdgeOf(node).record;
        if (record < count && graph.node(record).type == &kEdgeRecord && graph.node(record).lane != node.lane) {
          add(record);
        }
      }
      is_new |= now != before[id];
      before[id] = now;
    }
  }
  return before;
}

TEST(Dag, OrdersTheTasksOfAnyGraph) {
  size_t circles = 0;
  size_t backwards = 0;
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(2000, 100)); ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = AnyGraph(seed);
    const auto count = static_cast<NodeId>(graph->nodes().size());
    const std::vector<NodeSet> oracle = NodesBefore(*graph);
    NodeSet in_circle;  // nodes that come before themselves
    NodeSet active;
    for (NodeId id = 0; id < count; ++id) {
      in_circle.set(id, oracle[id].test(id));
      active.set(id, Runs(graph->node(id)));
    }
    const Dag dag = BuildDag(*graph);
    const std::vector<NodeSet> before = TasksBefore(dag);
    NodeSet found;
    for (uint32_t node = 0; node < dag.size(); ++node) {
      for (const uint32_t pred : dag.preds_of(node)) ASSERT_LT(pred, node) << "topological";
      if (dag.is_junction[node] != 0) continue;
      const NodeId task = dag.task[node];
      ASSERT_FALSE(found.test(task));
      found.set(task);
      ASSERT_EQ(before[node], oracle[task] & active) << "task " << task;
      backwards += node != 0 && dag.task[node - 1] > task ? 1 : 0;
    }
    for (NodeId id = 0; id < count; ++id) {
      const bool never_runs = (oracle[id] & in_circle).any();
      ASSERT_EQ(found.test(id), active.test(id) && !never_runs) << "task " << id;
    }
    ASSERT_EQ(dag.circle.empty(), in_circle.none());
    circles += dag.circle.empty() ? 0 : 1;
    for (size_t i = 0; i < dag.circle.size(); ++i) {
      const NodeId record = RecordBefore(*graph, graph->node(dag.circle[i]));
      const Node next = graph->node(dag.circle[(i + 1) % dag.circle.size()]);
      ASSERT_NE(record, kNoNode);
      ASSERT_EQ(graph->node(record).lane, next.lane);
      ASSERT_GT(graph->node(record).position, next.position);
    }
  }
  EXPECT_GE(circles, static_cast<size_t>(Loops(11, 1)));
  EXPECT_GT(backwards, 10u);
}

TEST(Dag, AWaitBeforeItsRecordOrdersAsOneBehindIt) {
  Graph graph;
  AddLane(graph);
  AddLane(graph);
  AddWait(graph, 1, 2);
  AddTask(graph, 1);
  AddRecord(graph, 0);  // before any task of its lane
  AddTask(graph, 0);
  AddWait(graph, 1, 5);
  ASSERT_EQ(AddRecord(graph, 0), 5u);
  const NodeId last = AddTask(graph, 1);
  const Dag dag = BuildDag(graph);
  ASSERT_EQ(dag.size(), 3u);
  EXPECT_EQ(dag.task[2], last);
  EXPECT_EQ(dag.preds_of(2).size(), 2u) << "the tasks of both lanes";
  EXPECT_TRUE(dag.circle.empty());
}

TEST(Dag, ACircleIsNamedAndWhatStandsBehindItIsLeftOut) {
  Graph graph;
  for (int i = 0; i < 3; ++i) AddLane(graph);
  const NodeId free = AddTask(graph, 2);
  AddWait(graph, 0, 4);  // node 1
  AddRecord(graph, 0);
  AddWait(graph, 1, 2);  // node 3
  AddRecord(graph, 1);
  AddWait(graph, 2, 4);  // behind the circle, not in it
  AddTask(graph, 2);
  const Dag dag = BuildDag(graph);
  EXPECT_EQ(dag.circle, (std::vector<NodeId>{1, 3}));
  EXPECT_EQ(dag.task, (std::vector<NodeId>{free}));
}

// ---- And Order ----

// What a graph that grows tells of its next task is what the dag tells of that task afterwards.
TEST(Dag, AgreesWithTheOrderOfAGrowingGraph) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(Loops(300, 30)); ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = RandomGraph(seed, 300);
    Order order;
    std::vector<std::vector<uint32_t>> fronts;
    std::vector<NodeId> last;
    for (LaneId lane = 0; lane < graph->lanes().size(); ++lane) {
      order.CatchUp(*graph);
      fronts.push_back(order.Before(lane));
      fronts.back().resize(graph->lanes().size(), 0);
      last.push_back(AddTask(*graph, lane));
    }
    const Dag dag = BuildDag(*graph);
    const std::vector<NodeSet> before = TasksBefore(dag);
    for (LaneId lane = 0; lane < last.size(); ++lane) {
      const auto at = std::find(dag.task.rbegin(), dag.task.rend(), last[lane]);
      const NodeSet& mine = before[static_cast<size_t>(dag.task.rend() - at - 1)];
      for (NodeId id = 0; id < graph->nodes().size(); ++id) {
        const Node node = graph->node(id);
        if (!Runs(node)) continue;
        ASSERT_EQ(mine.test(id), node.position < fronts[lane][node.lane]) << lane << ", " << id;
      }
    }
  }
}

}  // namespace
}  // namespace reprise::ir
