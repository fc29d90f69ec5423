// SPDX-License-Identifier: Apache-2.0
//
// Plan: a graph made ready to run. Flat, in execution order, one run of steps per lane. While it runs it never changes;
// between executions the steps of changed tasks can be brought up to date.
//
// It is the result of a pipeline:
//
//     ir::BuildDag ──► Schedule ──► Emit ──► Fuse ──► Plan
//     partial order    lanes        steps    element-wise neighbours
//
// Graphs whose tasks may wait keep the captured lanes and begin at Emit; built models have a way of their own, see
// program_plan.h. Each step knows the captured lane of its task.
//
// Inside a lane position is the only dependency. Between lanes a step may wait until another lane has passed a
// position; waits that an earlier one implies are dropped, and only positions that somebody waits for are published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "exec/assign.h"
#include "exec/block_generator.h"
#include "exec/call_code.h"
#include "ir/dag.h"
#include "ir/graph.h"

namespace reprise::exec {

/// 32 bytes, because replays of large graphs are bound by memory: two steps share a cache line.
struct Step {
  enum Kind : uint8_t {
    kRun,       ///< call run(context, data): the task's payload
    kCall,      ///< call a kernel with data: its arguments
    kElements,  ///< element-wise tasks, one after another
    kBlocks,    ///< element-wise tasks, block by block
    kWait,      ///< until lane target.lane has published target.position
    kPublish,   ///< target.position of this lane is reached
    kSkip,      ///< nothing: a task that was disabled after the plan was made
    // Only in programs (built models); data is the payload:
    kActivate,  ///< start lane target.lane
    kSwitch,    ///< if the comparison holds, start lane target.lane and stop this one
    kJump,      ///< go on at a label, see jump_table(target.position)
    kEnd,       ///< the whole execution is complete
  };
  struct Target {
    uint32_t lane;
    uint32_t position;
  };
  struct Span {
    uint32_t first;
    uint32_t count;
  };
  union {
    ir::RunResult (*run)(device::RunContext&, void* payload);
    RepriseKernelFn call;
    int64_t block;  ///< kBlocks: most elements of one
  };
  struct Blocks {
    bool is_parallel;    ///< worth more than one thread
    uint32_t generated;  ///< 1 + place in Plan::generated; 0: the rows are called one by one
  };
  union {
    void* data;
    Blocks blocks;  ///< kBlocks
  };
  union {
    const ir::TaskType* type;  ///< kRun
    const char* name;          ///< kCall: of the kernel
    Target target;
    Span rows;  ///< kElements, kBlocks: of Plan::rows
  };
  uint32_t task_id;  ///< position in the graph's lane, as dumps show it; of rows the first
  uint32_t args_bytes : 17;
  uint32_t lane : 11;  ///< captured lane of the task; meaningless in graphs with more lanes, see Plan::node
  uint32_t kind : 4;

  /// Kind and lane as one number, for comparing both at once.
  uint32_t Sort() const {
    uint32_t bits;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(this) + sizeof(Step) - sizeof bits, sizeof bits);
    return bits >> 17;
  }

  Step(const ir::Node& node)  // NOLINT: a step is made of a node
      : run(node.type->run),
        data(node.payload),
        type(node.type),
        task_id(node.position),
        args_bytes(0),
        lane(node.lane & kMaxScheduledLanes),
        kind(kRun) {}
};
static_assert(sizeof(Step) == 32);
static_assert(kMaxScheduledLanes == (1 << 11) - 1);
using Steps = std::vector<Step, PageAllocator<Step>>;
/// Of tasks whose steps are redirected.
constexpr size_t kMostPayloadBytes = 64;
/// Kernels with more are called through their task type.
constexpr uint32_t kMaxDirectArgsBytes = 64u << 10;

struct PlanLane {
  uint32_t begin;  ///< first step
  uint32_t end;
  int32_t stream_id;
  int32_t first_wait_lane;              ///< lane that the first step waits for, or -1
  bool starts = true;                   ///< with the execution; others are activated
  ir::SlotUsers* slot_users = nullptr;  ///< whoever runs steps of the lane is one of them
};

