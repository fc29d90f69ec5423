// SPDX-License-Identifier: Apache-2.0
//
// CodeChoice: whether a plan gets machine code for its calls (exec/call_code.h). That depends on how well the processor
// predicts the one call of the loop, and nothing tells but the clock: after some executions a few are timed, and a few
// more with the code, which is dropped again unless it is faster. Results never depend on it.
#pragma once

#include <cstdint>

#include "exec/plan.h"

namespace reprise::exec {

/// Threads: one at a time; of a replay that is who begins and ends executions.
class CodeChoice {
 public:
  CodeChoice() { Reopen(); }

  /// Whether Begin and End want to be called.
  bool is_open() const { return left_ != 0; }
  /// The plan has changed, or is another one. A plan that changes again and again never gets code.
  void Reopen() noexcept;
  /// Before an execution of the plan.
  void Begin(Plan& plan, int32_t device_id) noexcept;
  /// Behind it; one that failed has left tasks out, so that its time says nothing.
  void End(bool failed) noexcept;

 private:
  int left_;                 // executions until it is settled
  uint64_t calls_ = 0;       // of kernels that the code is for
  uint64_t began_ = 0;       // the execution, if it is timed
  uint64_t least_loop_ = 0;  // least time of an execution so far
  uint64_t least_code_ = 0;
};

}  // namespace reprise::exec
