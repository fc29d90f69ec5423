// SPDX-License-Identifier: Apache-2.0
#include "exec/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "device/scheduler.h"
#include "ir/task_info.h"

namespace reprise::exec {
namespace {

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
    if (node.type != &ir::kEdgeWait) continue;
    const ir::NodeId record_id = ir::EdgeOf(node).record;
    const ir::Node record = graph.node(record_id);
    // A record that was turned into another task orders nothing any more.
    if (record.lane == node.lane || record.type != &ir::kEdgeRecord) continue;
    uint32_t& known = seen[node.lane * lane_count + record.lane];
    if (known > record.position) continue;
    known = record.position + 1;
    needs.kept_wait[id] = 1;
    needs.published[record_id] = 1;
  }
  return needs;
}

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

int64_t ReadOperand(const void* cell, bool is_int64) {
  if (is_int64)
    return std::atomic_ref<int64_t>(*static_cast<int64_t*>(const_cast<void*>(cell))).load(std::memory_order_acquire);
  return std::atomic_ref<int32_t>(*static_cast<int32_t*>(const_cast<void*>(cell))).load(std::memory_order_acquire);
}

}  // namespace

const ir::TaskType kActivateTask = {.kind = ir::TaskKind::kStreamActive,
                                    .name = "STREAM_ACTIVE",
                                    .run = nullptr,
                                    .describe =
                                        [](const void* payload, ir::TaskInfo& info) {
                                          info.active_stream_id =
                                              static_cast<const ActivatePayload*>(payload)->target_stream_id;
                                        },
                                    .operands = ir::NoOperands};
const ir::TaskType kSwitchTask = {
    .kind = ir::TaskKind::kStreamSwitch, .name = "STREAM_SWITCH", .run = nullptr, .operands = ir::NoOperands};
const ir::TaskType kLabelSetTask = {
    .kind = ir::TaskKind::kLabelSet, .name = "LABEL_SET", .run = nullptr, .operands = ir::NoOperands};
const ir::TaskType kLabelSwitchTask = {
    .kind = ir::TaskKind::kLabelSwitch,
    .name = "STREAM_LABEL_SWITCH_BY_INDEX",
    .run = nullptr,
    .destroy = [](void* payload) noexcept { delete static_cast<LabelSwitchPayload*>(payload)->targets; },
    .operands = ir::NoOperands};
const ir::TaskType kEndTask = {
    .kind = ir::TaskKind::kEndGraph, .name = "MODEL_END_GRAPH", .run = nullptr, .operands = ir::NoOperands};

bool Holds(const SwitchPayload& payload) {
  const int64_t left = ReadOperand(payload.left, payload.is_int64);
  const int64_t right = ReadOperand(payload.right, payload.is_int64);
  switch (payload.condition) {
    case SwitchCondition::kEqual: return left == right;
    case SwitchCondition::kNotEqual: return left != right;
    case SwitchCondition::kGreater: return left > right;
    case SwitchCondition::kGreaterOrEqual: return left >= right;
    case SwitchCondition::kLess: return left < right;
    case SwitchCondition::kLessOrEqual: return left <= right;
  }
  return false;
}

std::unique_ptr<Plan> Plan::Compile(const ir::Graph& graph, FusionLog* log) {
  auto plan = std::make_unique<Plan>();
  plan->graph_ = &graph;
  const Needs needs = FindNeeds(graph);
  plan->steps_.reserve(graph.tasks() +
                       static_cast<size_t>(std::count(needs.kept_wait.begin(), needs.kept_wait.end(), 1)));
  plan->lanes_.reserve(graph.lanes().size());
  for (const ir::Lane& lane : graph.lanes()) {
    const auto lane_id = static_cast<ir::LaneId>(&lane - graph.lanes().data());
    PlanLane planned{static_cast<uint32_t>(plan->steps_.size()), 0, lane.stream_id, -1, true, graph.slot_users()};
    bool has_rows = false;
    for (auto at = lane.nodes.begin(); at != lane.nodes.end(); ++at) {
      const ir::NodeId id = *at;
      const ir::Node node = graph.node(id, lane_id, at.position());
      if (node.type->run == nullptr) [[unlikely]] {
        if (node.type == &ir::kEdgeWait && needs.keeps(id)) {
          Step& step = plan->steps_.emplace_back(node);
          const ir::Node record = graph.node(ir::EdgeOf(node).record);
          step.kind = Step::kWait;
          step.target = {record.lane, record.position + 1};
          if (plan->steps_.size() == planned.begin + 1) planned.first_wait_lane = static_cast<int32_t>(record.lane);
        } else if (node.type == &ir::kEdgeRecord && needs.publishes(id)) {
          Step& step = plan->steps_.emplace_back(node);
          step.kind = Step::kPublish;
          step.target = {node.lane, node.position + 1};
        }
        continue;  // resets: the next run starts from fresh positions
      }
      if (node.disabled) continue;
      CallDirectly(plan->steps_.emplace_back(node));
      has_rows |= node.type->elementwise != nullptr;
    }
    if (has_rows) FuseRows(plan->steps_, planned.begin, plan->rows_, lane_id, log);
    planned.end = static_cast<uint32_t>(plan->steps_.size());
    plan->lanes_.push_back(planned);
  }
  if (!plan->rows_.empty()) {  // many steps have become few
    plan->rows_.shrink_to_fit();
    plan->steps_.shrink_to_fit();
  }
  return plan;
}

