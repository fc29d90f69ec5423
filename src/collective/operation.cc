// SPDX-License-Identifier: Apache-2.0
#include "collective/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "collective/watch.h"
#include "device/spinning.h"
#include "exec/bindings.h"

namespace reprise::collective {
namespace {

using device::RunContext;
using ir::RunResult;

// Others are often only a little behind; longer waits are left to the scheduler. As long as it takes to wake a task of
// another process, by its watcher and a worker: a rank that parks sooner makes the others, which wait for it to wake,
// park as well, again and again.
constexpr auto kSpin = std::chrono::microseconds(150);
// The rank that is waited for may have no core but this one.
constexpr int kLooksPerYield = 16;

enum class Wait : uint8_t { kOver, kParked, kFailed };

// ---- The end of an operator ----

void EndWaiting(RunContext* context, device::Runnable* runnable, Operation& operation) noexcept {
  Board& board = operation.communicator->board();
  if (!operation.is_waiting) return;
  operation.is_waiting = false;
  board.waiters.Remove(runnable);
  board.waiting.fetch_sub(1);
  if (operation.has_timer && context != nullptr) context->scheduler().CancelTimer(*runnable);
  operation.has_timer = false;
}

// Nothing of other machines is written to the program's memory from now on.
void CancelFetches(Operation& operation) noexcept {
  Net* const net = operation.communicator->board().net();
  if (net == nullptr) return;
  if (operation.fetches != nullptr && operation.fetches->total.load() != 0) net->Cancel(*operation.fetches);
  operation.fetches.reset();
  operation.folding = {};
  for (Transfer& transfer : operation.call.transfers) {
    if (transfer.fetches != nullptr) net->Cancel(*transfer.fetches);
    transfer.fetches.reset();
  }
}

void Reset(Operation& operation) noexcept {
  CancelFetches(operation);
  FreeStaged(&operation.staged[0]);
  FreeStaged(&operation.staged[1]);
  for (Transfer& transfer : operation.call.transfers) {
    FreeStaged(&transfer.staged);
    transfer.stage = Transfer::kWaitsForEntry;
    transfer.envelope = nullptr;
    if (!operation.is_by_graph) transfer.number.value = ir::Number::kNone;
  }
  if (operation.is_moving) operation.communicator->moving.fetch_sub(1, std::memory_order_release);
  operation.is_moving = false;
  operation.stage = Operation::kBegin;
  operation.deadline_ns = 0;
  if (!operation.is_by_graph) operation.number.value = ir::Number::kNone;
  operation.envelope = nullptr;
}

void CloseAll(Operation& operation) noexcept {
  Communicator& communicator = *operation.communicator;
  if (operation.stage > Operation::kSlot && operation.call.transfers.empty())
    CloseSlot(operation.SlotOf(communicator.rank()), operation.running);
  CancelFetches(operation);
  for (const Transfer& transfer : operation.call.transfers) {
    if (!transfer.is_send || transfer.stage != Transfer::kPublished) continue;
    CloseSlot(communicator.board().message(communicator.rank(), transfer.peer, transfer.running), transfer.running);
  }
}

int StreamErrorOf(int code) {
  switch (code) {
    case kTimeout: return kCollectiveTimeout;
    case kParameter: return kCollectiveMismatch;
    default: return kCollectivePeerLost;
  }
}

// The operator has failed; `code` is what the communicator keeps.
RunResult FailOperation(RunContext& context, Operation& operation, int code, const std::string& what) {
  Communicator& communicator = *operation.communicator;
  std::string text = what;
  if (TheEnvironment().keeps_history && communicator.error() == 0) {
    text += fmt::format(". Rank {} has called last: {}", communicator.rank(),
                        communicator.history().Tell(communicator.Describe()));
  }
  // Before the buffers go away: who reads them then finds why.
  communicator.Fail(code, what);
  CloseAll(operation);
  EndWaiting(&context, context.runnable(), operation);
  Reset(operation);
  context.Fail(
      Error(StreamErrorOf(code), text)
          .Culprit(communicator.Describe())
          .Hint("look at the messages of the other ranks; then destroy the communicator and make a new one, or "
                "suspend and resume it on all ranks"));
  return RunResult::kDone;
}

// ---- Waits ----

// Why what the operator waits for will not come; the rank that fails it.
struct Lost {
  int code = 0;
  std::string what;
};

// The transfer in a body of a conditional task whose other rank has ended its bodies; null: there is none.
const Transfer* WhoseMessageIsLost(const Operation& operation) {
  for (const Transfer& transfer : operation.call.transfers) {
    if (transfer.envelope == nullptr || transfer.stage == Transfer::kDone || !transfer.envelope->HasPeerLeft())
      continue;
    if (!HasArrived(operation, transfer.peer)) return &transfer;
  }
  return nullptr;
}

bool SomebodyIsOut(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  const Board& board = communicator.board();
  if (board.IsOut(communicator.rank())) return true;
  if (operation.envelope != nullptr && operation.envelope->WhoHasLeft(operation) != board.ranks()) return true;
  if (WhoseMessageIsLost(operation) != nullptr) return true;
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (board.IsOut(rank) && !HasArrived(operation, rank)) return true;
  }
  return false;
}

Lost WhoIsLost(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  const Board& board = communicator.board();
  const std::string here = fmt::format("{} of group {}, seq {}", NameOf(operation.call.op), communicator.name(),
                                       SpokenNumber(operation.running));
  if (communicator.is_destroyed())
    return {kInternal, fmt::format("EI0012: {} was ended: {}", here, board.ReasonOf(communicator.rank()))};
  if (communicator.is_suspended())
    return {kSuspended, fmt::format("EI0012: {} was ended: {}", here, board.ReasonOf(communicator.rank()))};
  if (ConditionEnvelope* const envelope = operation.envelope) {
    if (const uint32_t left = envelope->WhoHasLeft(operation); left != board.ranks()) {
      envelope->Announce();
      return {kParameter, envelope->WhyLeft(operation, left)};
    }
  }
  if (const Transfer* const lost = WhoseMessageIsLost(operation)) return {kParameter, lost->envelope->Refuse()};
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (rank == communicator.rank() || !board.IsOut(rank) || HasArrived(operation, rank)) continue;
    return {kRemote,
            fmt::format("EI0012: {} cannot end on rank {}, {}", here, communicator.rank(), HeartbeatLost(board, rank))};
  }
  if (board.IsOut(communicator.rank()))
    return {kRemote, fmt::format("EI0012: {} cannot run: {}", here, communicator.error_text())};
  return {};
}

