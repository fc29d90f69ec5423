// SPDX-License-Identifier: Apache-2.0
//
// Element-wise neighbours: steps of a lane that declare themselves element-wise (ir::Elementwise) become calls that
// follow each other without the way through their task types; where it pays, a group of them runs block by block.
//
// A group has one number of elements, and of the memory that it touches any two ranges are disjoint, or the same with
// the same size of an element, or both only read. So element i of everything is computed from elements i alone, blocks
// of elements do not know of each other, and all calls for one block can run before the next block begins, on any
// thread: what a call reads of a block lies in the first cache still, and no thread waits for another between two
// calls. The bits are those of running the calls one by one (ir::kRowUnit). A group that has begun runs to its end, so
// every task of an execution that failed or was aborted has run as a whole or not at all.
#pragma once

#include <cstdint>
#include <vector>

#include "base/pages.h"
#include "device/scheduler.h"
#include "ir/task.h"

namespace reprise::exec {

struct Step;
using Steps = std::vector<Step, PageAllocator<Step>>;

/// One element-wise task: all that a replay needs of it in one cache line, in the order of execution.
struct alignas(64) Row {
  ir::RowCall call;
  uint32_t task_id;  ///< position in the graph's lane
};
static_assert(sizeof(Row) == 64);

/// What became of the element-wise tasks of a graph.
struct FusionLog {
  struct Apart {
    uint32_t lane;
    uint32_t task_id;  ///< of a task that did not join the element-wise task before it
    const char* why;
  };
  uint64_t fused = 0;      ///< tasks that run block by block together with a neighbour
  uint64_t not_fused = 0;  ///< tasks that could not join the one before them
  bool wants_reasons = false;
  std::vector<Apart> apart;  ///< only if reasons are wanted
};

/// Turns element-wise steps among [begin, end of steps) into steps of kinds kRows and kBlocks, whose rows are appended
/// to `rows`. Linear but for the ranges of a group, which are sorted. Does nothing with REPRISE_FUSE=0. `lane` is that
/// of the steps, for the log, which may be null.
void FuseRows(Steps& steps, size_t begin, std::vector<Row>& rows, uint32_t lane = 0, FusionLog* log = nullptr);

/// Runs the rows, which have one number of elements, block by block: on this thread, and if `is_parallel` on idle
/// workers.
void RunBlocks(device::Scheduler& scheduler, const Row* rows, uint32_t count, int64_t block, bool is_parallel);

}  // namespace reprise::exec
