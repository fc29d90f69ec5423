// SPDX-License-Identifier: Apache-2.0
#include "exec/emit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/scheduler.h"

namespace reprise::exec {
namespace {

// The content of a slot: who runs the lane has entered as a user of the slots, so a load finds it.
ir::RunResult RunSlot(device::RunContext& context, void* payload) {
  ir::HeldTask* task = static_cast<const ir::SlotPayload*>(payload)->slot->Current();
  if (task->function() == nullptr) return task->type().run(context, task->payload());
  const RepriseKernelContext kernel{
      sizeof(RepriseKernelContext), 0, 1, context.device_id, context.stream_id, context.task_id, task->kernel_name()};
  const int32_t code = task->function()(&kernel, task->args(), task->args_bytes());
  if (code != 0) [[unlikely]]
    task->type().direct_failed(context, task->payload(), code);
  return ir::RunResult::kDone;
}

// A step that is a single call of a kernel spares the way through the task type.
void CallDirectly(Step& step) {
  if (ir::IsSlot(step.type)) {
    step.run = RunSlot;
    return;
  }
  ir::DirectCall call;
  if (step.type->direct == nullptr || !step.type->direct(step.data, call)) return;
  if (call.args_bytes > kMaxDirectArgsBytes) return;
  step.kind = Step::kCall;
  step.call = call.function;
  step.data = const_cast<void*>(call.args);  // which the kernel gets as const again
  step.args_bytes = call.args_bytes & ((1u << 17) - 1);
  step.name = call.name;
}

// Which records another lane really has to wait for, after redundant waits are gone. Empty for a graph of one lane,
// where nobody waits.
struct Needs {
  std::vector<char> kept_wait;  // by node
  std::vector<char> published;  // by node
  bool keeps(ir::NodeId wait) const { return !kept_wait.empty() && kept_wait[wait] != 0; }
  bool publishes(ir::NodeId record) const { return !published.empty() && published[record] != 0; }
};

Needs FindNeeds(const ir::Graph& graph) {
  const size_t lane_count = graph.lanes().size();
  if (lane_count == 1) return {};
  Needs needs{std::vector<char>(graph.nodes().size()), std::vector<char>(graph.nodes().size())};
  // For each lane: how far it knows every other lane to be (position of the record + 1).
  std::vector<uint32_t> seen(lane_count * lane_count, 0);
  ir::NodeId id = 0;
  for (auto at = graph.nodes().begin(); at != graph.nodes().end(); ++at, ++id) {
    const ir::Node node = *at;
    const ir::NodeId record_id = ir::RecordBefore(graph, node);
    if (record_id == ir::kNoNode) continue;
    const ir::Node record = graph.node(record_id);
    uint32_t& known = seen[node.lane * lane_count + record.lane];
    if (known > record.position) continue;
    known = record.position + 1;
    needs.kept_wait[id] = 1;
    needs.published[record_id] = 1;
  }
  return needs;
}

// Takes what the lanes hold, lane by lane and in order.
class Emitter {
 public:
  Emitter(const ir::Graph& graph, size_t steps, size_t lanes) {
    parts_.graph = &graph;
    parts_.steps.reserve(steps);
    parts_.lanes.reserve(lanes);
  }

  void BeginLane(int32_t stream_id) {
    parts_.lanes.push_back({NextStep(), 0, stream_id, -1, true, parts_.graph->slot_users()});
  }
  void EndLane() { parts_.lanes.back().end = NextStep(); }

  void Task(const ir::Node& node) {
    CallDirectly(parts_.steps.emplace_back(node));
    parts_.has_elementwise |= node.type->elementwise != nullptr;
  }
  /// `node` says to which task or record the step belongs.
  void Wait(const ir::Node& node, uint32_t lane, uint32_t position) {
    PlanLane& own = parts_.lanes.back();
    if (NextStep() == own.begin) own.first_wait_lane = static_cast<int32_t>(lane);
    Order(node, Step::kWait, {lane, position});
  }
  void Publish(const ir::Node& node, uint32_t lane, uint32_t position) {
    Order(node, Step::kPublish, {lane, position});
  }

  PlanParts& parts() { return parts_; }

 private:
  uint32_t NextStep() const { return static_cast<uint32_t>(parts_.steps.size()); }
  void Order(const ir::Node& node, Step::Kind kind, Step::Target target) {
    Step& step = parts_.steps.emplace_back(node);
    step.kind = kind;
    step.target = target;
  }

  PlanParts parts_;
};

}  // namespace

Step StepOf(const ir::Node& node) {
  Step step(node);
  CallDirectly(step);
  return step;
}

PlanParts Emit(const ir::Graph& graph) {
  const Needs needs = FindNeeds(graph);
  const auto waits = static_cast<size_t>(std::count(needs.kept_wait.begin(), needs.kept_wait.end(), 1));
  Emitter emitter(graph, graph.tasks() + waits, graph.lanes().size());
  for (ir::LaneId lane_id = 0; lane_id < graph.lanes().size(); ++lane_id) {
    const ir::Lane& lane = graph.lanes()[lane_id];
    emitter.BeginLane(lane.stream_id);
    for (auto at = lane.nodes.begin(); at != lane.nodes.end(); ++at) {
      const ir::NodeId id = *at;
      const ir::Node node = graph.node(id, lane_id, at.position());
      if (ir::IsActive(node)) [[likely]] {
        emitter.Task(node);
      } else if (node.type == &ir::kEdgeWait && needs.keeps(id)) {
        const ir::Node record = graph.node(ir::EdgeOf(node).record);
        emitter.Wait(node, record.lane, record.position + 1);
      } else if (node.type == &ir::kEdgeRecord && needs.publishes(id)) {
        emitter.Publish(node, lane_id, node.position + 1);
      }  // resets: the next run starts from fresh positions
    }
    emitter.EndLane();
  }
  return std::move(emitter.parts());
}

PlanParts Emit(const ir::Graph& graph, const ir::Dag& dag, const Assignment& assignment) {
  const auto published = std::count(assignment.published.begin(), assignment.published.end(), 1);
  Emitter emitter(graph, assignment.nodes.size() + assignment.waits.size() + static_cast<size_t>(published),
                  assignment.lanes());
  std::vector<int32_t>& stream_ids = emitter.parts().stream_ids;
  stream_ids.reserve(graph.lanes().size());
  for (const ir::Lane& lane : graph.lanes()) stream_ids.push_back(lane.stream_id);
  for (uint32_t lane = 0; lane < assignment.lanes(); ++lane) {
    const uint32_t begin = assignment.lane_begin[lane];
    const uint32_t end = assignment.lane_begin[lane + 1];
    const auto node_at = [&](uint32_t place) { return graph.node(dag.task[assignment.nodes[place]]); };
    emitter.BeginLane(stream_ids[begin != end ? node_at(begin).lane : 0]);
    for (uint32_t place = begin; place < end; ++place) {
      const ir::Node node = node_at(place);
      for (const Assignment::Wait& wait : assignment.waits_of(place)) emitter.Wait(node, wait.lane, wait.position);
      if (dag.is_junction[assignment.nodes[place]] == 0) emitter.Task(node);
      if (assignment.published[place] != 0) emitter.Publish(node, lane, place - begin + 1);
    }
    emitter.EndLane();
  }
  return std::move(emitter.parts());
}

}  // namespace reprise::exec
