// SPDX-License-Identifier: Apache-2.0
//
// Chains: tasks of one lane whose results are read by other tasks of the chain, and which run in another way together:
// several of them in one go, with what one gives the next in an order of its own. Whoever runs a chain keeps the forms
// of operands that it needs (ir::KeptOperand), and runs either all of its links in place of their tasks or none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/task.h"

namespace reprise::ir {

/// Runs in place of tasks that follow one another in their lane.
///
/// Threads: one at a time; Run may use those of the scheduler.
class Link {
 public:
  virtual ~Link() = default;
  /// \pre SetForm was called, where there is an operand
  virtual void Run(device::RunContext& context) = 0;
  /// The operand that it reads in another form, with all of KeptOperand but role and temporary; false: none.
  virtual bool FindOperand(KeptOperand& operand) const = 0;
  /// Makes that form; `to` is aligned to 64.
  virtual void WriteForm(device::RunContext& context, void* to) const = 0;
  virtual void SetForm(const void* form) = 0;
};

/// A task as those who make chains see it.
struct ChainTask {
  const TaskType* type;
  const void* payload;
};

/// After all links and the tasks between them have run, memory holds what it would hold had each task run by itself,
/// with the same bits, but for what tasks have left in a block that was used again (ReusedBlock). In between it may
/// hold something else: what is overwritten by the end without having been read by a task outside of the chain need not
/// be there at all.
struct Chain {
  struct Part {
    uint32_t first;  ///< of the tasks, the first one whose place the link takes
    uint32_t count;
    std::unique_ptr<Link> link;
    uint32_t runs;  ///< tasks from `first` on that it computes, those of the parts behind it among them; for dumps
  };
  std::vector<Part> parts;  ///< in the order of tasks

  /// Tells what there is of other work: how many results stay out of memory, and how many tasks are part of another.
  uint32_t left_out = 0;
};

}  // namespace reprise::ir
