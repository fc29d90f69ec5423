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

/// Turns element-wise steps among [begin, end of steps) into steps of kinds kRows and kBlocks, whose rows are appended
/// to `rows`. Linear but for the ranges of a group, which are sorted. Does nothing with REPRISE_FUSE=0.
void FuseRows(Steps& steps, size_t begin, std::vector<Row>& rows);

/// Runs the rows, which have one number of elements, block by block: on this thread, and if `is_parallel` on idle
/// workers.
void RunBlocks(device::Scheduler& scheduler, const Row* rows, uint32_t count, int64_t block, bool is_parallel);

}  // namespace reprise::exec