// Not while other work of the device waits for a thread: it may be what this waits for, a rank of the same device.
template <class Over>
void SpinUntil(Over over, const device::Scheduler& scheduler) {
  const Clock::time_point until = Clock::now() + kSpin;
  for (int looks = 1; !over(); ++looks) {
    CpuRelax();
    if (looks % kLooksPerYield != 0) continue;
    if (scheduler.has_ready() || Clock::now() >= until) return;
    std::this_thread::yield();
  }
}

template <class Holds>
Wait Await(RunContext& context, Operation& operation, Holds holds, Lost& lost) {
  Board& board = operation.communicator->board();
  const auto over = [&] { return holds() || SomebodyIsOut(operation); };
  if (!over() && !operation.is_waiting) {
    const bool has_permit = device::TakeSpinPermit();
    if (has_permit || board.IsCrowded()) SpinUntil(over, context.scheduler());
    if (has_permit) device::ReturnSpinPermit();
  }
  if (!over()) {
    if (!operation.is_waiting) {
      operation.is_waiting = true;
      board.waiting.fetch_add(1);
      if (board.is_shared()) CallWatcher();
      if (Net* const net = board.net()) net->Call();
    }
    const auto now = Clock::now().time_since_epoch();
    const bool is_late = operation.deadline_ns != 0 && std::chrono::nanoseconds(now).count() >= operation.deadline_ns;
    if (is_late) {
      lost = {
          kTimeout,
          fmt::format("EI0002: Communication_Error_Timeout: {} of group {}, seq {}, on rank {} has waited {:g} s: {}{}",
                      NameOf(operation.call.op), operation.communicator->name(), SpokenNumber(operation.running),
                      operation.communicator->rank(), operation.communicator->settings().exec_timeout_s,
                      WhoIsMissing(operation), WhoWaitsElsewhere(operation))};
      return Wait::kFailed;
    }
    const auto armed = [&] {
      board.Arm();
      return over();
    };
    if (board.waiters.AddUnless(armed, context.runnable(), &context.scheduler())) {
      if (operation.deadline_ns != 0 && !operation.has_timer) {
        operation.has_timer = true;
        context.scheduler().WakeAt(*context.runnable(),
                                   Clock::time_point(std::chrono::nanoseconds(operation.deadline_ns)));
      }
      return Wait::kParked;
    }
  }
  EndWaiting(&context, context.runnable(), operation);
  if (holds()) return Wait::kOver;
  lost = WhoIsLost(operation);
  if (lost.code == 0) return Await(context, operation, holds, lost);  // it came after all
  return Wait::kFailed;
}

