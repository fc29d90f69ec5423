// SPDX-License-Identifier: Apache-2.0
#include "exec/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "exec/emit.h"
#include "exec/fuse.h"
#include "ir/task_info.h"

namespace reprise::exec {

std::unique_ptr<Plan> Plan::Compile(const ir::Graph& graph, FusionLog* log) {
  PlanParts parts = Emit(graph);
  Fuse(parts, log);
  return std::make_unique<Plan>(std::move(parts));
}

std::unique_ptr<Plan> Plan::Compile(const ir::Graph& graph, const ir::Dag& dag, const Assignment& assignment,
                                    FusionLog* log) {
  PlanParts parts = Emit(graph, dag, assignment);
  Fuse(parts, log);
  return std::make_unique<Plan>(std::move(parts));
}

namespace {

bool IsTask(const Step& step) {
  return step.kind == Step::kRun || step.kind == Step::kCall || step.kind == Step::kSkip;
}
bool HasRows(const Step& step) { return step.kind == Step::kElements || step.kind == Step::kBlocks; }

uint64_t KeyOf(uint32_t captured_lane, uint32_t task_id) { return uint64_t{captured_lane} << 32 | task_id; }

}  // namespace

// With an index, which takes linear time to make, once.
Step* Plan::FindScheduledStep(const ir::Node& node) {
  if (step_index_.empty()) {
    for (uint32_t i = 0; i < steps().size(); ++i) {
      const Step& step = steps()[i];
      if (IsTask(step)) step_index_.push_back({KeyOf(step.lane, step.task_id), i});
      if (!HasRows(step)) continue;
      for (const ElementRun& row : rows_of(step)) step_index_.push_back({KeyOf(row.lane, row.task_id), i});
    }
    std::sort(step_index_.begin(), step_index_.end(), [](const Indexed& x, const Indexed& y) { return x.key < y.key; });
  }
  const uint64_t wanted = KeyOf(node.lane, node.position);
  const auto at = std::lower_bound(step_index_.begin(), step_index_.end(), wanted,
                                   [](const Indexed& x, uint64_t key) { return x.key < key; });
  return at != step_index_.end() && at->key == wanted ? &parts_.steps[at->step] : nullptr;
}

// Steps of a captured lane are in the order of its tasks, some of which have none. So a step stands at the position of
// its task or before, by as many places at most as there are tasks without a step: in most lanes there is nothing to
// search.
Step* Plan::FindStep(const ir::Node& node) {
  if (is_scheduled()) return FindScheduledStep(node);
  const PlanLane& lane = lanes()[node.lane];
  const size_t steps = lane.end - lane.begin;
  const size_t without = parts_.graph->lanes()[node.lane].nodes.size() - steps;
  const auto begin = parts_.steps.begin() + lane.begin;
  const auto first = begin + static_cast<ptrdiff_t>(node.position > without ? node.position - without : 0);
  const auto last = begin + static_cast<ptrdiff_t>(std::min<size_t>(size_t{node.position} + 1, steps));
  const auto at = std::lower_bound(first, last, node.position,
                                   [](const Step& step, uint32_t position) { return step.task_id < position; });
  if (at != last && at->task_id == node.position) return &*at;
  // One of the rows of the step before?
  if (at == begin) return nullptr;
  Step& before = *std::prev(at);
  return HasRows(before) && rows_of(before).back().task_id >= node.position ? &before : nullptr;
}

bool Plan::Patch(std::span<const ir::NodeId> changed) {
  if (is_program()) return false;  // their tasks change in their slots only
  call_code_.reset();
  for (const ir::NodeId id : changed) {
    const ir::Node node = parts_.graph->node(id);
    if (node.type->run == nullptr) continue;  // records and waits order others even while they are disabled
    Step* const step = FindStep(node);
    if (step == nullptr) {
      if (node.disabled) continue;  // as before
      return false;                 // a record or wait that took no step, or a reset, has become a task
    }
    // A record or wait has become a task: others need not be published or waited for any more.
    if (step->kind == Step::kWait || step->kind == Step::kPublish) return false;
    // A task that runs together with its neighbours.
    if (HasRows(*step)) return false;
    if (node.disabled) {
      step->kind = Step::kSkip;
      continue;
    }
    // A task that waits where none did: it must not hold up what was laid out behind it.
    if (is_scheduled() && !node.type->never_waits) return false;
    if (node.type->kind == ir::TaskKind::kValueWait && (step->kind != Step::kRun || step->type != node.type)) {
      return false;
    }
    *step = StepOf(node);
  }
  return true;
}

bool Plan::Redirect(const ir::Node& node, const ir::TaskType* type,
                    ir::RunResult (*run)(device::RunContext&, void* data), void* data) {
  Step* const step = FindStep(node);
  if (step == nullptr || step->kind != Step::kRun || step->type != type) return false;
  step->run = run;
  step->data = data;
  return true;
}

// What is left of a step's rows, and what runs in place of the others: the payload of the task that runs them.
struct Plan::Detour::Rows {
  struct Item {
    ElementRun row;
    const ir::TaskType* type = nullptr;  // of the task that runs in place of the row
    void* payload = nullptr;
  };
  bool is_blocks, is_parallel;
  int64_t block;
  std::vector<Item> items;

