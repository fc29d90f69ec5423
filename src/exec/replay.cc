// SPDX-License-Identifier: Apache-2.0
#include "exec/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "device/inquiry.h"

namespace reprise::exec {

using device::RunContext;
using ir::RunResult;

// A forked lane. It touches nothing of its replay after it has counted itself out.
class Replay::LaneRunner final : public device::Runnable {
 public:
  LaneRunner(Replay& replay, uint32_t lane) : replay_(replay), lane_(lane) {}

  Outcome Run(RunContext& context) override {
    // A wake-up may come late, after the lane has finished and even while the next execution is being set up.
    if (done_.load(std::memory_order_acquire)) return Outcome::kIdle;
    context.device_id = replay_.device_id_;
    context.bindings = replay_.bindings_;
    do {
      switch (replay_.RunLane(lane_, context)) {
        case RunResult::kParked: return Outcome::kIdle;
        case RunResult::kNeedsWorker: return Outcome::kNeedsWorker;
        case RunResult::kDone: break;
      }
    } while (!replay_.EndLane(lane_));
    if (replay_.lanes_left_.fetch_sub(1, std::memory_order_seq_cst) == 1) replay_.join_waiters_.WakeIfAnnounced();
    return Outcome::kIdle;
  }

  /// The lane may run from now on; everything that it reads is set.
  void Arm() { done_.store(false, std::memory_order_release); }
  void Disarm() { done_.store(true, std::memory_order_relaxed); }

