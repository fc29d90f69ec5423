// SPDX-License-Identifier: Apache-2.0
//
// Plan: a graph made ready to run. Immutable, flat, in execution order, one run of steps per lane.
//
// Inside a lane position is the only dependency. Between lanes a step may wait until another lane has passed a
// position; waits that an earlier one implies are dropped, and only positions that somebody waits for are published.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "exec/blocks.h"
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
  uint32_t args_bytes : 28;
  uint32_t kind : 4;

  Step(const ir::Node& node)  // NOLINT: a step is made of a node
      : run(node.type->run), data(node.payload), type(node.type), task_id(node.position), args_bytes(0), kind(kRun) {}
};
static_assert(sizeof(Step) == 32);

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
struct LabelTarget {
  const ir::Graph* graph;
  ir::NodeId node;  ///< the label's own node
};
struct LabelSwitchPayload {
  const uint32_t* index;  ///< read when the task runs
  uint32_t most;
  std::vector<LabelTarget>* targets;  ///< owned
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
  int32_t first_wait_lane;  ///< lane that the first step waits for, or -1
  bool starts = true;       ///< with the execution; others are activated
};

/// A lane of a built model: the tasks of one bound stream.
struct ProgramLane {
  std::shared_ptr<const ir::Graph> graph;
  bool starts;
};

class Plan {
 public:
  /// Linear in nodes and lanes × waits. The graph must outlive the plan and not change.
  static std::unique_ptr<Plan> Compile(const ir::Graph& graph);

  /// A built model: lane 0 is empty, lane i + 1 holds the tasks of lanes[i]. 107005 when a task refers to a stream that
  /// is not among them.
  static StatusOr<std::unique_ptr<Plan>> CompileProgram(const std::vector<ProgramLane>& lanes);

  bool is_program() const { return !program_.empty(); }
  struct JumpTarget {
    uint32_t lane;
    uint32_t cursor;
  };
  const std::vector<JumpTarget>& jump_table(uint32_t index) const { return jump_tables_[index]; }

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Row>& rows() const { return rows_; }
  /// The node that a step or row of the lane was made of.
  const ir::Node& node(uint32_t lane, uint32_t task_id) const {
    const ir::Graph& graph = is_program() ? *program_[lane - 1].graph : *graph_;
    return graph.node(graph.lanes()[is_program() ? 0 : lane].nodes[task_id]);
  }
  const ir::Node& node(uint32_t lane, const Step& step) const { return node(lane, step.task_id); }
  size_t memory_bytes() const { return steps_.capacity() * sizeof(Step) + rows_.capacity() * sizeof(Row); }
  const std::vector<PlanLane>& lanes() const { return lanes_; }

 private:
  const ir::Graph* graph_ = nullptr;  // null for programs
  std::vector<Step> steps_;
  std::vector<Row> rows_;
  std::vector<PlanLane> lanes_;
  std::vector<ProgramLane> program_;
  std::vector<std::vector<JumpTarget>> jump_tables_;
};

}  // namespace reprise::exec