/// One element-wise task: all that a replay needs of it in one cache line, in the order of execution.
struct alignas(64) ElementRun {
  ir::RangeCall call;
  uint32_t task_id;  ///< position in the graph's lane
  uint32_t lane;     ///< captured lane
};
static_assert(sizeof(ElementRun) == 64);

/// One function for all rows of a step, made by a BlockGenerator.
struct GeneratedRun {
  BlockGenerator::Block block;
  std::vector<void*> addresses;  ///< of the operands of the rows
  ElementRun run;                ///< calls the function for a range
};

/// A lane of a built model: the tasks of one bound stream.
struct ProgramLane {
  std::shared_ptr<const ir::Graph> graph;
  bool starts;
};

/// What a plan consists of, as the passes fill it.
struct PlanParts {
  struct JumpTarget {
    uint32_t lane;
    uint32_t cursor;
  };

  const ir::Graph* graph = nullptr;  ///< null for programs
  Steps steps;
  std::vector<ElementRun> rows;
  std::vector<std::unique_ptr<GeneratedRun>> generated;
  std::vector<PlanLane> lanes;
  std::vector<int32_t> stream_ids;   ///< of the captured lanes; empty unless scheduled
  std::vector<ProgramLane> program;  ///< empty unless a program
  std::vector<std::vector<JumpTarget>> jump_tables;
  bool has_elementwise = false;  ///< some step may become a row

  bool is_program() const { return !program.empty(); }
  bool is_scheduled() const { return !stream_ids.empty(); }
  uint32_t CapturedLane(uint32_t lane, const Step& step) const {
    return is_program() ? 0 : is_scheduled() ? step.lane : lane;
  }
};

struct FusionLog;

class Plan {
 public:
  /// A plan of the graph on its captured lanes. Linear in nodes and lanes × waits. The graph must outlive the plan and
  /// not change. `log`, which may be null, learns what became of element-wise tasks.
  static std::unique_ptr<Plan> Compile(const ir::Graph& graph, FusionLog* log = nullptr);

  /// A plan on the lanes of an assignment of the graph's dag; CanSchedule(graph) must hold. A lane has the stream of
  /// its first task.
  static std::unique_ptr<Plan> Compile(const ir::Graph& graph, const ir::Dag& dag, const Assignment& assignment,
                                       FusionLog* log = nullptr);

  explicit Plan(PlanParts parts) : parts_(std::move(parts)) {}

  /// Brings the steps of these nodes up to date with the graph, which is the one that the plan was made of; at a cost
  /// of O(log steps) each, and never while the plan runs. The plan then behaves as a new one would. False when it has
  /// to be made anew, because the change touches more than the step of its node; some steps may have changed by then.
  bool Patch(std::span<const ir::NodeId> changed);

  /// Tells rows of these nodes where their memory is now; their payloads were changed in place. The same tasks run in
  /// the same groups: whoever moves memory sees to it that what overlapped, and only that, still does. False when a
  /// task has other code for its new addresses, or no rows any more; then the plan has to be made anew.
  bool Rebind(std::span<const ir::NodeId> moved);

  /// Machine code for calls of kernels; null: there is none, or none any more, because steps have changed. Never while
  /// the plan runs.
  const CallCode* call_code() const { return call_code_.get(); }
  /// The code for the run of calls that begins with that step, if it has any.
  const CallCode::Run* FindCode(uint32_t step) const {
    return call_code_ == nullptr ? nullptr : call_code_->Find(step);
  }
  void SetCallCode(std::unique_ptr<const CallCode> code) { call_code_ = std::move(code); }
  /// From here on the step of the node calls run(context, data). `data` begins with the bytes of the task's payload,
  /// for all who only look at it. False when the node has no step that runs a task of this type.
  bool Redirect(const ir::Node& node, const ir::TaskType* type, ir::RunResult (*run)(device::RunContext&, void* data),
                void* data);

