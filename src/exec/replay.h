// SPDX-License-Identifier: Apache-2.0
//
// Replay: runs a plan again and again. Executions of one plan run one after another, in the order in which they were
// submitted. Between the launch and the end of a single-lane replay nothing is allocated and no lock is waited for: the
// one that Finish takes is shared only with Cancel.
//
// The origin lane runs inside the stream that executes the graph; every other lane is a Runnable of the same scheduler.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/scheduler.h"
#include "device/timeline.h"
#include "exec/bindings.h"
#include "exec/code_choice.h"
#include "exec/fuse.h"
#include "exec/keeper.h"
#include "exec/lane_choice.h"
#include "exec/plan.h"

namespace reprise::exec {

/// Threads: Submit, Cancel and Run of different executions may be called concurrently.
class Replay {
 public:
  Replay(std::unique_ptr<Plan> plan, device::Scheduler& scheduler);
  /// Compiles the graph, which must outlive the replay. Tasks that never wait are laid out on as many lanes as there
  /// are workers, at first as if each took as long as the others; their times are measured in the first executions, and
  /// then they are laid out once more (not with REPRISE_LEARN=0).
  /// `log`, which may be null, learns what became of element-wise tasks.
  Replay(const ir::Graph& graph, device::Scheduler& scheduler, FusionLog* log = nullptr);
  ~Replay();

  /// Must not be called while an execution may begin, because the plan is replaced once.
  const Plan& plan() const { return *plan_; }
  size_t memory_bytes() const { return memory_bytes_.load(std::memory_order_relaxed); }

  /// See Plan::Patch; while no execution is pending.
  bool Patch(std::span<const ir::NodeId> changed) {
    if (keeper_ != nullptr) keeper_->Change(*plan_, changed);
    code_choice_.Reopen();
    return plan_->Patch(changed);
  }
  /// These tasks have got new arguments where the old ones were.
  void NoteNewArguments(std::span<const ir::NodeId> changed) {
    if (keeper_ != nullptr) keeper_->Change(*plan_, changed);
  }

  /// Whom executions ask before they begin; outlives the replay. While no execution is pending.
  void SetKeeper(Keeper* keeper) { keeper_ = keeper; }

  /// Whom executions with bindings ask first; outlives the replay. Before the first execution.
  void SetBinder(Binder& binder) { binder_ = &binder; }

  /// Takes the next place in the order of executions.
  uint64_t Submit() { return next_ticket_.fetch_add(1, std::memory_order_acq_rel); }
  /// For tests: as if the lanes had been too slow so far.
  void SetLaneChoice(LaneChoice choice) { lane_choice_ = choice; }
  /// Gives up the place of an execution that will never run.
  void Cancel(uint64_t ticket) noexcept;

  /// How timelines and task watches name the execution.
  struct Watched {
    uint32_t label = 0;   ///< name of the graph in a timeline; see device::Timeline::Intern
    uint32_t number = 0;  ///< of device::TaskWatch::BeginGraph

    bool operator==(const Watched&) const = default;
  };
  /// Progress of one execution; lives in the task that runs it.
  struct Progress {
    uint64_t ticket;
    const Bindings* bindings = nullptr;  ///< of the launch; null: it bound nothing
    enum Phase : uint8_t { kQueued, kRunning, kJoining } phase = kQueued;
    Watched watched = {};
  };

  /// Runs as far as possible; call again when the runnable is woken. A failure of any task is reported through
  /// `context`, once, when the execution ends.
  ir::RunResult Run(device::RunContext& context, Progress& progress);

  /// The runnable goes away while its execution waits for its turn or for lanes. Blocks until no lane runs.
  void Abandon(Progress& progress, device::Runnable* runnable) noexcept;

  /// Ends a running execution with the error; false when none runs.
  bool Abort(Status error) noexcept;

  /// Cells that get a value at the start of each execution, before anything else.
  struct CellReset {
    uint64_t* cell;
    uint64_t value;
  };
  void SetPrologue(std::vector<CellReset> resets) { prologue_ = std::move(resets); }

  bool running() const { return running_.load(std::memory_order_acquire); }

 private:
  class LaneRunner;
  struct LaneState {
    alignas(64) std::atomic<uint32_t> progress{0};
    device::WaitList waiters;
    uint32_t cursor = 0;
    bool parked = false;                 // the step at the cursor has begun
    device::ParkedSince parked_since;    // while a timeline is recorded
    std::unique_ptr<LaneRunner> runner;  // null for the origin
    // Lanes of built models may be started again, even before they have quite ended.
    SpinLock start_lock;
    bool active = false;
    bool start_pending = false;
    uint32_t pending_cursor = 0;
    bool is_here = false;  // the one thread of a serial execution is in it
  };

  enum class Mode { kPlain, kTraced, kLearning };