std::unique_ptr<Plan> Plan::CompileScheduled(const ir::Graph& graph, const Dag& dag, const Assignment& assignment) {
  auto plan = std::make_unique<Plan>();
  plan->graph_ = &graph;
  plan->stream_ids_.reserve(graph.lanes().size());
  for (const ir::Lane& lane : graph.lanes()) plan->stream_ids_.push_back(lane.stream_id);
  const auto published = std::count(assignment.published.begin(), assignment.published.end(), 1);
  plan->steps_.reserve(assignment.nodes.size() + assignment.waits.size() + static_cast<size_t>(published));
  plan->lanes_.reserve(assignment.lanes());
  for (uint32_t lane = 0; lane < assignment.lanes(); ++lane) {
    PlanLane planned{static_cast<uint32_t>(plan->steps_.size()), 0, plan->stream_ids_[0], -1, true, graph.slot_users()};
    const uint32_t begin = assignment.lane_begin[lane];
    for (uint32_t place = begin; place < assignment.lane_begin[lane + 1]; ++place) {
      const uint32_t dag_node = assignment.nodes[place];
      const ir::Node node = graph.node(dag.task[dag_node]);
      if (place == begin) planned.stream_id = plan->stream_ids_[node.lane];
      const auto add = [&](Step::Kind kind, uint32_t at_lane, uint32_t position) {
        Step step(node);
        step.kind = kind;
        step.target = {at_lane, position};
        plan->steps_.push_back(step);
      };
      for (const Assignment::Wait& wait : assignment.waits_of(place)) {
        if (plan->steps_.size() == planned.begin) planned.first_wait_lane = static_cast<int32_t>(wait.lane);
        add(Step::kWait, wait.lane, wait.position);
      }
      if (dag.is_junction[dag_node] == 0) {
        Step step(node);
        CallDirectly(step);
        plan->steps_.push_back(step);
      }
      if (assignment.published[place] != 0) add(Step::kPublish, lane, place - begin + 1);
    }
    planned.end = static_cast<uint32_t>(plan->steps_.size());
    plan->lanes_.push_back(planned);
  }
  return plan;
}

namespace {

bool IsTask(const Step& step) {
  return step.kind == Step::kRun || step.kind == Step::kCall || step.kind == Step::kSkip;
}

}  // namespace

// Steps of a lane are in the order of its tasks, some of which have none. So a step stands at the position of its task
// or before, by as many places at most as there are tasks without a step: in most lanes there is nothing to search.
// Those of a scheduled plan are found with an index, which takes linear time to make, once.
Step* Plan::FindStep(const ir::Node& node) {
  const auto key = [](uint32_t lane, uint32_t task_id) { return uint64_t{lane} << 32 | task_id; };
  if (is_scheduled()) {
    const auto key_of = [&](uint32_t step) { return key(steps_[step].lane, steps_[step].task_id); };
    if (step_index_.empty()) {
      for (uint32_t i = 0; i < steps_.size(); ++i) {
        if (IsTask(steps_[i])) step_index_.push_back(i);
      }
      std::sort(step_index_.begin(), step_index_.end(), [&](uint32_t x, uint32_t y) { return key_of(x) < key_of(y); });
    }
    const uint64_t wanted = key(node.lane, node.position);
    const auto at = std::lower_bound(step_index_.begin(), step_index_.end(), wanted,
                                     [&](uint32_t step, uint64_t k) { return key_of(step) < k; });
    return at != step_index_.end() && key_of(*at) == wanted ? &steps_[*at] : nullptr;
  }
  const PlanLane& lane = lanes_[node.lane];
  const size_t steps = lane.end - lane.begin;
  const size_t without = graph_->lanes()[node.lane].nodes.size() - steps;
  const auto begin = steps_.begin() + lane.begin;
  const auto first = begin + static_cast<ptrdiff_t>(node.position > without ? node.position - without : 0);
  const auto last = begin + static_cast<ptrdiff_t>(std::min<size_t>(size_t{node.position} + 1, steps));
  const auto at = std::lower_bound(first, last, node.position,
                                   [](const Step& step, uint32_t position) { return step.task_id < position; });
  if (at != last && at->task_id == node.position) return &*at;
  // One of the rows of the step before?
  if (at == begin) return nullptr;
  Step& before = *std::prev(at);
  const bool is_rows = before.kind == Step::kRows || before.kind == Step::kBlocks;
  return is_rows && rows_[before.rows.first + before.rows.count - 1].task_id >= node.position ? &before : nullptr;
}