  /// Other steps for some of the plan's: Swap puts them there, and, called again, what was there before. While they
  /// are there nobody may patch, rebind or redirect.
  struct Detour {
    struct Rows;  // a step of element-wise tasks, where others run in place of some of them
    std::vector<std::pair<uint32_t, Step>> steps;
    std::vector<std::shared_ptr<Rows>> rows;  // which steps run
  };
  /// A task of that type and payload shall run in place of these, which follow one another in the only lane of the
  /// graph; it never waits. False when the plan cannot do that: it has several lanes, or one function for a group of
  /// tasks of which some are none of these.
  bool AddDetour(std::span<const ir::NodeId> tasks, const ir::TaskType& type, void* payload, Detour& detour);
  void Swap(Detour& detour) noexcept {
    for (auto& [index, step] : detour.steps) std::swap(parts_.steps[index], step);
  }

  bool is_program() const { return parts_.is_program(); }
  /// Whether steps of one lane may come from several captured streams.
  bool is_scheduled() const { return parts_.is_scheduled(); }
  using JumpTarget = PlanParts::JumpTarget;
  const std::vector<JumpTarget>& jump_table(uint32_t index) const { return parts_.jump_tables[index]; }

  const Steps& steps() const { return parts_.steps; }
  const std::vector<ElementRun>& rows() const { return parts_.rows; }
  /// Of a step of kind kElements or kBlocks.
  std::span<const ElementRun> rows_of(const Step& step) const {
    return {rows().data() + step.rows.first, step.rows.count};
  }
  /// What a step of kind kBlocks runs for each block: its rows, or the one function for them.
  std::span<const ElementRun> calls_of(const Step& step) const {
    if (step.blocks.generated == 0) return rows_of(step);
    return {&parts_.generated[step.blocks.generated - 1]->run, 1};
  }
  /// The node that a step of the lane was made of; of rows the first; of a wait or a publication in a scheduled plan:
  /// the task that waits, or that it follows.
  ir::Node node(uint32_t lane, const Step& step) const {
    return NodeOf(GraphOf(lane), parts_.CapturedLane(lane, step), step.task_id);
  }
  ir::Node node(const ElementRun& row) const { return NodeOf(*parts_.graph, row.lane, row.task_id); }
  /// Where the graph that was compiled has that node; not for programs.
  ir::NodeId node_id(uint32_t lane, const Step& step) const {
    return parts_.graph->lanes()[parts_.CapturedLane(lane, step)].nodes[step.task_id];
  }
  ir::NodeId node_id(const ElementRun& row) const { return parts_.graph->lanes()[row.lane].nodes[row.task_id]; }
  /// The captured stream that a step of the lane, or a row of it, belongs to.
  template <class StepOrRow>
  int32_t stream_id(uint32_t lane, const StepOrRow& at) const {
    return is_scheduled() ? parts_.stream_ids[at.lane] : parts_.lanes[lane].stream_id;
  }
  size_t memory_bytes() const {
    return steps().capacity() * sizeof(Step) + rows().capacity() * sizeof(ElementRun) +
           (call_code_ == nullptr ? 0 : call_code_->memory_bytes());
  }
  const std::vector<PlanLane>& lanes() const { return parts_.lanes; }

 private:
  static ir::Node NodeOf(const ir::Graph& graph, uint32_t lane, uint32_t position) {
    return graph.node(graph.lanes()[lane].nodes[position], lane, position);
  }
  const ir::Graph& GraphOf(uint32_t lane) const {
    return is_program() ? *parts_.program[lane - 1].graph : *parts_.graph;
  }
  /// The rows of a step one by one, as far as the detour has left them; null where that cannot be.
  Detour::Rows* TakeApart(uint32_t index, const ir::Node& node, Detour& detour);
  /// The step that was made of the node, or that has its row; null when there is none.
  Step* FindStep(const ir::Node& node);
  Step* FindScheduledStep(const ir::Node& node);

  /// Of a task in a scheduled plan.
  struct Indexed {
    uint64_t key;  ///< captured lane and position
    uint32_t step;
  };

  PlanParts parts_;
  std::unique_ptr<const CallCode> call_code_;
  std::vector<Indexed> step_index_;  // sorted; of a scheduled plan that was patched
};

}  // namespace reprise::exec
