// SPDX-License-Identifier: Apache-2.0
//
// Graphs keep little of each node; what they say of it is held against a plain list here.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ir/order.h"
#include "scale.h"

namespace reprise::ir {
namespace {

using testing::Loops;

int g_alive = 0;  // payloads that own something

RunResult Nothing(device::RunContext&, void*) { return RunResult::kDone; }
const TaskType kPlain = {.kind = TaskKind::kKernel, .name = "PLAIN", .run = Nothing, .operands = NoOperands};
const TaskType kOwning = {.kind = TaskKind::kValueWrite,
                          .name = "OWNING",
                          .run = Nothing,
                          .destroy = [](void*) noexcept { --g_alive; },
                          .operands = NoOperands};

struct Expected {
  const TaskType* type;
  std::string payload;
  LaneId lane;
  uint32_t position;
  bool changed = false;
  bool disabled = false;
};

std::string Bytes(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }

// A graph and the list of what was put into it.
class Twins {
 public:
  explicit Twins(uint32_t seed) : random_(seed) {}

  void AddLane() {
    graph.AddLane(static_cast<int32_t>(100 + graph.lanes().size()), 7, kNoNode);
    lanes_.emplace_back();
  }
  NodeId Add(LaneId lane, const TaskType& type, std::string payload) {
    if (&type == &kOwning) ++g_alive;
    const auto wanted = static_cast<NodeId>(nodes_.size());
    nodes_.push_back({&type, payload, lane, static_cast<uint32_t>(lanes_[lane].size())});
    lanes_[lane].push_back(wanted);
    const NodeId id = graph.Add(lane, {&type, payload.data(), static_cast<uint32_t>(payload.size())});
    EXPECT_EQ(id, wanted);
    return id;
  }
  NodeId AddRecord(LaneId lane) {
    const EdgePayload edge{static_cast<NodeId>(nodes_.size()), static_cast<uint32_t>(records_.size()), 8};
    records_.push_back(edge);
    return Add(lane, kEdgeRecord, Bytes(&edge, sizeof edge));
  }
  void AddOther(LaneId lane, const TaskType& type) {
    if (records_.empty()) return;
    EdgePayload edge = records_[random_() % records_.size()];
    if (random_() % 8 == 0) edge.event_id += 1000;  // something of its own
    Add(lane, type, Bytes(&edge, sizeof edge));
  }
  void AddAny(LaneId lane) {
    switch (random_() % 8) {
      case 0: AddRecord(lane); break;
      case 1:
      case 2:
      case 3: AddOther(lane, kEdgeWait); break;
      case 4: AddOther(lane, kEdgeReset); break;
      case 5: Add(lane, kOwning, Payload()); break;
      default: Add(lane, kPlain, Payload()); break;
    }
  }
  void Replace(NodeId id) {
    const TaskType& type = random_() % 2 == 0 ? kPlain : kOwning;
    if (&type == &kOwning) ++g_alive;
    std::string payload = Payload();
    graph.Replace(id, {&type, payload.data(), static_cast<uint32_t>(payload.size())});
    nodes_[id].type = &type;
    nodes_[id].payload = std::move(payload);
    nodes_[id].changed = true;
  }
  void Disable(NodeId id) {
    graph.Disable(id);
    nodes_[id].disabled = nodes_[id].changed = true;
  }
  void ForgetChanges() {
    graph.ForgetChanges();
    for (Expected& node : nodes_) node.changed = false;
  }
  size_t size() const { return nodes_.size(); }
  size_t lanes() const { return lanes_.size(); }

  void Compare() {
    ASSERT_EQ(graph.nodes().size(), nodes_.size());
    ASSERT_EQ(graph.nodes().empty(), nodes_.empty());
    NodeId id = 0;
    for (const Node& node : graph.nodes()) Compare(node, id++);
    ASSERT_EQ(id, nodes_.size());
    for (id = 0; id < nodes_.size(); ++id) {
      Compare(graph.node(id), id);
      Compare(graph.node(id, nodes_[id].lane, nodes_[id].position), id);
    }
    size_t changed = 0;
    for (const Expected& node : nodes_) changed += node.changed ? 1 : 0;
    ASSERT_EQ(graph.changes().size(), changed);
    for (LaneId lane = 0; lane < lanes_.size(); ++lane) {
      const LaneNodes& nodes = graph.lanes()[lane].nodes;
      ASSERT_EQ(nodes.size(), lanes_[lane].size());
      ASSERT_EQ(nodes.empty(), lanes_[lane].empty());
      std::vector<NodeId> all;
      for (const NodeId node : nodes) all.push_back(node);
      ASSERT_EQ(all, lanes_[lane]);
      for (uint32_t i = 0; i < nodes.size(); ++i) ASSERT_EQ(nodes[i], lanes_[lane][i]);
      if (!nodes.empty()) {
        ASSERT_EQ(nodes.back(), lanes_[lane].back());
      }
    }
  }