// ---- Run ----

uint64_t NumberOf(const RunContext& context, const ir::Number& number) {
  if (number.binding < 0 || context.bindings == nullptr) return number.value;
  return context.bindings->series[static_cast<size_t>(number.binding)] + number.value;
}

template <class Get>
bool All(const Board& board, Get get) {
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (!get(rank)) return false;
  }
  return true;
}

// The wait of a stage: for each rank, what it has to have reached.
bool StageHolds(const Operation& operation) {
  return All(operation.communicator->board(), [&](uint32_t rank) { return HasArrived(operation, rank); });
}

// The key of a run, and the envelope that it is in.
void FindKey(const RunContext& context, Operation& operation) {
  operation.running = {};
  if (!operation.call.transfers.empty()) return;
  const uint64_t number = NumberOf(context, operation.number);
  if (context.bindings == nullptr || context.bindings->envelopes.empty() || operation.number.binding < 0) {
    operation.running = number;
    return;
  }
  ir::Envelope* const envelope = context.bindings->envelopes[static_cast<size_t>(operation.number.binding)];
  operation.envelope = static_cast<ConditionEnvelope*>(envelope);
  operation.running = {operation.envelope->number(), number + 1};
}

void Begin(RunContext& context, Operation& operation) {
  Communicator& communicator = *operation.communicator;
  FindKey(context, operation);
  operation.descriptor.branch = context.bindings != nullptr ? context.bindings->branch : 0;
  operation.is_by_graph = context.bindings != nullptr &&
                          (operation.number.binding >= 0 ||
                           (!operation.call.transfers.empty() && operation.call.transfers[0].number.binding >= 0));
  for (Transfer& transfer : operation.call.transfers) {
    const uint64_t number = NumberOf(context, transfer.number);
    transfer.running = number;
    transfer.branch = operation.descriptor.branch;
    if (context.bindings == nullptr || context.bindings->envelopes.empty() || transfer.number.binding < 0) continue;
    ir::Envelope* const envelope = context.bindings->envelopes[static_cast<size_t>(transfer.number.binding)];
    transfer.envelope = static_cast<PairEnvelope*>(envelope);
    transfer.running = {transfer.envelope->number(), number + 1};
  }
  SetDeadline(operation);
  operation.stage = Operation::kSlot;
  const Environment& environment = TheEnvironment();
  if (environment.compares_graphs) operation.descriptor.graph_hash = operation.is_by_graph ? operation.number.graph : 0;
  if (environment.keeps_history) {
    communicator.history().Add(operation.descriptor, operation.running, operation.is_by_graph);
  }
}

