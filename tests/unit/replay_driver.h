// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

#include "base/status.h"
#include "device/scheduler.h"
#include "exec/replay.h"

namespace reprise::testing {

/// Runs a replay once, as a stream does.
class ReplayDriver final : public device::Runnable {
 public:
  ReplayDriver(exec::Replay& replay, device::Scheduler& scheduler) : replay_(replay), scheduler_(scheduler) {}
  Outcome Run(device::RunContext& context) override {
    if (done_) return Outcome::kIdle;
    const ir::RunResult result = replay_.Run(context, progress_);
    if (result == ir::RunResult::kParked) return Outcome::kIdle;
    if (result == ir::RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
    if (context.failed()) error_ = context.TakeError();
    done_ = true;
    done_.notify_all();
    return Outcome::kIdle;
  }
  Status Execute() {
    done_ = false;
    progress_.ticket = replay_.Submit();
    scheduler_.Wake(*this);
    done_.wait(false);
    scheduler_.Retire(*this);
    return std::move(error_);
  }

 private:
  exec::Replay& replay_;
  device::Scheduler& scheduler_;
  exec::Replay::Progress progress_{};
  Status error_;
  std::atomic<bool> done_{true};
};

}  // namespace reprise::testing
