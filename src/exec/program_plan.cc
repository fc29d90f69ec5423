// SPDX-License-Identifier: Apache-2.0
#include "exec/program_plan.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <utility>

#include "exec/emit.h"
#include "ir/task_info.h"

namespace reprise::exec {
namespace {

int64_t ReadOperand(const void* cell, bool is_int64) {
  if (is_int64)
    return std::atomic_ref<int64_t>(*static_cast<int64_t*>(const_cast<void*>(cell))).load(std::memory_order_acquire);
  return std::atomic_ref<int32_t>(*static_cast<int32_t*>(const_cast<void*>(cell))).load(std::memory_order_acquire);
}

class ProgramCompiler {
 public:
  explicit ProgramCompiler(const std::vector<ProgramLane>& lanes) {
    parts_.program = lanes;
    parts_.lanes.push_back({0, 0, -1, -1, true});
    for (size_t i = 0; i < lanes.size(); ++i) lane_of_[lanes[i].graph.get()] = static_cast<uint16_t>(i + 1);
  }

  StatusOr<std::unique_ptr<Plan>> Compile() {
    for (const ProgramLane& lane : parts_.program) REPRISE_RETURN_IF_ERROR(AddLane(lane));
    for (const Jump& jump : jumps_) REPRISE_RETURN_IF_ERROR(Resolve(jump));
    return std::make_unique<Plan>(std::move(parts_));
  }

 private:
  struct Jump {
    size_t step;
    const LabelSwitchPayload* payload;
    uint32_t task;
    int32_t stream_id;
  };

  uint32_t NextStep() const { return static_cast<uint32_t>(parts_.steps.size()); }

  Status AddLane(const ProgramLane& lane) {
    const ir::Lane& tasks = lane.graph->lanes()[0];
    PlanLane planned{NextStep(), 0, tasks.stream_id, -1, lane.starts, lane.graph->slot_users()};
    for (const ir::NodeId id : tasks.nodes) {
      const ir::Node node = lane.graph->node(id);
      if (node.type == &kLabelSetTask) {
        labels_[{lane.graph.get(), id}] = NextStep();
      } else if (node.type == &kActivateTask) {
        const auto* payload = static_cast<const ActivatePayload*>(node.payload);
        REPRISE_RETURN_IF_ERROR(AddStart(node, Step::kActivate, payload->target, tasks.stream_id));
      } else if (node.type == &kSwitchTask) {
        const auto* payload = static_cast<const SwitchPayload*>(node.payload);
        REPRISE_RETURN_IF_ERROR(AddStart(node, Step::kSwitch, payload->target, tasks.stream_id));
      } else if (node.type == &kLabelSwitchTask) {
        jumps_.push_back({parts_.steps.size(), static_cast<const LabelSwitchPayload*>(node.payload), node.position,
                          tasks.stream_id});
        parts_.steps.emplace_back(node).kind = Step::kJump;
      } else if (node.type == &kEndTask) {
        parts_.steps.emplace_back(node).kind = Step::kEnd;
      } else if (node.type->run != nullptr) {
        parts_.steps.push_back(StepOf(node));
      }
    }
    planned.end = NextStep();
    parts_.lanes.push_back(planned);
    return {};
  }

  Status AddStart(const ir::Node& node, Step::Kind kind, const ir::Graph* target, int32_t stream_id) {
    const auto lane = lane_of_.find(target);
    if (lane == lane_of_.end()) {
      return Error(kStreamModel, fmt::format("task {} of stream {} activates a stream that is not bound to the model",
                                             node.position, stream_id))
          .Hint("bind that stream with aclmdlRIBindStream before aclmdlRIBuildEnd, too");
    }
    Step& step = parts_.steps.emplace_back(node);
    step.kind = kind;
    step.target = {lane->second, 0};
    return {};
  }

  // All lanes are there: where a switch may jump to.
  Status Resolve(const Jump& jump) {
    std::vector<Plan::JumpTarget> table;
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
      const auto lane = lane_of_.find(graph);
      const auto label = labels_.find({graph, target->node});
      if (lane == lane_of_.end() || label == labels_.end()) {
        return Error(kStreamModel, jumps_to(graph == nullptr ? "was set in tasks that were cleaned since"
                                                             : "stands on a stream that is not bound to the model"))
            .Culprit(fmt::format("label {}, in the order in which the process made labels", target->number))
            .Hint("set the labels of a list on streams that are bound to the model of the switch");
      }
      table.push_back({lane->second, label->second});
    }
    parts_.steps[jump.step].target = {0, static_cast<uint32_t>(parts_.jump_tables.size())};
    parts_.jump_tables.push_back(std::move(table));
    return {};
  }

  PlanParts parts_;
  std::map<const ir::Graph*, uint16_t> lane_of_;
  // Where each label stands: the step that follows it.
  std::map<std::pair<const ir::Graph*, ir::NodeId>, uint32_t> labels_;
  std::vector<Jump> jumps_;
};

}  // namespace

namespace {

void OperandsOfSwitch(const void* payload, ir::OperandSink& sink) {
  const auto& p = *static_cast<const SwitchPayload*>(payload);
  const uint64_t bytes = p.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
  sink.Take({p.left, bytes, ir::Access::kRead});
  sink.Take({p.right, bytes, ir::Access::kRead});
}

void OperandsOfLabelSwitch(const void* payload, ir::OperandSink& sink) {
  sink.Take({static_cast<const LabelSwitchPayload*>(payload)->index, sizeof(uint32_t), ir::Access::kRead});
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
    .kind = ir::TaskKind::kStreamSwitch, .name = "STREAM_SWITCH", .run = nullptr, .operands = OperandsOfSwitch};
const ir::TaskType kLabelSetTask = {
    .kind = ir::TaskKind::kLabelSet, .name = "LABEL_SET", .run = nullptr, .operands = ir::NoOperands};
const ir::TaskType kLabelSwitchTask = {
    .kind = ir::TaskKind::kLabelSwitch,
    .name = "STREAM_LABEL_SWITCH_BY_INDEX",
    .run = nullptr,
    .destroy = [](void* payload) noexcept { delete static_cast<LabelSwitchPayload*>(payload)->targets; },
    .operands = OperandsOfLabelSwitch};
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

StatusOr<std::unique_ptr<Plan>> CompileProgram(const std::vector<ProgramLane>& lanes) {
  return ProgramCompiler(lanes).Compile();
}

}  // namespace reprise::exec