// This rank has come to a stage: for others.
void Tell(Operation& operation, std::atomic<uint64_t>& word, wire::MarkKind mark) {
  const Communicator& communicator = *operation.communicator;
  word.store(operation.running.mark(), std::memory_order_seq_cst);
  if (Net* const net = communicator.board().net()) net->TellMark(communicator.rank(), operation.running, mark);
}

// The first step is over.
void EndFirstStep(Operation& operation, Slot& own) {
  EndArrived(operation);
  const bool has_second = HasSecondStep(operation);
  Tell(operation, has_second ? own.reduced : own.finished, has_second ? wire::kReduced : wire::kFinished);
  operation.stage = has_second ? Operation::kGather : Operation::kFinish;
}

// What the rank does when all have come to its stage; the stage is another one then.
Status Step(RunContext& context, Operation& operation, Slot& own) {
  switch (operation.stage) {
    case Operation::kSlot:
      REPRISE_RETURN_IF_ERROR(PublishAndTell(operation));
      operation.stage = Operation::kArrive;
      return {};
    case Operation::kArrive:
      operation.is_moving = true;
      operation.communicator->moving.fetch_add(1, std::memory_order_relaxed);
      REPRISE_RETURN_IF_ERROR(MoveArrived(context, operation));
      operation.stage = Operation::kFetch;
      if (operation.fetches == nullptr) EndFirstStep(operation, own);
      return {};
    case Operation::kFetch:
      REPRISE_RETURN_IF_ERROR(GoOnFolding(context, operation));
      if (operation.folding.count == 0) EndFirstStep(operation, own);
      return {};
    case Operation::kGather:
      REPRISE_RETURN_IF_ERROR(MoveReduced(context, operation));
      operation.stage = Operation::kParts;
      return {};
    case Operation::kParts:
      Tell(operation, own.finished, wire::kFinished);
      operation.stage = Operation::kFinish;
      return {};
    case Operation::kBegin:
    case Operation::kFinish: break;
  }
  return {};
}

RunResult EndCollective(Operation& operation, Slot& own) {
  Communicator& communicator = *operation.communicator;
  HoldSpinningIfCrowded(communicator.board());
  if (operation.running.inner == 0)
    communicator.board().rank(communicator.rank()).done.store(operation.running.mark(), std::memory_order_relaxed);
  if (communicator.board().net() != nullptr) CloseSlot(own, operation.running);
  Reset(operation);
  return RunResult::kDone;
}

// Nothing can run on the communicator as it is.
void RefuseRun(RunContext& context, Operation& operation, const Status& usable) {
  const Communicator& communicator = *operation.communicator;
  const bool is_own = communicator.is_suspended() || communicator.is_destroyed();
  Reset(operation);
  context.Fail(Error(is_own ? kCollectivePeerLost : StreamErrorOf(communicator.error()),
                     fmt::format("EI0012: {} did not run: {}", NameOf(operation.call.op), usable.detail().what))
                   .Culprit(communicator.Describe())
                   .Hint(std::string(usable.detail().hint)));
}

}  // namespace

void SetDeadline(Operation& operation) {
  const double seconds = operation.communicator->settings().exec_timeout_s;
  if (seconds > 0)
    operation.deadline_ns = Clock::now().time_since_epoch().count() + static_cast<int64_t>(seconds * 1e9);
}

Status PublishAndTell(Operation& operation) {
  Communicator& communicator = *operation.communicator;
  Board& board = communicator.board();
  if (operation.running.inner == 0)
    board.rank(communicator.rank()).begun.store(operation.running.mark(), std::memory_order_relaxed);
  REPRISE_RETURN_IF_ERROR(Publish(operation));
  operation.SlotOf(communicator.rank()).published.store(operation.running.mark(), std::memory_order_seq_cst);
  if (Net* const net = board.net()) net->TellPublished(communicator.rank(), operation.running);
  return {};
}

