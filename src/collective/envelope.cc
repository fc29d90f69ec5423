// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks with operators in their bodies, as ranks see them of each other.
#include <fmt/format.h>

#include "collective/operation.h"
#include "device/inquiry.h"

namespace reprise::collective {

using ir::RunResult;

std::unique_ptr<ir::Envelope> Counter::MakeEnvelope() {
  if (of_ == Of::kOperators) return std::make_unique<ConditionEnvelope>(owner_);
  return std::make_unique<PairEnvelope>(owner_, of_ == Of::kSends, peer_);
}

ConditionEnvelope::ConditionEnvelope(Communicator& communicator) {
  own_.communicator = &communicator;
  communicator.Retain();
  own_.call.op = Operator::kCondition;
  own_.is_by_graph = true;
  own_.descriptor.op = static_cast<uint8_t>(Operator::kCondition);
  own_.descriptor.rank = communicator.rank();
}

RunResult ConditionEnvelope::Open(device::RunContext& context, uint64_t number, uint64_t graph) {
  if (own_.stage == Operation::kBegin) {
    own_.running = number;
    if (TheEnvironment().compares_graphs) own_.descriptor.graph_hash = graph;
    taken_.store(0, std::memory_order_relaxed);
    hash_.store(0, std::memory_order_relaxed);
    is_announced_.store(false, std::memory_order_relaxed);
  }
  const RunResult result = RunToSlot(context, own_);
  if (result == RunResult::kDone && own_.stage == Operation::kSlot) {
    const Communicator& communicator = *own_.communicator;
    own_.SlotOf(communicator.rank()).descriptor = own_.descriptor;
    communicator.board().rank(communicator.rank()).begun.store(number + 1, std::memory_order_relaxed);
  }
  return result;
}

uint64_t ConditionEnvelope::Take(uint64_t count, uint64_t branch) noexcept {
  hash_.store(Mix(hash_.load(std::memory_order_relaxed), branch), std::memory_order_relaxed);
  return taken_.fetch_add(count, std::memory_order_relaxed);
}

void ConditionEnvelope::Announce() noexcept {
  if (is_announced_.exchange(true, std::memory_order_acq_rel)) return;
  own_.descriptor.count = taken_.load(std::memory_order_relaxed);
  own_.descriptor.vectors_hash = hash_.load(std::memory_order_relaxed);
  (void)PublishAndTell(own_);  // it has no buffer, which is all that can fail
  own_.communicator->board().Ring();
}

RunResult ConditionEnvelope::Close(device::RunContext& context) {
  if (own_.stage == Operation::kSlot) {
    SetDeadline(own_);
    own_.stage = Operation::kArrive;
  }
  return RunCollective(context, own_);
}

void ConditionEnvelope::Abandon(device::Runnable* runnable) noexcept { CancelRun(own_, runnable, runnable != nullptr); }

std::string ConditionEnvelope::WaitsFor() const {
  if (!own_.is_waiting) return {};
  return fmt::format("{}, seq {}: {}", own_.communicator->Describe(), SpokenNumber(own_.running), WhoIsMissing(own_));
}

// What a rank shows of the conditional task is the last of it.
uint32_t ConditionEnvelope::WhoHasLeft(const Operation& operation) const {
  const Communicator& communicator = *own_.communicator;
  const Board& board = communicator.board();
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (rank == communicator.rank()) continue;
    const Slot& slot = board.slot(rank, own_.running);
    if (slot.Has(slot.published, own_.running) && !HasArrived(operation, rank)) return rank;
  }
  return board.ranks();
}

std::string ConditionEnvelope::WhyLeft(const Operation& operation, uint32_t rank) const {
  const Communicator& communicator = *own_.communicator;
  const Descriptor& shown = communicator.board().slot(rank, own_.running).descriptor;
  return fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, seq {}, a "
      "condition, and so what was run in a conditional task, differs: rank {} has come to {}; against rank {}: {}",
      communicator.name(), SpokenNumber(operation.running), communicator.rank(), DescribeCall(operation.descriptor),
      rank, DescribeCall(shown));
}

// ---- Messages of a pair ----

PairEnvelope::PairEnvelope(Communicator& communicator, bool is_send, uint32_t peer) {
  operation_.communicator = &communicator;
  communicator.Retain();
  operation_.call.op = Operator::kCondition;
  operation_.is_by_graph = true;
  operation_.call.transfers.resize(1);
  own().is_envelope = true;
  own().is_send = is_send;
  own().peer = peer;
}

Slot& PairEnvelope::entry() const {
  const Communicator& communicator = *operation_.communicator;
  const uint32_t rank = communicator.rank();
  return own().is_send ? communicator.board().message(rank, own().peer, own().running)
                       : communicator.board().message(own().peer, rank, own().running);
}

// A receiver has nothing to wait for.
RunResult PairEnvelope::Open(device::RunContext& context, uint64_t number, uint64_t) {
  if (operation_.stage == Operation::kBegin) {
    own().running = number;
    taken_.store(0, std::memory_order_relaxed);
    hash_.store(0, std::memory_order_relaxed);
    is_announced_.store(false, std::memory_order_relaxed);
    if (!own().is_send && operation_.communicator->CheckUsable().ok()) {
      operation_.stage = Operation::kSlot;
      return RunResult::kDone;
    }
  }
  return RunToSlot(context, operation_);
}

uint64_t PairEnvelope::Take(uint64_t count, uint64_t branch) noexcept {
  hash_.store(Mix(hash_.load(std::memory_order_relaxed), branch), std::memory_order_relaxed);
  return taken_.fetch_add(count, std::memory_order_relaxed);
}

void PairEnvelope::Announce() noexcept {
  if (is_announced_.exchange(true, std::memory_order_acq_rel)) return;
  own().count = taken_.load(std::memory_order_relaxed);
  own().hash = hash_.load(std::memory_order_relaxed);
  if (own().is_send) {
    (void)Show(*operation_.communicator, own());  // it has no buffer, which is all that can fail
  } else {
    Answer(*operation_.communicator, own(), entry().reduced, wire::kReduced);
  }
}

RunResult PairEnvelope::Close(device::RunContext& context) {
  if (!operation_.is_waiting) SetDeadline(operation_);
  return RunPointToPoint(context, operation_);
}

void PairEnvelope::Abandon(device::Runnable* runnable) noexcept {
  CancelRun(operation_, runnable, runnable != nullptr);
}

std::string PairEnvelope::WaitsFor() const {
  if (!operation_.is_waiting) return {};
  return fmt::format("{}, message {} {} rank {}: {}", operation_.communicator->Describe(), SpokenNumber(own().running),
                     own().is_send ? "to" : "from", own().peer, WhoIsMissing(operation_));
}

bool PairEnvelope::HasPeerLeft() const {
  const Slot& shown = entry();
  return shown.Has(own().is_send ? shown.reduced : shown.published, own().running);
}

std::string PairEnvelope::Refuse() noexcept {
  Communicator& communicator = *operation_.communicator;
  std::string why = fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, message {} {} rank "
      "{}, a condition, and so what was run in a conditional task, differs: rank {} has come to a {} more than rank {}",
      communicator.name(), SpokenNumber(own().running), own().is_send ? "to" : "from", own().peer, communicator.rank(),
      own().is_send ? "send" : "receive", own().peer);
  Announce();
  if (!own().is_send) {
    communicator.Fail(kParameter, why);  // the sender reads it
    Answer(communicator, own(), entry().refused, wire::kRefused);
  }
  return why;
}

}  // namespace reprise::collective
