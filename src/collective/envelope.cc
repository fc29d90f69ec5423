// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks with operators in their bodies, as ranks see them of each other.
#include <fmt/format.h>

#include "collective/operation.h"
#include "device/inquiry.h"

namespace reprise::collective {

using ir::RunResult;

std::unique_ptr<ir::Envelope> Counter::MakeEnvelope() { return std::make_unique<ConditionEnvelope>(owner_); }

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

}  // namespace reprise::collective