  Item* Find(uint32_t task_id) {
    const auto at = std::find_if(items.begin(), items.end(),
                                 [&](const Item& item) { return item.type == nullptr && item.row.task_id == task_id; });
    return at == items.end() ? nullptr : &*at;
  }
  static ir::RunResult Run(device::RunContext& context, void* payload) {
    const Rows& rows = *static_cast<const Rows*>(payload);
    for (const Item& item : rows.items) {
      if (item.type != nullptr) {
        item.type->run(context, item.payload);
      } else if (rows.is_blocks) {
        RunBlocks(context.scheduler(), {&item.row, 1}, rows.block, rows.is_parallel);
      } else {
        item.row.call.function(item.row.call.args, 0, item.row.call.count);
      }
    }
    return ir::RunResult::kDone;
  }
  static void Describe(const void* payload, ir::TaskInfo& info) {
    size_t rows = 0;
    for (const Item& item : static_cast<const Rows*>(payload)->items) {
      if (item.type == nullptr) {
        ++rows;
        continue;
      }
      ir::TaskInfo of_item;
      of_item.names_only = true;
      ir::Describe(*item.type, item.payload, of_item);
      info.name += (info.name.empty() ? "" : ", ") + of_item.name;
    }
    if (rows != 0) info.name += fmt::format("{}{} element-wise", info.name.empty() ? "" : ", ", rows);
  }
};

namespace {

const ir::TaskType kRowsTask{.kind = ir::TaskKind::kKernel,
                             .name = "KERNEL_AIVEC",
                             .run = Plan::Detour::Rows::Run,
                             .describe = Plan::Detour::Rows::Describe,
                             .never_waits = true,
                             .operands = ir::OpaqueOperands};

void SetTask(Step& step, const ir::TaskType& type, void* payload) {
  step.kind = Step::kRun;
  step.type = &type;
  step.run = type.run;
  step.data = payload;
}

}  // namespace

Plan::Detour::Rows* Plan::TakeApart(uint32_t index, const ir::Node& node, Detour& detour) {
  const bool is_known = !detour.steps.empty() && detour.steps.back().first == index;
  if (is_known && detour.steps.back().second.kind == Step::kRun) return detour.rows.back().get();
  const Step& whole = parts_.steps[index];
  if (whole.kind == Step::kBlocks && whole.blocks.generated != 0) return nullptr;
  if (is_known && detour.steps.back().second.kind == Step::kSkip) return nullptr;
  const Step left = is_known ? detour.steps.back().second : whole;
  auto rows = std::make_shared<Detour::Rows>();
  rows->is_blocks = whole.kind == Step::kBlocks;
  rows->is_parallel = rows->is_blocks && whole.blocks.is_parallel;
  rows->block = rows->is_blocks ? whole.block : 0;
  for (const ElementRun& row : rows_of(left)) rows->items.push_back({row});
  Step step(node);
  SetTask(step, kRowsTask, rows.get());
  step.lane = whole.lane;
  if (!is_known) detour.steps.emplace_back(index, whole);
  detour.steps.back().second = step;
  detour.rows.push_back(std::move(rows));
  return detour.rows.back().get();
}

bool Plan::AddDetour(std::span<const ir::NodeId> tasks, const ir::TaskType& type, void* payload, Detour& detour) {
  if (is_program() || is_scheduled() || lanes().size() != 1) return false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const ir::Node node = parts_.graph->node(tasks[i]);
    const Step* const found = FindStep(node);
    if (found == nullptr) return false;
    const auto index = static_cast<uint32_t>(found - parts_.steps.data());
    const bool is_first = i == 0;
    const bool is_known = !detour.steps.empty() && detour.steps.back().first == index;
    const bool is_apart = is_known && HasRows(*found) && detour.steps.back().second.kind == Step::kRun;
    if (HasRows(*found) && (is_first || is_apart)) {
      Detour::Rows* const rows = TakeApart(index, node, detour);
      Detour::Rows::Item* const item = rows == nullptr ? nullptr : rows->Find(node.position);
      if (item == nullptr) return false;
      if (is_first) {
        item->type = &type;
        item->payload = payload;
      } else {
        rows->items.erase(rows->items.begin() + (item - rows->items.data()));
      }
      continue;
    }
    if (!is_known) detour.steps.emplace_back(index, *found);
    Step& step = detour.steps.back().second;
    if (found->kind == Step::kRun) {
      if (is_known || found->type != node.type) return false;
      if (is_first) {
        SetTask(step, type, payload);
      } else {
        step.kind = Step::kSkip;
      }
      continue;
    }
    // The first of the rows that are left: those behind it keep their step.
    if (!HasRows(*found) || step.kind == Step::kSkip) return false;
    if (found->kind == Step::kBlocks && found->blocks.generated != 0) return false;
    if (rows()[step.rows.first].task_id != node.position) return false;
    ++step.rows.first;
    if (--step.rows.count == 0) {
      step.kind = Step::kSkip;
    } else {
      step.task_id = rows()[step.rows.first].task_id;
    }
  }
  return !tasks.empty();
}

bool Plan::Rebind(std::span<const ir::NodeId> moved) {
  for (const ir::NodeId id : moved) {
    const ir::Node node = parts_.graph->node(id);
    const Step* const step = FindStep(node);
    if (step == nullptr) continue;
    if (!HasRows(*step)) continue;  // called through its payload
    const auto first = parts_.rows.begin() + step->rows.first;
    const auto row = std::find_if(first, first + step->rows.count, [&](const ElementRun& run) {
      return run.task_id == node.position && run.lane == node.lane;
    });
    ir::Elementwise now;
    if (!node.type->elementwise(node.payload, now) || now.call.function != row->call.function ||
        now.call.count != row->call.count) {
      return false;
    }
    row->call = now.call;
    if (step->kind == Step::kBlocks && step->blocks.generated != 0) {
      MoveGenerated(*this, *step, *parts_.generated[step->blocks.generated - 1]);
    }
  }
  return true;
}

}  // namespace reprise::exec
