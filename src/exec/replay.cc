// SPDX-License-Identifier: Apache-2.0
#include "exec/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "base/env.h"
#include "device/inquiry.h"
#include "device/task_watch.h"
#include "device/work_cost.h"
#include "exec/program_plan.h"
#include "ir/task_info.h"

namespace reprise::exec {

using device::RunContext;
using ir::RunResult;

namespace {

// The least of so many times is near the truth; the first one also fills caches.
constexpr int kLearningRuns = 3;
// Of a task that was not measured.
constexpr uint32_t kUnknownNs = 1'000;
// Looks at another lane's progress before the clock is asked how long that has been going on.
constexpr int kFreeLooks = 64;

// What a look at the clock adds to each cost.
uint32_t ClockNs() {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = device::Timeline::Now();
    least = std::min(least, device::Timeline::Now() - before);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(least, UINT32_MAX));
}

// Writes what is not there already: a cache line that nobody writes stays with all who read it.
template <class T>
void Set(T& place, T value) {
  if (place != value) place = value;
}
void Set(std::atomic<bool>& place, bool value) {
  if (place.load(std::memory_order_relaxed) != value) place.store(value, std::memory_order_relaxed);
}

// The graph on lanes, with what a hand-over costs here.
Assignment LayOut(const ir::Dag& dag, uint32_t lanes, std::span<const uint32_t> cost_ns = {}) {
  return Schedule(dag, lanes, cost_ns, static_cast<uint32_t>(device::TheCosts().handoff_ns));
}

// What is over sooner is done by the threads that are awake: waking another takes as long.
bool IsWorthRousing(const Assignment& assignment) {
  return assignment.makespan_ns >= static_cast<uint64_t>(device::TheCosts().wake_ns);
}

bool Learns() {
  static const bool learns = EnvInt(EnvVar::kLearn) != 0;
  return learns;
}

}  // namespace

// A forked lane. It touches nothing of its replay after it has counted itself out.
class Replay::LaneRunner final : public device::Runnable {
 public:
  LaneRunner(Replay& replay, uint32_t lane) : replay_(replay), lane_(lane) {}
  using Runnable::SetWhole;