 private:
  Replay& replay_;
  const uint32_t lane_;
  std::atomic<bool> done_{true};
};

Replay::Replay(std::unique_ptr<Plan> plan, device::Scheduler& scheduler)
    : plan_(std::move(plan)), scheduler_(scheduler), lanes_(new LaneState[plan_->lanes().size()]) {
  for (uint32_t i = 1; i < plan_->lanes().size(); ++i) lanes_[i].runner = std::make_unique<LaneRunner>(*this, i);
}

Replay::~Replay() {
  for (uint32_t i = 1; i < plan_->lanes().size(); ++i) scheduler_.Retire(*lanes_[i].runner);
}

void Replay::Cancel(uint64_t ticket) noexcept {
  std::lock_guard lock(cancelled_mutex_);
  cancelled_.insert(ticket);
  if (turn_.load(std::memory_order_acquire) == ticket) Advance();
}

// With cancelled_mutex_ held.
void Replay::Advance() noexcept {
  uint64_t turn = turn_.load(std::memory_order_relaxed);
  while (cancelled_.erase(turn) != 0) ++turn;
  turn_.store(turn, std::memory_order_seq_cst);
  turn_waiters_.WakeIfAnnounced();
}

void Replay::Finish(uint64_t ticket) noexcept {
  running_.store(false, std::memory_order_release);
  std::lock_guard lock(cancelled_mutex_);
  turn_.store(ticket + 1, std::memory_order_seq_cst);
  Advance();
}

void Replay::Start(RunContext& context, Progress& progress) {
  bindings_ = progress.bindings;
  device_id_ = context.device_id;
  label_ = progress.label;
  failed_.store(false, std::memory_order_relaxed);
  abandoned_.store(false, std::memory_order_relaxed);
  const auto count = static_cast<uint32_t>(plan_->lanes().size());
  for (uint32_t i = 0; i < count; ++i) {
    lanes_[i].cursor = plan_->lanes()[i].begin;
    lanes_[i].parked = false;
    lanes_[i].progress.store(0, std::memory_order_relaxed);
  }
  ended_.store(false, std::memory_order_relaxed);
  for (const CellReset& reset : prologue_) {
    std::atomic_ref<uint64_t>(*reset.cell).store(reset.value, std::memory_order_release);
  }
  uint32_t starting = 0;
  for (uint32_t i = 1; i < count; ++i) {
    lanes_[i].active = plan_->lanes()[i].starts;
    lanes_[i].start_pending = false;
    starting += lanes_[i].active ? 1 : 0;
  }
  lanes_left_.store(starting, std::memory_order_relaxed);
  running_.store(true, std::memory_order_release);
  for (uint32_t i = 1; i < count; ++i) {
    if (!plan_->lanes()[i].starts) continue;
    lanes_[i].runner->Arm();
    // A lane that begins with a wait is put straight into its source's list instead of waking a worker for nothing.
    // The source may run already, and even have passed the position.
    const int32_t source = plan_->lanes()[i].first_wait_lane;
    const auto reached = [&] {
      return lanes_[source].progress.load(std::memory_order_seq_cst) >=
             plan_->steps()[plan_->lanes()[i].begin].target.position;
    };
    if (source < 0 || !lanes_[source].waiters.AddUnless(reached, lanes_[i].runner.get(), &scheduler_)) {
      scheduler_.Wake(*lanes_[i].runner);
    }
  }
}

// Called by steps of a built model.
void Replay::StartLane(uint32_t lane, uint32_t cursor) noexcept {
  LaneState& state = lanes_[lane];
  {
    std::lock_guard lock(state.start_lock);
    if (state.active) {
      state.start_pending = true;
      state.pending_cursor = cursor;
      return;
    }
    state.active = true;
    state.parked = false;
    state.cursor = cursor;
    lanes_left_.fetch_add(1, std::memory_order_seq_cst);
    state.runner->Arm();
  }
  scheduler_.Wake(*state.runner);
}

// The lane has run to its end; false when it has been started again meanwhile.
bool Replay::EndLane(uint32_t lane) noexcept {
  LaneState& state = lanes_[lane];
  std::lock_guard lock(state.start_lock);
  if (state.start_pending && !failed_.load(std::memory_order_relaxed)) {
    state.start_pending = false;
    state.cursor = state.pending_cursor;
    return false;
  }
  state.active = false;
  state.runner->Disarm();
  return true;
}

// Nothing more begins, and nobody waits for anybody any more.
void Replay::StopAll() noexcept {
  failed_.store(true, std::memory_order_release);
  abandoned_.store(true, std::memory_order_seq_cst);
  for (uint32_t i = 1; i < plan_->lanes().size(); ++i) scheduler_.Wake(*lanes_[i].runner);
}

bool Replay::Abort(Status error) noexcept {
  if (!running_.load(std::memory_order_acquire)) return false;
  {
    std::lock_guard lock(error_mutex_);
    if (error_.ok()) error_ = std::move(error);
  }
  StopAll();
  return true;
}

void Replay::ReportFailure(RunContext& context, const Step& step, uint32_t lane) {
  Status error = context.TakeError();
  std::lock_guard lock(error_mutex_);
  if (failed_.exchange(true, std::memory_order_acq_rel)) return;  // the first failure wins
  Status::Detail detail = error.detail();
  detail.culprit = fmt::format("{}task {} ({}) of graph stream {}", detail.culprit.empty() ? "" : detail.culprit + "; ",
                               step.task_id, plan_->node(lane, step).type->name, plan_->lanes()[lane].stream_id);
  error_ = Status(std::move(detail));
}

// A step that will not run; if it was parked, nobody shall wake the lane for it any more.
void Replay::SkipStep(LaneState& state, const Step& step, device::Runnable* runnable) {
  if (!state.parked) return;
  state.parked = false;
  scheduler_.CancelTimer(*runnable);
  if (step.type->cancel != nullptr) step.type->cancel(step.data, runnable);
}

// To somebody who asks what the replay waits for.
void Replay::Answer(uint32_t lane, const Step& step) const {
  const int32_t stream = plan_->lanes()[lane].stream_id;
  if (step.kind == Step::kWait) {
    device::Inquiry::Answer(
        fmt::format("graph stream {} waits for graph stream {}", stream, plan_->lanes()[step.target.lane].stream_id));
  } else {
    device::Inquiry::Answer(
        fmt::format("graph stream {}, task {}: {}", stream, step.task_id, ir::DescribeWaiting(*step.type, step.data)));
  }
}

// Element-wise tasks: they neither park nor fail, so calling them is all there is to do.
template <bool kTraced>
void Replay::RunRows(uint32_t lane, const Step& step, RunContext& context) {
  const Row* row = plan_->rows().data() + step.rows.first;
  const Row* const end = row + step.rows.count;
  const auto run_blocks = [&](uint32_t count) {
    RunBlocks(context.scheduler(), row, count, step.block, step.is_parallel);
  };
  if constexpr (!kTraced) {
    if (step.kind == Step::kBlocks) {
      if (!failed_.load(std::memory_order_relaxed)) run_blocks(step.rows.count);
      return;
    }
    for (; row != end && !failed_.load(std::memory_order_relaxed); ++row) {
      row->call.function(row->call.args, 0, row->call.count);
    }
    return;
  }
  for (; row != end && !failed_.load(std::memory_order_relaxed); ++row) {
    const uint64_t begin = device::Timeline::Now();
    if (step.kind == Step::kBlocks) {
      run_blocks(1);
    } else {
      row->call.function(row->call.args, 0, row->call.count);
    }
    context.task_id = row->task_id;
    const ir::Node& node = plan_->node(lane, row->task_id);
    device::Timeline::Get().Task(context, *node.type, node.payload, begin, label_, false);
  }
}

template <bool kTraced>
RunResult Replay::RunSteps(uint32_t lane, RunContext& context) {
  LaneState& state = lanes_[lane];
  const PlanLane& planned = plan_->lanes()[lane];
  const Step* const steps = plan_->steps().data();
  context.stream_id = planned.stream_id;
  uint32_t cursor = state.cursor;
  for (; cursor != planned.end; ++cursor) {
    const Step& step = steps[cursor];
    switch (step.kind) {
      case Step::kRun: {
        if (failed_.load(std::memory_order_relaxed)) [[unlikely]] {
          SkipStep(state, step, context.runnable());
          continue;
        }
        context.task_id = step.task_id;
        [[maybe_unused]] uint64_t begin = 0;
        if constexpr (kTraced) begin = state.parked_since.BeginOf(cursor, state.parked);
        const RunResult result = step.run(context, step.data);
        if (result != RunResult::kDone) [[unlikely]] {
          if constexpr (kTraced) state.parked_since = {result == RunResult::kParked ? begin : 0, cursor};
          state.cursor = cursor;
          state.parked = true;
          if (device::Inquiry::IsOpen()) [[unlikely]]
            Answer(lane, step);
          return result;
        }
        state.parked = false;
        if constexpr (kTraced) {
          device::Timeline::Get().Task(context, *step.type, step.data, begin, label_, context.failed());
        }
        if (context.failed()) [[unlikely]]
          ReportFailure(context, step, lane);
        break;
      }
      case Step::kCall: {
        // The hot loop of replays: what a kernel needs is in its step, and nothing else is touched.
        RepriseKernelContext kernel{
            sizeof(RepriseKernelContext), 0, 1, context.device_id, planned.stream_id, 0, nullptr};
        const Step* at = &step;
        do {
          if (failed_.load(std::memory_order_relaxed)) [[unlikely]]
            continue;
          kernel.task_id = at->task_id;
          kernel.kernel_name = at->name;
          [[maybe_unused]] uint64_t begin = 0;
          if constexpr (kTraced) begin = device::Timeline::Now();
          const int32_t code = at->call(&kernel, at->data, at->args_bytes);
          if (code != 0) [[unlikely]] {
            context.task_id = at->task_id;
            const ir::Node& node = plan_->node(lane, *at);
            node.type->direct_failed(context, node.payload, code);
          }
          if constexpr (kTraced) {
            context.task_id = at->task_id;
            const ir::Node& node = plan_->node(lane, *at);
            device::Timeline::Get().Task(context, *node.type, node.payload, begin, label_, code != 0);
          }
          if (code != 0) [[unlikely]]
            ReportFailure(context, *at, lane);
        } while (++at != steps + planned.end && at->kind == Step::kCall);
        cursor = static_cast<uint32_t>(at - steps) - 1;
        break;
      }
      case Step::kRows:
      case Step::kBlocks: RunRows<kTraced>(lane, step, context); break;
      case Step::kWait: {
        LaneState& source = lanes_[step.target.lane];
        const auto reached = [&] {
          return source.progress.load(std::memory_order_seq_cst) >= step.target.position || abandoned_.load();
        };
        if (!reached()) {
          // Stored first: the wake-up may come as soon as the runnable is in the list.
          state.cursor = cursor;
          if (device::Inquiry::IsOpen()) [[unlikely]]
            Answer(lane, step);
          if (source.waiters.AddUnless(reached, context.runnable(), &scheduler_)) return RunResult::kParked;
        }
        break;
      }
      case Step::kPublish:
        state.progress.store(step.target.position, std::memory_order_seq_cst);
        state.waiters.WakeIfAnnounced();
        break;
      case Step::kActivate:
        if (!failed_.load(std::memory_order_relaxed))
          StartLane(step.target.lane, plan_->lanes()[step.target.lane].begin);
        break;
      case Step::kSwitch:
        if (failed_.load(std::memory_order_relaxed) || !Holds(*static_cast<const SwitchPayload*>(step.data))) break;
        state.cursor = planned.end;
        StartLane(step.target.lane, plan_->lanes()[step.target.lane].begin);
        return RunResult::kDone;
      case Step::kJump: {
        if (failed_.load(std::memory_order_relaxed)) break;
        const auto& payload = *static_cast<const LabelSwitchPayload*>(step.data);
        const auto& table = plan_->jump_table(step.target.position);
        const uint32_t index =
            std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(payload.index)).load(std::memory_order_acquire);
        const uint32_t most = std::min(payload.most, static_cast<uint32_t>(table.size()));
        const Plan::JumpTarget target = table[std::min(index, most - 1)];
        if (target.lane == lane) {
          cursor = target.cursor - 1;  // the loop steps on to the label
          break;
        }
        state.cursor = planned.end;
        StartLane(target.lane, target.cursor);
        return RunResult::kDone;
      }
      case Step::kEnd:
        ended_.store(true, std::memory_order_release);
        StopAll();
        break;
    }
  }
  state.cursor = cursor;
  return RunResult::kDone;
}

