// SPDX-License-Identifier: Apache-2.0
//
// Machine code for kernels that follow each other in a lane: a call of its own for each of them. The loop over steps
// has one indirect call for all, which processors mispredict as soon as functions vary; here nothing is left to
// predict. What the loop does stays the same bits: each kernel gets its context and arguments, a failure ends the run,
// and so does the mark that some other lane has failed, before each kernel.
//
// Only for x86-64. Pages are written first and executed then, never both at once; where the system allows no such pages
// there is no code, and the loop does it all. It also is what tests hold the code against.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/task.h"

namespace reprise::exec {

class Plan;
struct Step;

/// Threads: immutable.
class CallCode {
 public:
  /// Value of the mark of a failed execution; not zero, and nothing that a kernel has a reason to return.
  static constexpr uint32_t kFailed = 0x80c0de01;
  /// Runs of fewer calls are left to the loop.
  static constexpr uint32_t kLeastRun = 16;

  /// Steps [begin, end) of a plan, all of them calls of kernels of one captured lane.
  struct Run {
    uint32_t begin;
    uint32_t end;
    uint32_t first_context;
    uint32_t entry;    ///< where its code begins
    const void* base;  ///< what arguments are addressed from
  };

  /// What the plan has of calls in runs of at least `least_run`.
  struct Calls {
    uint64_t calls = 0;
    uint64_t changes = 0;  ///< of these: call another function than the one before
  };
  static Calls Count(const Plan& plan, uint32_t least_run);

  /// Code for the plan's runs of at least `least_run` calls, at a cost of about 30 ns for each call. Null where there
  /// is none, or where this machine allows none. The plan must not be a program, and its steps must not change as long
  /// as the code is used. Throws std::bad_alloc.
  static std::unique_ptr<const CallCode> Make(const Plan& plan, uint32_t least_run, int32_t device_id);

  CallCode(const CallCode&) = delete;
  CallCode& operator=(const CallCode&) = delete;
  ~CallCode();

  /// The run that begins with that step; null when the loop has to do it.
  const Run* Find(uint32_t begin) const;

  /// Where a run stopped.
  struct Stop {
    uint32_t step = UINT32_MAX;  ///< the last one that was called; UINT32_MAX: all have been, and none has failed
    int32_t code = 0;            ///< what that kernel returned
  };
  /// Calls the kernels of the run one after another, until one returns something else than 0 or `failed` is kFailed;
  /// the first one is called in any case. `current` always holds the context of the kernel that runs.
  Stop Call(const Run& run, const RepriseKernelContext*& current, const std::atomic<uint32_t>& failed) const;

  size_t memory_bytes() const;

 private:
  CallCode() = default;

  std::vector<Run> runs_;  // in the order of steps
  std::vector<RepriseKernelContext> contexts_;
  std::byte* code_ = nullptr;
  size_t code_bytes_ = 0;  // of whole pages
};

}  // namespace reprise::exec