RunResult RunToSlot(RunContext& context, Operation& operation) {
  if (operation.stage == Operation::kBegin) {
    if (Status usable = operation.communicator->CheckUsable(); !usable.ok()) {
      RefuseRun(context, operation, usable);
      return RunResult::kDone;
    }
    SetDeadline(operation);
    operation.stage = Operation::kSlot;
  }
  Lost lost;
  const bool is_message = !operation.call.transfers.empty();
  switch (Await(
      context, operation, [&] { return is_message ? CanGoOn(operation) : StageHolds(operation); }, lost)) {
    case Wait::kParked: return RunResult::kParked;
    case Wait::kFailed: return FailOperation(context, operation, lost.code, lost.what);
    case Wait::kOver: break;
  }
  return RunResult::kDone;
}

RunResult RunCollective(RunContext& context, Operation& operation) {
  Communicator& communicator = *operation.communicator;
  Board& board = communicator.board();
  Slot& own = operation.SlotOf(communicator.rank());
  Lost lost;
  for (;;) {
    switch (Await(
        context, operation, [&] { return StageHolds(operation); }, lost)) {
      case Wait::kParked: return RunResult::kParked;
      case Wait::kFailed: return FailOperation(context, operation, lost.code, lost.what);
      case Wait::kOver: break;
    }
    if (operation.stage == Operation::kFinish) return EndCollective(operation, own);
    if (operation.stage == Operation::kArrive) {
      if (std::string why = WhyDisagree(operation); !why.empty()) {
        REPRISE_LOG(kError, "HCCL", "TaskExecStage ParameterConflict: CMD information check fail: {}", why);
        return FailOperation(context, operation, kParameter, why);
      }
    }
    if (Status status = Step(context, operation, own); !status.ok())
      return FailOperation(context, operation, status.code(), status.detail().what);
    if (StageHolds(operation)) board.Ring();
    if (operation.stage == Operation::kFinish && !IsExposed(operation)) return EndCollective(operation, own);
  }
}

void CancelRun(Operation& operation, device::Runnable* runnable, bool was_waiting) noexcept {
  Communicator& communicator = *operation.communicator;
  if (operation.stage == Operation::kBegin) return;
  EndWaiting(nullptr, runnable, operation);  // first: what follows wakes all who wait, and this one is going away
  if (was_waiting && !communicator.is_destroyed()) {
    communicator.Fail(kInternal, fmt::format("rank {} has aborted {} of group {}", communicator.rank(),
                                             NameOf(operation.call.op), communicator.name()));
  }
  CloseAll(operation);
  Reset(operation);
}

RunResult RunPointToPoint(RunContext& context, Operation& operation) {
  for (;;) {
    StatusOr<bool> done = RunTransfers(context, operation);
    if (!done.ok()) {
      const Status status = std::move(done).status();
      return FailOperation(context, operation, status.code(), status.detail().what);
    }
    if (*done) {
      EndWaiting(&context, context.runnable(), operation);
      Reset(operation);
      return RunResult::kDone;
    }
    Lost lost;
    switch (Await(
        context, operation, [&] { return CanGoOn(operation); }, lost)) {
      case Wait::kParked: return RunResult::kParked;
      case Wait::kFailed: return FailOperation(context, operation, lost.code, lost.what);
      case Wait::kOver: break;
    }
  }
}

RunResult RunOperation(RunContext& context, Operation& operation) {
  Communicator& communicator = *operation.communicator;
  if (operation.stage == Operation::kBegin) {
    if (Status usable = communicator.CheckUsable(); !usable.ok()) {
      RefuseRun(context, operation, usable);
      return RunResult::kDone;
    }
    Begin(context, operation);
  }
  return operation.call.transfers.empty() ? RunCollective(context, operation) : RunPointToPoint(context, operation);
}

}  // namespace reprise::collective
