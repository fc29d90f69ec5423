// SPDX-License-Identifier: Apache-2.0
#include "exec/plan.h"

namespace reprise::exec {
namespace {

const ir::EdgePayload& Edge(const ir::Node& node) { return *static_cast<const ir::EdgePayload*>(node.payload); }

// Which records another lane really has to wait for, after redundant waits are gone.
struct Needs {
  std::vector<char> kept_wait;      // by node
  std::vector<char> published;      // by node
};

Needs FindNeeds(const ir::Graph& graph) {
  const auto& nodes = graph.nodes();
  Needs needs{std::vector<char>(nodes.size()), std::vector<char>(nodes.size())};
  const size_t lane_count = graph.lanes().size();
  if (lane_count == 1) return needs;
  // For each lane: how far it knows every other lane to be (position of the record + 1).
  std::vector<uint32_t> seen(lane_count * lane_count, 0);
  for (ir::NodeId id = 0; id < nodes.size(); ++id) {
    const ir::Node& node = nodes[id];
    if (node.type != &ir::kEdgeWait) continue;
    const ir::NodeId record_id = Edge(node).record;
    const ir::Node& record = nodes[record_id];
    if (record.lane == node.lane) continue;
    uint32_t& known = seen[node.lane * lane_count + record.lane];
    if (known > record.position) continue;
    known = record.position + 1;
    needs.kept_wait[id] = 1;
    needs.published[record_id] = 1;
  }
  return needs;
}

}  // namespace

std::unique_ptr<Plan> Plan::Compile(const ir::Graph& graph) {
  auto plan = std::make_unique<Plan>();
  const Needs needs = FindNeeds(graph);
  plan->steps_.reserve(graph.nodes().size());
  plan->lanes_.reserve(graph.lanes().size());
  for (const ir::Lane& lane : graph.lanes()) {
    PlanLane planned{static_cast<uint32_t>(plan->steps_.size()), 0, lane.stream_id, -1};
    for (const ir::NodeId id : lane.nodes) {
      const ir::Node& node = graph.node(id);
      Step step{node.type->run, node.payload, node.type, node.position, 0, Step::kRun, 0};
      if (node.type == &ir::kEdgeWait) {
        if (!needs.kept_wait[id]) continue;
        const ir::Node& record = graph.node(Edge(node).record);
        step.kind = Step::kWait;
        step.lane = static_cast<uint16_t>(record.lane);
        step.position = record.position + 1;
        if (plan->steps_.size() == planned.begin) planned.first_wait_lane = static_cast<int32_t>(record.lane);
      } else if (node.type == &ir::kEdgeRecord) {
        if (!needs.published[id]) continue;
        step.kind = Step::kPublish;
        step.position = node.position + 1;
      } else if (node.type->run == nullptr) {
        continue;  // resets: the next run starts from fresh positions
      }
      plan->steps_.push_back(step);
    }
    planned.end = static_cast<uint32_t>(plan->steps_.size());
    plan->lanes_.push_back(planned);
  }
  return plan;
}

}  // namespace reprise::exec
