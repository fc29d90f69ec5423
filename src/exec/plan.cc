// SPDX-License-Identifier: Apache-2.0
#include "exec/plan.h"

#include <algorithm>

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

bool Plan::AddDetour(std::span<const ir::NodeId> tasks, ir::RunResult (*run)(device::RunContext&, void* data),
                     void* data, Detour& detour) {
  if (is_program() || is_scheduled() || lanes().size() != 1) return false;
  const size_t begin = detour.steps.size();
  for (const ir::NodeId task : tasks) {
    const ir::Node node = parts_.graph->node(task);
    const Step* const found = FindStep(node);
    if (found == nullptr) return false;
    const auto index = static_cast<uint32_t>(found - parts_.steps.data());
    const bool is_first = detour.steps.size() == begin;
    const bool is_known = !is_first && detour.steps.back().first == index;
    if (!is_known) detour.steps.emplace_back(index, *found);
    Step& step = detour.steps.back().second;
    if (found->kind == Step::kRun) {
      if (is_known || found->type != node.type) return false;
      if (is_first) {
        step.run = run;
        step.data = data;
      } else {
        step.kind = Step::kSkip;
      }
      continue;
    }
    // The first of the rows that are left: those behind it keep their step.
    if (is_first || !HasRows(*found) || step.kind == Step::kSkip) return false;
    if (found->kind == Step::kBlocks && found->blocks.generated != 0) return false;
    if (rows()[step.rows.first].task_id != node.position) return false;
    ++step.rows.first;
    if (--step.rows.count == 0) {
      step.kind = Step::kSkip;
    } else {
      step.task_id = rows()[step.rows.first].task_id;
    }
  }
  return detour.steps.size() != begin;
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
