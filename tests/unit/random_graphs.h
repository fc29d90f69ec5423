// SPDX-License-Identifier: Apache-2.0
//
// Random graphs as captures make them and beyond, and an oracle that says from the definition of a graph which tasks
// come before which.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "ir/dag.h"
#include "ir/graph.h"

namespace reprise::testing {

inline ir::RunResult RunNothing(device::RunContext&, void*) { return ir::RunResult::kDone; }

inline ir::TaskType Type(ir::TaskKind kind, bool never_waits) {
  return {.kind = kind, .name = "TASK", .run = RunNothing, .never_waits = never_waits, .operands = ir::NoOperands};
}
inline const ir::TaskType kPlain = Type(ir::TaskKind::kKernel, true);
inline const ir::TaskType kMayWait = Type(ir::TaskKind::kNotifyWait, false);

struct Payload {
  uint64_t unused = 0;
};

inline ir::LaneId AddLane(ir::Graph& graph) {
  const auto lane = static_cast<int32_t>(graph.lanes().size());
  return graph.AddLane(100 + lane, lane, ir::kNoNode);
}
inline ir::NodeId AddTask(ir::Graph& graph, ir::LaneId lane, const ir::TaskType& type = kPlain) {
  Payload payload;
  return graph.Add(lane, ir::MakeTask(type, payload));
}
inline ir::NodeId AddRecord(ir::Graph& graph, ir::LaneId lane) {
  ir::EdgePayload payload{static_cast<ir::NodeId>(graph.nodes().size()), 0, 0};
  return graph.Add(lane, ir::MakeTask(ir::kEdgeRecord, payload));
}
inline void AddWait(ir::Graph& graph, ir::LaneId lane, ir::NodeId record) {
  ir::EdgePayload payload{record, 0, 0};
  graph.Add(lane, ir::MakeTask(ir::kEdgeWait, payload));
}

// Everything that captures can hold and more: chains, forks, joins, waits that lead nowhere or back, records that
// became tasks, disabled tasks, lanes without any task.
inline std::unique_ptr<ir::Graph> RandomGraph(unsigned seed, size_t most_nodes) {
  std::mt19937 random(seed);
  auto graph = std::make_unique<ir::Graph>();
  const uint32_t lanes = 1 + random() % 40;
  for (uint32_t i = 0; i < lanes; ++i) AddLane(*graph);
  const size_t length = 5 + random() % (most_nodes - 5);
  const uint32_t tasks = 1 + random() % 6;  // how usual tasks are
  std::vector<ir::NodeId> records;
  const auto any_lane = [&] { return static_cast<ir::LaneId>(random() % lanes); };
  const auto any_record = [&] {
    // The newest half of the time, so that deep graphs come about.
    const size_t from = random() % 2 == 0 && records.size() > 4 ? records.size() - 4 : 0;
    return records[from + random() % (records.size() - from)];
  };
  while (graph->nodes().size() < length) {
    const ir::LaneId lane = any_lane();
    switch (random() % (8 + tasks)) {
      case 0:
      case 1: records.push_back(AddRecord(*graph, lane)); break;
      case 2:
      case 3:
      case 4:
        if (!records.empty()) AddWait(*graph, lane, any_record());
        break;
      case 5:  // all meet, and all go on, with or without a task between
        if (random() % 4 != 0) break;
        for (ir::LaneId other = 0; other < lanes; ++other) {
          if (random() % 3 != 0) AddTask(*graph, other);
          if (other != lane) AddWait(*graph, lane, AddRecord(*graph, other));
        }
        if (random() % 2 == 0) AddTask(*graph, lane);
        records.push_back(AddRecord(*graph, lane));
        for (ir::LaneId other = 0; other < lanes; ++other) {
          if (other != lane && random() % 8 != 0) AddWait(*graph, other, records.back());
        }
        break;
      case 6: graph->Disable(AddTask(*graph, lane)); break;
      case 7:
        if (random() % 8 == 0 && !records.empty()) {
          const ir::NodeId record = any_record();
          Payload payload;
          graph->Replace(record, ir::MakeTask(kPlain, payload));
        }
        break;
      default:
        for (size_t i = random() % 4; i != 0; --i) AddTask(*graph, lane);
        break;
    }
  }
  return graph;
}

constexpr size_t kMostNodes = 640;
using NodeSet = std::bitset<kMostNodes>;

inline bool Runs(const ir::Node& node) { return node.type->run != nullptr && !node.disabled; }

/// For each node of the graph the tasks that must have run before it, from the definition of a graph.
inline std::vector<NodeSet> TasksBefore(const ir::Graph& graph) {
  std::vector<NodeSet> before(graph.nodes().size());
  for (ir::NodeId id = 0; id < graph.nodes().size(); ++id) {
    const ir::Node& node = graph.node(id);
    std::vector<ir::NodeId> inputs;
    if (node.position != 0) inputs.push_back(graph.lanes()[node.lane].nodes[node.position - 1]);
    if (node.type == &ir::kEdgeWait) {
      const ir::NodeId record = static_cast<const ir::EdgePayload*>(node.payload)->record;
      if (graph.node(record).type == &ir::kEdgeRecord) inputs.push_back(record);
    }
    for (const ir::NodeId input : inputs) {
      before[id] |= before[input];
      if (Runs(graph.node(input))) before[id].set(input);
    }
  }
  return before;
}

/// What a dag says: by its nodes, as tasks of the graph.
inline std::vector<NodeSet> TasksBefore(const ir::Dag& dag) {
  std::vector<NodeSet> before(dag.size());
  for (uint32_t node = 0; node < dag.size(); ++node) {
    for (const uint32_t pred : dag.preds_of(node)) {
      before[node] |= before[pred];
      if (dag.is_junction[pred] == 0) before[node].set(dag.task[pred]);
    }
  }
  return before;
}

}  // namespace reprise::testing