  void MakeLanes(uint32_t count);
  void Start(device::RunContext& context, Progress& progress);
  void BindMemory(const Bindings& bindings) noexcept;
  struct LanePlace {
    const Replay* replay;
    uint32_t lane;
  };
  ir::RunResult RunLane(uint32_t lane, device::RunContext& context) {
    const ir::SlotUse use(plan_->lanes()[lane].slot_users);
    const LanePlace at{this, lane};
    const device::FindTaskScope find(context, FindTask, &at);
    if (device::Timeline::observed()) [[unlikely]]
      return RunSteps<Mode::kTraced>(lane, context);
    if (costs_ != nullptr) [[unlikely]]
      return RunSteps<Mode::kLearning>(lane, context);
    return RunSteps<Mode::kPlain>(lane, context);
  }
  template <Mode kMode>
  ir::RunResult RunSteps(uint32_t lane, device::RunContext& context);
  void RunRows(const Step& step, device::RunContext& context);
  void RunRowsTraced(uint32_t lane, const Step& step, device::RunContext& context);
  uint64_t RunRowsLearning(const Step& step, device::RunContext& context, uint64_t begin);
  void StartLane(uint32_t lane, uint32_t cursor) noexcept;
  bool EndLane(uint32_t lane) noexcept;
  void StopAll() noexcept;
  template <Mode kMode>
  uint32_t RunCalls(uint32_t lane, uint32_t begin, device::RunContext& context);
  uint32_t RunCode(const CallCode::Run& run, uint32_t lane, device::RunContext& context);
  void CallFailed(device::RunContext& context, uint32_t lane, const Step& step, int32_t code);
  uint64_t Learn(uint32_t place, uint64_t begin, uint32_t places = 1) noexcept;
  std::vector<uint32_t> LearntCosts(const ir::Dag& dag, const uint32_t* measured) const;
  template <class Reached>
  bool SpinUntil(Reached reached, device::RunContext& context) noexcept;
  void RunHere(uint32_t lane, device::RunContext& context);
  void LayOutAgain() noexcept;
  void SkipStep(LaneState& state, const Step& step, device::Runnable* runnable);
  void Finish(uint64_t ticket) noexcept;
  void Advance() noexcept;
  void Answer(uint32_t lane, const Step& step) const;
  void ReportFailure(device::RunContext& context, const Step& step, uint32_t lane);
  static bool FindTask(const device::RunPlace& place, const void* where, device::TaskSpot& spot) noexcept;

  std::unique_ptr<Plan> plan_;
  device::Scheduler& scheduler_;
  const ir::Graph* graph_ = nullptr;  // null when the plan came from outside
  std::atomic<size_t> memory_bytes_{0};
  std::unique_ptr<LaneState[]> lanes_;
  uint32_t lane_capacity_ = 0;  // a plan that is laid out again may have more lanes
  bool rouses_ = true;          // lanes are worth a system call that wakes a worker

  // The least time of each step, and behind them of each row, in the executions so far; null once the plan is final.
  std::unique_ptr<uint32_t[]> costs_;
  int learnt_ = 0;  // executions
  CodeChoice code_choice_;

  // Launching threads write this member, running threads write those below: they must not share a cache line.
  alignas(64) std::atomic<uint64_t> next_ticket_{0};
  alignas(64) std::atomic<uint64_t> turn_{0};
  device::WaitList turn_waiters_;
  std::mutex cancelled_mutex_;
  std::set<uint64_t> cancelled_;
  std::atomic<bool> any_cancelled_{false};

  // Written in each execution. The lane that ends last wakes the graph task, which waits in join_waiters_.
  alignas(64) std::atomic<bool> running_{false};
  std::atomic<uint32_t> lanes_left_{0};
  device::WaitList join_waiters_;
  LaneChoice lane_choice_;
  uint64_t began_ns_ = 0;  // the execution, if it is timed for lane_choice_

  // Read by all lanes, so written only where it changes.
  alignas(64) const Bindings* bindings_ = nullptr;
  const device::Runnable* whole_ = nullptr;  // the stream that executes the graph
  int32_t device_id_ = 0;
  Watched watched_;
  bool is_serial_ = false;              // the execution: all lanes run on the thread of the first one
  std::atomic<bool> ended_{false};      // a program has reached its end task
  std::atomic<uint32_t> failed_{0};     // CallCode::kFailed: later tasks of this execution are skipped
  std::atomic<bool> abandoned_{false};  // as failed_, and lanes do not wait for each other
  std::vector<CellReset> prologue_;
  Binder* binder_ = nullptr;
  std::vector<ir::NodeId> moved_;  // by the binder, in this execution
  Keeper* keeper_ = nullptr;
  bool is_plan_new_ = true;  // to the keeper
  std::mutex error_mutex_;
  Status error_;
};

}  // namespace reprise::exec