  Graph graph;

 private:
  // Of any size, some larger than the arena counts in units.
  std::string Payload() {
    const size_t bytes = random_() % 400 == 0 ? (size_t{1} << 20) + random_() % 1000 : random_() % 90;
    return std::string(bytes, static_cast<char>('a' + random_() % 26));
  }
  void Compare(const Node& node, NodeId id) const {
    const Expected& expected = nodes_[id];
    ASSERT_EQ(node.type, expected.type) << id;
    ASSERT_EQ(Bytes(node.payload, expected.payload.size()), expected.payload) << id;
    ASSERT_EQ(node.lane, expected.lane) << id;
    ASSERT_EQ(node.position, expected.position) << id;
    ASSERT_EQ(node.changed != 0, expected.changed) << id;
    ASSERT_EQ(node.disabled != 0, expected.disabled) << id;
  }

  std::mt19937 random_;
  std::vector<Expected> nodes_;
  std::vector<std::vector<NodeId>> lanes_;
  std::vector<EdgePayload> records_;
};

TEST(Graph, TellsOfItsNodesWhatWasPutIn) {
  for (int seed = 0; seed < Loops(200, 30); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    {
      Twins twins(static_cast<uint32_t>(seed));
      twins.AddLane();
      const size_t most_lanes = 1 + random() % 6;
      const uint32_t stay = 1 + random() % 6;  // how long one lane goes on
      LaneId lane = 0;
      for (int i = static_cast<int>(random() % 400); i != 0; --i) {
        if (twins.lanes() < most_lanes && random() % 20 == 0) twins.AddLane();
        if (random() % stay == 0) lane = static_cast<LaneId>(random() % twins.lanes());
        twins.AddAny(lane);
        if (random() % 100 == 0) twins.Compare();
      }
      twins.Compare();
      if (random() % 2 == 0) twins.graph.ShrinkToFit();
      for (int i = 0; i < 60 && twins.size() != 0; ++i) {
        const auto id = static_cast<NodeId>(random() % twins.size());
        switch (random() % 8) {
          case 0: twins.Disable(id); break;
          case 1: twins.ForgetChanges(); break;
          case 2: twins.AddAny(lane); break;
          default: twins.Replace(id); break;
        }
        if (random() % 10 == 0) twins.Compare();
      }
      twins.Compare();
      if (HasFatalFailure()) return;
    }
    ASSERT_EQ(g_alive, 0);
  }
}

TEST(Graph, NewArgumentsAreListedApart) {
  Graph graph;
  graph.AddLane(1, 1, kNoNode);
  uint64_t payload[2] = {};
  for (int i = 0; i < 10; ++i) graph.Add(0, MakeTask(kPlain, payload));
  for (const NodeId id : {3u, 7u, 3u}) graph.NoteNewArguments(id);
  graph.Replace(3, MakeTask(kPlain, payload));
  graph.NoteNewArguments(3);
  EXPECT_EQ(graph.new_arguments(), (std::vector<NodeId>{3, 7}));
  EXPECT_EQ(graph.changes(), std::vector<NodeId>{3});
  EXPECT_FALSE(graph.node(7).changed);
  graph.ForgetChanges();
  EXPECT_TRUE(graph.new_arguments().empty() && graph.changes().empty());
  graph.NoteNewArguments(7);
  EXPECT_EQ(graph.new_arguments(), std::vector<NodeId>{7});
}

TEST(Graph, AWaitOutlivesTheRecordThatBecameAnotherTask) {
  Twins twins(1);
  twins.AddLane();
  twins.AddLane();
  const NodeId record = twins.AddRecord(0);
  for (int i = 0; i < 3; ++i) twins.AddOther(1, kEdgeWait);
  for (int i = 0; i < 3; ++i) twins.AddOther(0, kEdgeReset);
  for (int i = 0; i < 5; ++i) {
    twins.Replace(record);
    twins.Compare();
  }
}

TEST(Order, IsThatOfAllWaysThroughTheGraph) {
  std::mt19937 random(5);
  for (int round = 0; round < Loops(60, 6); ++round) {
    Graph graph;
    const auto lanes = static_cast<LaneId>(2 + random() % 5);
    for (LaneId lane = 0; lane < lanes; ++lane) graph.AddLane(1, 1, kNoNode);
    std::vector<EdgePayload> records;
    std::vector<std::vector<char>> before;  // of each node, with itself: which nodes come before it
    std::vector<NodeId> last(lanes, kNoNode);
    Order order;
    for (int step = 0; step < 80; ++step) {
      const LaneId lane = random() % lanes;
      const auto id = static_cast<NodeId>(before.size());
      std::vector<char> mine = last[lane] != kNoNode ? before[last[lane]] : std::vector<char>();
      mine.resize(id + 1, 0);
      mine[id] = 1;
      uint64_t nothing = 0;
      if (const auto kind = random() % 3; kind == 0) {
        graph.Add(lane, MakeTask(kPlain, nothing));
      } else if (kind == 1 || records.empty()) {
        records.push_back({id, 0, 8});
        graph.Add(lane, MakeTask(kEdgeRecord, records.back()));
      } else {
        EdgePayload record = records[random() % records.size()];
        graph.Add(lane, MakeTask(kEdgeWait, record));
        for (NodeId i = 0; i <= record.record; ++i) mine[i] |= before[record.record][i];
      }
      before.push_back(mine);
      last[lane] = id;
      if (random() % 4 != 0) continue;
      order.CatchUp(graph);
      for (LaneId of = 0; of < lanes; ++of) {
        std::vector<uint32_t> found = order.Before(of);
        found.resize(lanes, 0);
        std::vector<uint32_t> expected(lanes, 0);
        uint32_t tasks = 0;
        for (NodeId i = 0; i <= id; ++i) {
          const Node node = graph.node(i);
          if (last[of] != kNoNode && i < before[last[of]].size() && before[last[of]][i] != 0) {
            ++expected[node.lane];
          }
          if (node.lane == of && node.type == &kPlain) tasks = node.position + 1;
        }
        ASSERT_EQ(found, expected) << "round " << round << ", step " << step << ", lane " << of;
        ASSERT_EQ(order.Tasks(of), tasks);
      }
    }
  }
}

TEST(Graph, AnEdgeTakesFourBytes) {
  const auto bytes = [](int waits) {
    Graph graph;
    graph.AddLane(1, 1, kNoNode);
    graph.AddLane(2, 2, kNoNode);
    uint64_t nothing[2] = {};
    std::vector<EdgePayload> records;
    for (int i = 0; i < 1000; ++i) {
      graph.Add(0, MakeTask(kPlain, nothing));
      records.push_back({static_cast<NodeId>(graph.nodes().size()), static_cast<uint32_t>(i), 8});
      graph.Add(0, MakeTask(kEdgeRecord, records.back()));
      for (int wait = 0; wait < waits; ++wait) {
        graph.Add(1, MakeTask(kEdgeWait, records[static_cast<size_t>(wait) % records.size()]));
      }
    }
    graph.ShrinkToFit();
    return static_cast<double>(graph.memory_bytes());
  };
  EXPECT_LE((bytes(61) - bytes(1)) / 60'000, 4.1);
}

TEST(Graph, ANodeOfAChainTakesTwentyBytesBesideItsPayload) {
  for (const int nodes : {1000, 100'000}) {
    Graph graph;
    graph.AddLane(1, 1, kNoNode);
    uint64_t payload[4] = {};
    for (int i = 0; i < nodes; ++i) graph.Add(0, MakeTask(kPlain, payload));
    graph.ShrinkToFit();
    EXPECT_LE(static_cast<double>(graph.memory_bytes()) / nodes, 32 + 20 + 1) << nodes;
  }
}

}  // namespace
}  // namespace reprise::ir
