// SPDX-License-Identifier: Apache-2.0
//
// The place for generated machine code: whoever can make one function of a group of element-wise neighbours
// (exec/fuse.h) is asked when a plan is made. Groups that it declines run task by task for each block, as all do
// without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ir/task.h"

namespace reprise::exec {

/// Threads: Generate is called by whatever threads make plans, also at the same time.
class BlockGenerator {
 public:
  /// Computes elements [begin, end) of all tasks of a group, as calling the tasks one after another does, with the same
  /// bits. Called for disjoint ranges by several threads at once; ranges keep the rule of ir::kRangeUnit. It cannot
  /// fail.
  struct Block {
    /// `addresses`: where the operands of the tasks are now, in the order of their formulas. They move between runs,
    /// but those that were one stay one.
    void (*function)(void* const* addresses, const void* code, int64_t begin, int64_t end) = nullptr;
    std::shared_ptr<const void> code;  ///< lives as long as the plan
  };

  virtual ~BlockGenerator() = default;
  /// \param tasks     two or more, in the order in which they run; only valid during the call
  /// \param elements  of each of them
  virtual std::optional<Block> Generate(std::span<const ir::ElementFormula> tasks, int64_t elements) = 0;
};

/// Plans that are made from here on ask this generator; null, as at first: none. It must live as long as it is set, and
/// as threads make plans that asked it.
void SetBlockGenerator(BlockGenerator* generator);
BlockGenerator* TheBlockGenerator();

}  // namespace reprise::exec