  Outcome Run(RunContext& context) override {
    // A wake-up may come late, after the lane has finished and even while the next execution is being set up.
    if (done_.load(std::memory_order_acquire)) return Outcome::kIdle;
    context.device_id = replay_.device_id_;
    context.set_whole(replay_.whole_);
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
    : plan_(std::move(plan)), scheduler_(scheduler), memory_bytes_(plan_->memory_bytes()) {
  MakeLanes(static_cast<uint32_t>(plan_->lanes().size()));
}

Replay::Replay(const ir::Graph& graph, device::Scheduler& scheduler, FusionLog* log)
    : scheduler_(scheduler), graph_(&graph) {
  const auto workers = std::min(static_cast<uint32_t>(scheduler.workers()), kMaxExecutionLanes);
  if (graph.lanes().size() == 1 || !CanSchedule(graph)) {
    plan_ = Plan::Compile(graph, log);
    MakeLanes(static_cast<uint32_t>(plan_->lanes().size()));
  } else {
    const ir::Dag dag = ir::BuildDag(graph);
    const Assignment assignment = LayOut(dag, workers);
    plan_ = Plan::Compile(graph, dag, assignment, log);
    rouses_ = IsWorthRousing(assignment);
    if (workers > 1 && Learns()) costs_.reset(new uint32_t[plan_->steps().size() + plan_->rows().size()]());
    MakeLanes(workers);
  }
  memory_bytes_ = plan_->memory_bytes();
}

void Replay::MakeLanes(uint32_t count) {
  lane_capacity_ = count;
  lanes_.reset(new LaneState[count]);
  for (uint32_t i = 1; i < count; ++i) lanes_[i].runner = std::make_unique<LaneRunner>(*this, i);
}

Replay::~Replay() {
  for (uint32_t i = 1; i < lane_capacity_; ++i) scheduler_.Retire(*lanes_[i].runner);
}

// What the tasks cost, by node of the dag.
std::vector<uint32_t> Replay::LearntCosts(const ir::Dag& dag, const uint32_t* measured) const {
  const uint32_t clock = ClockNs();
  const auto cost_at = [&](size_t place) {
    return measured[place] == 0 ? kUnknownNs : measured[place] > clock ? measured[place] - clock : 1;
  };
  std::vector<uint32_t> cost_of(graph_->nodes().size(), 0);
  for (uint32_t lane = 0; lane < plan_->lanes().size(); ++lane) {
    for (uint32_t i = plan_->lanes()[lane].begin; i != plan_->lanes()[lane].end; ++i) {
      const Step& step = plan_->steps()[i];
      if (step.kind != Step::kRun && step.kind != Step::kCall) continue;
      cost_of[plan_->node_id(lane, step)] = cost_at(i);
    }
  }
  for (size_t i = 0; i < plan_->rows().size(); ++i) {
    cost_of[plan_->node_id(plan_->rows()[i])] = cost_at(plan_->steps().size() + i);
  }
  std::vector<uint32_t> costs(dag.size(), 0);
  for (uint32_t i = 0; i < dag.size(); ++i) {
    if (dag.is_junction[i] == 0) costs[i] = cost_of[dag.task[i]];
  }
  return costs;
}

// Between two executions: what the tasks cost is known now.
void Replay::LayOutAgain() noexcept {
  const std::unique_ptr<uint32_t[]> measured = std::move(costs_);
  try {
    const ir::Dag dag = ir::BuildDag(*graph_);
    const std::vector<uint32_t> costs = LearntCosts(dag, measured.get());
    const Assignment assignment = LayOut(dag, lane_capacity_, costs);
    plan_ = Plan::Compile(*graph_, dag, assignment);
    lane_choice_ = {};
    if (plan_->lanes().size() > 1) lane_choice_ = LaneChoice(std::accumulate(costs.begin(), costs.end(), uint64_t{1}));
    is_plan_new_ = true;
    rouses_ = IsWorthRousing(assignment);
    memory_bytes_ = plan_->memory_bytes();
    code_choice_.Reopen();
  } catch (const std::bad_alloc&) {
    // The first plan is as right as the second one would have been.
  }
}

// Where the addresses ask for other code the plan is made anew, on the lanes that it has.
void Replay::BindMemory(const Bindings& bindings) noexcept {
  moved_.clear();
  try {
    binder_->Bind(bindings, moved_);
    if (moved_.empty()) return;
    if (plan_->Rebind(moved_)) return;
    code_choice_.Reopen();
    is_plan_new_ = true;
    if (plan_->is_scheduled()) {
      const ir::Dag dag = ir::BuildDag(*graph_);
      plan_ = Plan::Compile(*graph_, dag, Schedule(dag, lane_capacity_));
    } else {
      plan_ = Plan::Compile(*graph_);
    }
  } catch (const std::bad_alloc&) {
    std::lock_guard lock(error_mutex_);
    error_ = Error(kOutOfHostMemory, "there is no memory to make a graph's plan for its new addresses")
                 .Culprit("the execution that begins")
                 .Hint("free host memory, or run the graph with the addresses of its last execution");
    failed_.store(CallCode::kFailed, std::memory_order_release);
  }
}

void Replay::Cancel(uint64_t ticket) noexcept {
  std::lock_guard lock(cancelled_mutex_);
  cancelled_.insert(ticket);
  any_cancelled_.store(true, std::memory_order_seq_cst);
  if (turn_.load(std::memory_order_seq_cst) == ticket) Advance();
}

// With cancelled_mutex_ held.
void Replay::Advance() noexcept {
  const uint64_t before = turn_.load(std::memory_order_relaxed);
  uint64_t turn = before;
  while (cancelled_.erase(turn) != 0) ++turn;
  any_cancelled_.store(!cancelled_.empty(), std::memory_order_relaxed);
  // A turn that is not cancelled may end at any time, and its end moves on without the lock.
  if (turn != before) turn_.store(turn, std::memory_order_seq_cst);
  turn_waiters_.WakeIfAnnounced();
}

void Replay::Finish(uint64_t ticket) noexcept {
  running_.store(false, std::memory_order_release);
  turn_.store(ticket + 1, std::memory_order_seq_cst);
  // Either Cancel sees the new turn, or we see that it was there.
  if (any_cancelled_.load(std::memory_order_seq_cst)) [[unlikely]] {
    std::lock_guard lock(cancelled_mutex_);
    Advance();
  } else {
    turn_waiters_.WakeIfAnnounced();
  }
}

void Replay::Start(RunContext& context, Progress& progress) {
  if (costs_ != nullptr && learnt_ == kLearningRuns) [[unlikely]]
    LayOutAgain();
  const auto count = static_cast<uint32_t>(plan_->lanes().size());
  Set(is_serial_, lane_choice_.is_serial() && plan_->is_scheduled());
  began_ns_ = lane_choice_.is_open() && !device::Timeline::observed() ? device::Timeline::Now() : 0;
  for (uint32_t i = 1; i < count && !is_serial_; ++i) {
    PrefetchForWrite(&lanes_[i]);
    PrefetchForWrite(&lanes_[i].start_lock);
    scheduler_.PrepareWake(*lanes_[i].runner);
  }
  Set(bindings_, progress.bindings);
  Set(device_id_, context.device_id);
  Set(whole_, context.whole());
  Set(watched_, progress.watched);
  if (failed_.load(std::memory_order_acquire)) [[unlikely]] {
    // Also of an abort that came when the last execution had just ended well.
    std::lock_guard lock(error_mutex_);
    error_ = Status();
    failed_.store(0, std::memory_order_relaxed);
  }
  Set(abandoned_, false);
  if (binder_ != nullptr && progress.bindings != nullptr) BindMemory(*progress.bindings);
  if (keeper_ != nullptr && !keeper_->Begin(*plan_, std::exchange(is_plan_new_, false), context)) keeper_ = nullptr;
  if (code_choice_.is_open() && costs_ == nullptr) [[unlikely]] {
    code_choice_.Begin(*plan_, context.device_id);
    memory_bytes_.store(plan_->memory_bytes(), std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < count; ++i) {
    lanes_[i].cursor = plan_->lanes()[i].begin;
    lanes_[i].parked = false;
    lanes_[i].progress.store(0, std::memory_order_relaxed);
  }
  Set(ended_, false);
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
  for (uint32_t i = 1; i < count && !is_serial_; ++i) {
    if (!plan_->lanes()[i].starts) continue;
    lanes_[i].runner->Arm();
    if (plan_->is_scheduled()) {
      lanes_[i].runner->SetWhole(whole_);
      if (rouses_) {
        scheduler_.Wake(*lanes_[i].runner);
      } else {
        scheduler_.Offer(*lanes_[i].runner);
      }
      continue;
    }
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
  failed_.store(CallCode::kFailed, std::memory_order_release);
  abandoned_.store(true, std::memory_order_seq_cst);
  for (uint32_t i = 1; i < lane_capacity_; ++i) scheduler_.Wake(*lanes_[i].runner);
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
  if (failed_.exchange(CallCode::kFailed, std::memory_order_acq_rel) != 0) return;  // the first failure wins
  Status::Detail detail = error.detail();
  detail.culprit = fmt::format("{}task {} ({}) of graph stream {}", detail.culprit.empty() ? "" : detail.culprit + "; ",
                               step.task_id, plan_->node(lane, step).type->name, plan_->stream_id(lane, step));
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
  const int32_t stream = plan_->stream_id(lane, step);
  if (step.kind == Step::kWait) {
    device::Inquiry::Answer(
        fmt::format("graph stream {} waits for graph stream {}", stream, plan_->lanes()[step.target.lane].stream_id));
  } else {
    device::Inquiry::Answer(
        fmt::format("graph stream {}, task {}: {}", stream, step.task_id, ir::DescribeWaiting(*step.type, step.data)));
  }
}

// Whether the condition came true soon. The lane that it depends on is run here if nobody has taken it yet; in an
// assignment that lane never waits for what this one has still to do, see Schedule.
template <class Reached>
bool Replay::SpinUntil(Reached reached, RunContext& context) noexcept {
  if (!plan_->is_scheduled()) return false;
  const device::Runnable& whole = *context.whole();
  bool has_permit = false;
  Clock::time_point end{};
  bool is_reached = false;
  for (int looks = 1; !(is_reached = reached()); ++looks) {
    if (scheduler_.TryRunPartOf(whole)) continue;
    CpuRelax();
    if (looks % kFreeLooks != 0) continue;
    // Somebody else has the lane. His turn may take long, or he has been descheduled.
    if (end == Clock::time_point{}) {
      has_permit = device::TakeSpinPermit();
      end = Clock::now() + device::SpinTime();
    }
    if (!has_permit || scheduler_.has_ready() || Clock::now() >= end) break;
  }
  if (has_permit) device::ReturnSpinPermit();
  if (!is_reached) scheduler_.Rouse();
  return is_reached;
}

// Of a serial execution: goes on with a lane until it ends, or waits for one that this thread is in. It gets as far as
// others need it, since what they wait for never waits for what they have still to do, see Schedule.
void Replay::RunHere(uint32_t lane, RunContext& context) {
  LaneState& state = lanes_[lane];
  if (lane == 0 || !state.active || state.is_here) return;
  state.is_here = true;
  const RunResult result = RunLane(lane, context);
  state.is_here = false;
  if (result != RunResult::kDone) return;
  EndLane(lane);
  lanes_left_.fetch_sub(1, std::memory_order_relaxed);
}

// For a thread that runs steps of a lane: who it is and how far it is stand in what it writes for its kernels and tasks
// anyway, and the step is looked for.
bool Replay::FindTask(const device::RunPlace& place, const void* where, device::TaskSpot& spot) noexcept {
  const auto& at = *static_cast<const LanePlace*>(where);
  const Plan& plan = *at.replay->plan_;
  const PlanLane& lane = plan.lanes()[at.lane];
  const bool in_call = place.kernel != nullptr;
  const uint32_t task_id = in_call ? place.kernel->task_id : place.task_id;
  const int32_t stream_id = in_call ? place.kernel->stream_id : place.stream_id;
  for (uint32_t i = lane.begin; i != lane.end; ++i) {
    const Step& step = plan.steps()[i];
    if (step.task_id != task_id || plan.stream_id(at.lane, step) != stream_id) continue;
    const bool is_rows = step.kind == Step::kElements || step.kind == Step::kBlocks;
    if (step.kind != Step::kRun && step.kind != Step::kCall && !is_rows) continue;
    const ir::Node node = plan.node(at.lane, step);
    spot = {node.type, node.payload, stream_id, task_id, true, is_rows ? std::max(step.rows.count, 1u) : 1u};
    if (node.type == &ir::kSlotTask || node.type == &ir::kRandomSlotTask) {
      ir::HeldTask* const task = static_cast<const ir::SlotPayload*>(node.payload)->slot->Current();
      spot.type = &task->type();
      spot.payload = task->payload();
    }
    return true;
  }
  return false;
}

// Element-wise tasks: they neither park nor fail, so calling them is all there is to do.
void Replay::RunRows(const Step& step, RunContext& context) {
  if (step.kind == Step::kBlocks) {
    if (failed_.load(std::memory_order_relaxed)) return;
    return RunBlocks(context.scheduler(), plan_->calls_of(step), step.block, step.blocks.is_parallel);
  }
  for (const ElementRun& row : plan_->rows_of(step)) {
    if (failed_.load(std::memory_order_relaxed)) return;
    row.call.function(row.call.args, 0, row.call.count);
  }
}

// One by one, so that each task shows as itself.
void Replay::RunRowsTraced(uint32_t lane, const Step& step, RunContext& context) {
  for (const ElementRun& row : plan_->rows_of(step)) {
    if (failed_.load(std::memory_order_relaxed)) return;
    context.task_id = row.task_id;
    context.stream_id = plan_->stream_id(lane, row);
    const ir::Node& node = plan_->node(row);
    device::WatchedRun<true> watched(context, *node.type, node.payload, watched_.number);
    const uint64_t begin = device::Timeline::Now();
    if (step.kind == Step::kBlocks) {
      RunBlocks(context.scheduler(), {&row, 1}, step.block, step.blocks.is_parallel);
    } else {
      row.call.function(row.call.args, 0, row.call.count);
    }
    device::Timeline::Get().Task(context, *node.type, node.payload, begin, watched_.label, false);
    watched.End(false);
  }
}

// Tasks that run block by block have their time together, and as many elements each. Returns the time now.
uint64_t Replay::RunRowsLearning(const Step& step, RunContext& context, uint64_t begin) {
  const auto place = static_cast<uint32_t>(plan_->steps().size()) + step.rows.first;
  if (step.kind == Step::kBlocks) {
    RunRows(step, context);
    return Learn(place, begin, step.rows.count);
  }
  for (uint32_t i = 0; i < step.rows.count && !failed_.load(std::memory_order_relaxed); ++i) {
    const ir::RangeCall& call = plan_->rows()[step.rows.first + i].call;
    call.function(call.args, 0, call.count);
    begin = Learn(place + i, begin);
  }
  return begin;
}

// A kernel that was called directly has returned that number.
[[gnu::noinline]] void Replay::CallFailed(RunContext& context, uint32_t lane, const Step& step, int32_t code) {
  context.task_id = step.task_id;
  const ir::Node& node = plan_->node(lane, step);
  node.type->direct_failed(context, node.payload, code);
  ReportFailure(context, step, lane);
}

// What RunCalls does, by machine code. Returns the first step behind the run.
[[gnu::noinline]] uint32_t Replay::RunCode(const CallCode::Run& run, uint32_t lane, RunContext& context) {
  if (failed_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return run.end;
  const Steps& steps = plan_->steps();
  context.stream_id = plan_->stream_id(lane, steps[run.begin]);
  const CallCode::Stop stop = plan_->call_code()->Call(run, context.kernel, failed_);
  if (stop.code != 0) [[unlikely]]
    CallFailed(context, lane, steps[stop.step], stop.code);
  context.kernel = nullptr;
  return run.end;
}

// The hot loop of replays: what a kernel needs is in its step, and nothing else is touched. Returns the first step that
// is no call, or is one of another captured lane. A function of its own, so that it has all registers.
template <Replay::Mode kMode>
[[gnu::noinline]] uint32_t Replay::RunCalls(uint32_t lane, uint32_t begin, RunContext& context) {
  const Step* const steps = plan_->steps().data();
  const Step* const end = steps + plan_->lanes()[lane].end;
  const Step* at = steps + begin;
  const std::atomic<uint32_t>& failed = failed_;
  context.stream_id = plan_->stream_id(lane, *at);
  RepriseKernelContext kernel{sizeof(RepriseKernelContext), 0, 1, context.device_id, context.stream_id, 0, nullptr};
  context.kernel = &kernel;
  const uint32_t sort = at->Sort();
  [[maybe_unused]] uint64_t time = 0;
  if constexpr (kMode == Mode::kLearning) time = device::Timeline::Now();
  do {
    if (failed.load(std::memory_order_relaxed)) [[unlikely]]
      continue;
    kernel.task_id = at->task_id;
    kernel.kernel_name = at->name;
    int32_t code;
    if constexpr (kMode == Mode::kTraced) {
      context.task_id = at->task_id;
      const ir::Node& node = plan_->node(lane, *at);
      device::WatchedRun<true> watched(context, *node.type, node.payload, watched_.number);
      const uint64_t begin_time = device::Timeline::Now();
      code = at->call(&kernel, at->data, at->args_bytes);
      device::Timeline::Get().Task(context, *node.type, node.payload, begin_time, watched_.label, code != 0);
      watched.End(code != 0);
    } else {
      code = at->call(&kernel, at->data, at->args_bytes);
    }
    if constexpr (kMode == Mode::kLearning) time = Learn(static_cast<uint32_t>(at - steps), time);
    if (code != 0) [[unlikely]]
      CallFailed(context, lane, *at, code);
  } while (++at != end && at->Sort() == sort);
  context.kernel = nullptr;
  return static_cast<uint32_t>(at - steps);
}

// The tasks at `places` places have ended, which took as long each. Returns the time now.
uint64_t Replay::Learn(uint32_t place, uint64_t begin, uint32_t places) noexcept {
  const uint64_t now = device::Timeline::Now();
  const auto ns = static_cast<uint32_t>(std::clamp<uint64_t>((now - begin) / places, 1, UINT32_MAX));
  for (uint32_t i = place; i != place + places; ++i) costs_[i] = costs_[i] == 0 ? ns : std::min(costs_[i], ns);
  return now;
}

template <Replay::Mode kMode>
RunResult Replay::RunSteps(uint32_t lane, RunContext& context) {
  constexpr bool kTraced = kMode == Mode::kTraced;
  constexpr bool kLearning = kMode == Mode::kLearning;
  LaneState& state = lanes_[lane];
  const PlanLane& planned = plan_->lanes()[lane];
  const Step* const steps = plan_->steps().data();
  context.stream_id = planned.stream_id;
  const bool is_scheduled = plan_->is_scheduled();
  uint32_t cursor = state.cursor;
  [[maybe_unused]] uint64_t last = 0;  // when the step before ended
  if constexpr (kLearning) last = device::Timeline::Now();
  for (; cursor != planned.end; ++cursor) {
    const Step& step = steps[cursor];
    switch (step.kind) {
      case Step::kRun: {
        if (failed_.load(std::memory_order_relaxed)) [[unlikely]] {
          SkipStep(state, step, context.runnable());
          continue;
        }
        context.task_id = step.task_id;
        if (is_scheduled) context.stream_id = plan_->stream_id(lane, step);
        [[maybe_unused]] uint64_t begin = 0;
        device::WatchedRun<kTraced> watched(context, *step.type, step.data, watched_.number);
        if constexpr (kTraced) begin = state.parked_since.BeginOf(cursor, state.parked);
        const RunResult result = step.run(context, step.data);
        if constexpr (kLearning) last = Learn(cursor, last);
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
          device::Timeline::Get().Task(context, *step.type, step.data, begin, watched_.label, context.failed());
        }
        watched.End(context.failed());
        if (context.failed()) [[unlikely]]
          ReportFailure(context, step, lane);
        break;
      }
      case Step::kCall: {
        const CallCode::Run* run = nullptr;
        if constexpr (kMode == Mode::kPlain) run = plan_->FindCode(cursor);
        const uint32_t end = run == nullptr ? RunCalls<kMode>(lane, cursor, context) : RunCode(*run, lane, context);
        if constexpr (kLearning) last = device::Timeline::Now();
        cursor = end - 1;
        break;
      }
      case Step::kElements:
      case Step::kBlocks:
        context.task_id = step.task_id;
        if (is_scheduled) context.stream_id = plan_->stream_id(lane, step);
        if constexpr (kTraced) {
          RunRowsTraced(lane, step, context);
        } else if constexpr (kLearning) {
          last = RunRowsLearning(step, context, last);
        } else {
          RunRows(step, context);
        }
        break;
      case Step::kWait: {
        LaneState& source = lanes_[step.target.lane];
        const auto reached = [&] {
          return source.progress.load(std::memory_order_seq_cst) >= step.target.position || abandoned_.load();
        };
        if (is_serial_) {
          if (!reached()) RunHere(step.target.lane, context);
          if (!reached()) {
            state.cursor = cursor;
            return RunResult::kParked;
          }
        } else if (!reached() && !SpinUntil(reached, context)) {
          // Stored first: the wake-up may come as soon as the runnable is in the list.
          state.cursor = cursor;
          if (device::Inquiry::IsOpen()) [[unlikely]]
            Answer(lane, step);
          if (source.waiters.AddUnless(reached, context.runnable(), &scheduler_)) return RunResult::kParked;
        }
        if constexpr (kLearning) last = device::Timeline::Now();
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
      case Step::kSkip: break;
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
    const Bindings* const outer_bindings = std::exchange(context.bindings, progress.bindings);
    const RunResult result = RunLane(0, context);
    while (is_serial_ && lanes_left_.load(std::memory_order_relaxed) != 0) {
      for (uint32_t i = 1; i < plan_->lanes().size(); ++i) RunHere(i, context);
    }
    context.bindings = outer_bindings;
    context.stream_id = stream_id;
    context.task_id = task_id;
    if (result != RunResult::kDone) return result;
    progress.phase = Progress::kJoining;
  }
  const auto joined = [&] { return lanes_left_.load(std::memory_order_seq_cst) == 0; };
  if (!joined() && !SpinUntil(joined, context) && join_waiters_.AddUnless(joined, context.runnable(), &scheduler_))
    return RunResult::kParked;
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(error_mutex_);
    if (!error_.ok()) context.Fail(std::move(error_));
    error_ = Status();
  } else if (plan_->is_program() && !ended_.load(std::memory_order_acquire)) {
    context.Fail(Error(kModelNotExecutable, "all streams of the model have ended without reaching its end task")
                     .Hint("call aclmdlRIEndTask on the stream that finishes last"));
  }
  if (costs_ != nullptr && !failed_.load(std::memory_order_relaxed) && !device::Timeline::observed()) ++learnt_;
  if (code_choice_.is_open()) [[unlikely]]
    code_choice_.End(failed_.load(std::memory_order_relaxed) != 0);
  if (began_ns_ != 0 && !failed_.load(std::memory_order_relaxed)) {
    lane_choice_.Note(device::Timeline::Now() - began_ns_);
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