bool Plan::Patch(std::span<const ir::NodeId> changed) {
  if (is_program()) return false;  // their tasks change in their slots only
  for (const ir::NodeId id : changed) {
    const ir::Node node = graph_->node(id);
    if (node.type->run == nullptr) continue;  // records and waits order others even while they are disabled
    Step* const step = FindStep(node);
    if (step == nullptr) {
      if (node.disabled) continue;  // as before
      return false;                 // a record or wait that took no step, or a reset, has become a task
    }
    // A record or wait has become a task: others need not be published or waited for any more.
    if (step->kind == Step::kWait || step->kind == Step::kPublish) return false;
    // A task that runs together with its neighbours.
    if (step->kind == Step::kRows || step->kind == Step::kBlocks) return false;
    if (node.disabled) {
      step->kind = Step::kSkip;
      continue;
    }
    // A task that waits where none did: it must not hold up what was laid out behind it.
    if (is_scheduled() && !node.type->never_waits) return false;
    if (node.type->kind == ir::TaskKind::kValueWait && (step->kind != Step::kRun || step->type != node.type)) {
      return false;
    }
    *step = Step(node);
    CallDirectly(*step);
  }
  return true;
}

StatusOr<std::unique_ptr<Plan>> Plan::CompileProgram(const std::vector<ProgramLane>& lanes) {
  auto plan = std::make_unique<Plan>();
  plan->program_ = lanes;
  plan->lanes_.push_back({0, 0, -1, -1, true});
  std::map<const ir::Graph*, uint16_t> lane_of;
  for (size_t i = 0; i < lanes.size(); ++i) lane_of[lanes[i].graph.get()] = static_cast<uint16_t>(i + 1);
  // Where each label stands: the step that follows it.
  std::map<std::pair<const ir::Graph*, ir::NodeId>, uint32_t> labels;
  struct Jump {
    size_t step;
    const LabelSwitchPayload* payload;
    uint32_t task;
    int32_t stream_id;
  };
  std::vector<Jump> jumps;
  for (const ProgramLane& lane : lanes) {
    const ir::Lane& tasks = lane.graph->lanes()[0];
    PlanLane planned{
        static_cast<uint32_t>(plan->steps_.size()), 0, tasks.stream_id, -1, lane.starts, lane.graph->slot_users()};
    for (const ir::NodeId id : tasks.nodes) {
      const ir::Node node = lane.graph->node(id);
      Step step(node);
      const ir::Graph* target = nullptr;
      if (node.type == &kActivateTask) {
        step.kind = Step::kActivate;
        target = static_cast<const ActivatePayload*>(node.payload)->target;
      } else if (node.type == &kSwitchTask) {
        step.kind = Step::kSwitch;
        target = static_cast<const SwitchPayload*>(node.payload)->target;
      } else if (node.type == &kLabelSwitchTask) {
        step.kind = Step::kJump;
        jumps.push_back({plan->steps_.size(), static_cast<const LabelSwitchPayload*>(node.payload), node.position,
                         tasks.stream_id});
      } else if (node.type == &kEndTask) {
        step.kind = Step::kEnd;
      } else if (node.type == &kLabelSetTask) {
        labels[{lane.graph.get(), id}] = static_cast<uint32_t>(plan->steps_.size());
        continue;
      } else if (node.type->run == nullptr) {
        continue;
      } else {
        CallDirectly(step);
      }
      if (target != nullptr) {
        const auto it = lane_of.find(target);
        if (it == lane_of.end()) {
          return Error(kStreamModel,
                       fmt::format("task {} of stream {} activates a stream that is not bound to the model",
                                   node.position, tasks.stream_id))
              .Hint("bind that stream with aclmdlRIBindStream before aclmdlRIBuildEnd, too");
        }
        step.target = {it->second, 0};
      }
      plan->steps_.push_back(step);
    }
    planned.end = static_cast<uint32_t>(plan->steps_.size());
    plan->lanes_.push_back(planned);
  }
  for (const Jump& jump : jumps) {
    std::vector<JumpTarget> table;
    for (const auto& target : *jump.payload->targets) {
      const auto jumps_to = [&](const char* what) {
        return fmt::format(
            "task {} of stream {}, a label switch, may jump to label {} (entry {} of its list), which {}", jump.task,
            jump.stream_id, target->number, table.size(), what);
      };
      if (!target->is_set) {
        return Error(kInvalidValue, jumps_to("is not set"))
            .Culprit(fmt::format("label {}, in the order in which the process made labels", target->number))
            .Hint("set every label of the list with aclrtSetLabel before aclmdlRIBuildEnd");
      }
      const ir::Graph* const graph = target->graph.lock().get();
      const auto lane = lane_of.find(graph);
      const auto label = labels.find({graph, target->node});
      if (lane == lane_of.end() || label == labels.end()) {
        return Error(kStreamModel, jumps_to(graph == nullptr ? "was set in tasks that were cleaned since"
                                                             : "stands on a stream that is not bound to the model"))
            .Culprit(fmt::format("label {}, in the order in which the process made labels", target->number))
            .Hint("set the labels of a list on streams that are bound to the model of the switch");
      }
      table.push_back({lane->second, label->second});
    }
    plan->steps_[jump.step].target = {0, static_cast<uint32_t>(plan->jump_tables_.size())};
    plan->jump_tables_.push_back(std::move(table));
  }
  return plan;
}

}  // namespace reprise::exec
