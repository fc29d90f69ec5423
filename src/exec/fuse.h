// SPDX-License-Identifier: Apache-2.0
//
// Element-wise neighbours: steps of a lane that declare themselves element-wise (ir::Elementwise) become calls that
// follow each other without the way through their task types; where it pays, a group of them runs block by block.
//
// A group has one number of elements, and of the memory that it touches (TaskType::operands tells) any two ranges are
// disjoint, or the same with the same size of an element, or both only read, as what is broadcast always is. So element
// i of everything is computed from elements i, and from what nobody in the group writes, blocks of elements do not know
// of each other, and all calls for one block can run before the
// next block begins, on any thread: what a call reads of a block lies in the first cache still, and no thread waits for
// another between two calls. The bits are those of running the calls one by one (ir::kRangeUnit). A group that has
// begun runs to its end, so every task of an execution that failed or was aborted has run as a whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/scheduler.h"
#include "exec/plan.h"
#include "ir/task.h"

namespace reprise::exec {

/// What became of the element-wise tasks of a graph.
struct FusionLog {
  struct Apart {
    uint32_t lane;     ///< captured lane
    uint32_t task_id;  ///< of a task that did not join the element-wise task before it
    const char* why;
  };
  uint64_t fused = 0;      ///< tasks that run block by block together with a neighbour
  uint64_t not_fused = 0;  ///< tasks that could not join the one before them
  bool wants_reasons = false;
  std::vector<Apart> apart;  ///< only if reasons are wanted
};

/// The last pass of a plan: turns element-wise steps that follow each other in a lane into steps of kinds kElements and
/// kBlocks, whatever captured streams they come from; a wait or a publication between them keeps them apart. Linear but
/// for the ranges of a group, which are sorted. Does nothing with REPRISE_FUSE=0. `log` may be null.
void Fuse(PlanParts& parts, FusionLog* log);

/// Runs the rows, which have one number of elements, block by block: on this thread, and if `is_parallel` on idle
/// workers.
void RunBlocks(device::Scheduler& scheduler, std::span<const ElementRun> rows, int64_t block, bool is_parallel);

/// Where the operands of generated functions are now: after rows of `plan` were told of moved memory.
void MoveGenerated(const Plan& plan, const Step& step, GeneratedRun& generated);

}  // namespace reprise::exec