RunResult Replay::Run(RunContext& context, Progress& progress) {
  if (device::Inquiry::IsOpen() && progress.phase != Progress::kQueued) [[unlikely]]
    for (uint32_t i = 1; i < plan_->lanes().size(); ++i) scheduler_.Wake(*lanes_[i].runner);
  if (progress.phase == Progress::kQueued) {
    const auto my_turn = [&] { return turn_.load(std::memory_order_seq_cst) == progress.ticket; };
    if (!my_turn() && turn_waiters_.AddUnless(my_turn, context.runnable(), &scheduler_)) return RunResult::kParked;
    Start(context, progress);
    progress.phase = Progress::kRunning;
  }
  const int32_t stream_id = context.stream_id;
  const uint32_t task_id = context.task_id;
  if (progress.phase == Progress::kRunning) {
    // Restored afterwards: the body of a conditional task runs within a task of the outer replay.
    void* const* const outer_bindings = std::exchange(context.bindings, progress.bindings);
    const RunResult result = RunLane(0, context);
    context.bindings = outer_bindings;
    context.stream_id = stream_id;
    context.task_id = task_id;
    if (result != RunResult::kDone) return result;
    progress.phase = Progress::kJoining;
  }
  const auto joined = [&] { return lanes_left_.load(std::memory_order_seq_cst) == 0; };
  if (!joined() && join_waiters_.AddUnless(joined, context.runnable(), &scheduler_)) return RunResult::kParked;
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(error_mutex_);
    if (!error_.ok()) context.Fail(std::move(error_));
    error_ = Status();
  } else if (plan_->is_program() && !ended_.load(std::memory_order_acquire)) {
    context.Fail(Error(507011, "all streams of the model have ended without reaching its end task")
                     .Hint("call aclmdlRIEndTask on the stream that finishes last"));
  }
  const uint64_t ticket = progress.ticket;
  progress.phase = Progress::kQueued;
  Finish(ticket);
  return RunResult::kDone;
}

void Replay::Abandon(Progress& progress, device::Runnable* runnable) noexcept {
  turn_waiters_.Remove(runnable);
  if (progress.phase == Progress::kQueued) return;
  // The execution is under way: what has not begun is skipped, and nobody waits for anybody any more.
  StopAll();
  join_waiters_.Remove(runnable);
  const auto count = static_cast<uint32_t>(plan_->lanes().size());
  for (uint32_t i = 0; i < count; ++i) lanes_[i].waiters.Remove(runnable);
  if (lanes_[0].parked) SkipStep(lanes_[0], plan_->steps()[lanes_[0].cursor], runnable);
  while (lanes_left_.load(std::memory_order_acquire) != 0) {
    // This may be the only worker, so it runs the lanes itself.
    for (uint32_t i = 1; i < count; ++i) scheduler_.TryRun(*lanes_[i].runner);
    std::this_thread::yield();
  }
  {
    std::lock_guard lock(error_mutex_);
    error_ = Status();
  }
  const uint64_t ticket = progress.ticket;
  progress.phase = Progress::kQueued;
  Finish(ticket);
}

}  // namespace reprise::exec
