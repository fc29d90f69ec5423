// SPDX-License-Identifier: Apache-2.0
//
// Plan: a graph made ready to run. Flat, in execution order, one run of steps per lane. While it runs it never changes;
// between executions the steps of changed tasks can be brought up to date.
//
// The lanes are the captured ones (Compile) or, for tasks that may run anywhere, those of an assignment
// (CompileScheduled); each step knows the captured lane of its task.
//
// Inside a lane position is the only dependency. Between lanes a step may wait until another lane has passed a
// position; waits that an earlier one implies are dropped, and only positions that somebody waits for are published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/blocks.h"
#include "exec/schedule.h"
#include "ir/graph.h"

namespace reprise::exec {

/// 32 bytes, because replays of large graphs are bound by memory: two steps share a cache line.
struct Step {
  enum Kind : uint8_t {
    kRun,      ///< call run(context, data): the task's payload
    kCall,     ///< call a kernel with data: its arguments
    kRows,     ///< element-wise tasks, one after another
    kBlocks,   ///< element-wise tasks, block by block
    kWait,     ///< until lane target.lane has published target.position
    kPublish,  ///< target.position of this lane is reached
    kSkip,     ///< nothing: a task that was disabled after the plan was made
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
  union {
    void* data;
    bool is_parallel;  ///< kBlocks: worth more than one thread
  };
  union {
    const ir::TaskType* type;  ///< kRun
    const char* name;          ///< kCall: of the kernel
    Target target;
    Span rows;  ///< kRows, kBlocks: of Plan::rows
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
/// Kernels with more are called through their task type.
constexpr uint32_t kMaxDirectArgsBytes = 64u << 10;

/// Payloads of the tasks that steer a built model; `target` is the task store of the other stream.
struct ActivatePayload {
  const ir::Graph* target;
  int32_t target_stream_id;
};
enum class SwitchCondition : uint32_t { kEqual, kNotEqual, kGreater, kGreaterOrEqual, kLess, kLessOrEqual };
struct SwitchPayload {
  const void* left;
  const void* right;
  SwitchCondition condition;
  bool is_int64;
  const ir::Graph* target;
  int32_t target_stream_id;
};
/// Where a label stands. Shared by the label and by everything that may jump there: a jump forward is stored before its
/// label is set.
struct LabelTarget {
  uint64_t number;  ///< of the label, in the order of creation, from 1
  bool is_set = false;
  std::weak_ptr<const ir::Graph> graph{};  ///< that stores the label
  ir::NodeId node = ir::kNoNode;           ///< the label's own node
};
struct LabelSwitchPayload {
  const uint32_t* index;  ///< read when the task runs
  uint32_t most;
  std::vector<std::shared_ptr<const LabelTarget>>* targets;  ///< owned
};
extern const ir::TaskType kActivateTask;
extern const ir::TaskType kSwitchTask;
extern const ir::TaskType kLabelSetTask;
extern const ir::TaskType kLabelSwitchTask;
extern const ir::TaskType kEndTask;

bool Holds(const SwitchPayload& payload);

struct PlanLane {
  uint32_t begin;  ///< first step
  uint32_t end;
  int32_t stream_id;
  int32_t first_wait_lane;              ///< lane that the first step waits for, or -1
  bool starts = true;                   ///< with the execution; others are activated
  ir::SlotUsers* slot_users = nullptr;  ///< whoever runs steps of the lane is one of them
};

/// A lane of a built model: the tasks of one bound stream.
struct ProgramLane {
  std::shared_ptr<const ir::Graph> graph;
  bool starts;
};

class Plan {
 public:
  /// Linear in nodes and lanes × waits. The graph must outlive the plan and not change.
  static std::unique_ptr<Plan> Compile(const ir::Graph& graph, FusionLog* log = nullptr);

  /// A plan of the graph on the lanes of an assignment of its dag; CanSchedule(graph) must hold. A lane has the stream
  /// of its first task.
  static std::unique_ptr<Plan> CompileScheduled(const ir::Graph& graph, const Dag& dag, const Assignment& assignment);

  /// A built model: lane 0 is empty, lane i + 1 holds the tasks of lanes[i]. 107005 when a task refers to a stream that
  /// is not among them.
  static StatusOr<std::unique_ptr<Plan>> CompileProgram(const std::vector<ProgramLane>& lanes);

  /// Brings the steps of these nodes up to date with the graph, which is the one that the plan was made of; at a cost
  /// of O(log steps) each, and never while the plan runs. The plan then behaves as a new one would. False when it has
  /// to be made anew, because the change touches more than the step of its node; some steps may have changed by then.
  bool Patch(std::span<const ir::NodeId> changed);

  bool is_program() const { return !program_.empty(); }
  /// Whether steps of one lane may come from several captured streams.
  bool is_scheduled() const { return !stream_ids_.empty(); }
  struct JumpTarget {
    uint32_t lane;
    uint32_t cursor;
  };
  const std::vector<JumpTarget>& jump_table(uint32_t index) const { return jump_tables_[index]; }

  const Steps& steps() const { return steps_; }
  const std::vector<Row>& rows() const { return rows_; }
  /// The node that a step of the lane was made of; of rows the first; of a wait or a publication in a scheduled plan:
  /// the task that waits, or that it follows.
  ir::Node node(uint32_t lane, const Step& step) const {
    return NodeOf(GraphOf(lane), CapturedLane(lane, step), step.task_id);
  }
  /// The node that a row of a lane was made of; plans with rows are not scheduled.
  ir::Node node(uint32_t lane, const Row& row) const {
    return NodeOf(GraphOf(lane), is_program() ? 0 : lane, row.task_id);
  }
  /// Where the graph that was compiled has that node; not for programs.
  ir::NodeId node_id(uint32_t lane, const Step& step) const {
    return graph_->lanes()[CapturedLane(lane, step)].nodes[step.task_id];
  }
  /// The captured stream that a step of the lane belongs to.
  int32_t stream_id(uint32_t lane, const Step& step) const {
    return is_scheduled() ? stream_ids_[step.lane] : lanes_[lane].stream_id;
  }
  size_t memory_bytes() const { return steps_.capacity() * sizeof(Step) + rows_.capacity() * sizeof(Row); }
  const std::vector<PlanLane>& lanes() const { return lanes_; }

 private:
  static ir::Node NodeOf(const ir::Graph& graph, uint32_t lane, uint32_t position) {
    return graph.node(graph.lanes()[lane].nodes[position], lane, position);
  }
  const ir::Graph& GraphOf(uint32_t lane) const { return is_program() ? *program_[lane - 1].graph : *graph_; }
  uint32_t CapturedLane(uint32_t lane, const Step& step) const {
    return is_program() ? 0 : is_scheduled() ? step.lane : lane;
  }
  /// The step that was made of the node; null when there is none.
  Step* FindStep(const ir::Node& node);

  const ir::Graph* graph_ = nullptr;  // null for programs
  Steps steps_;
  std::vector<Row> rows_;
  std::vector<PlanLane> lanes_;
  std::vector<ProgramLane> program_;
  std::vector<std::vector<JumpTarget>> jump_tables_;
  std::vector<int32_t> stream_ids_;   // of the captured lanes; empty unless scheduled
  std::vector<uint32_t> step_index_;  // of a scheduled plan that was patched: tasks by captured lane and position
};

}  // namespace reprise::exec
