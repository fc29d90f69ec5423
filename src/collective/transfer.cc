// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives. The messages of one rank to another are numbered; each has an entry of the pair's ring. The
// sender writes data or their place, the receiver takes them. Small messages lie in the entry, so that their sender
// need not wait.
#include <fmt/format.h>

#include <cstring>

#include "collective/operation.h"
#include "runtime/tasks.h"

namespace reprise::collective {
namespace {

Slot& EntryOf(const Communicator& communicator, const Transfer& transfer) {
  return transfer.is_send ? communicator.board().message(communicator.rank(), transfer.peer, transfer.running)
                          : communicator.board().message(transfer.peer, communicator.rank(), transfer.running);
}

std::string Differ(const Communicator& communicator, uint32_t from, uint32_t to, const SlotKey& number,
                   const Descriptor& sent, uint64_t count, int type) {
  return fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, message {} from "
      "rank "
      "{} to rank {}, {} differs: rank {} sends {} {}; rank {} receives {} {}",
      communicator.name(), SpokenNumber(number), from, to, sent.count != count ? "count" : "dataType", from, sent.count,
      NameOfType(sent.type), to, count, NameOfType(type));
}

// One step of a send. True when something has happened.
StatusOr<bool> Send(Communicator& communicator, Transfer& transfer) {
  const Board& board = communicator.board();
  Slot& entry = EntryOf(communicator, transfer);
  if (transfer.stage == Transfer::kWaitsForEntry) {
    if (!IsFree(board, transfer, entry)) return false;
    REPRISE_RETURN_IF_ERROR(Show(communicator, transfer));
    return true;
  }
  if (entry.Has(entry.refused, transfer.running)) {
    if (transfer.is_envelope) return Error(kParameter, board.ReasonOf(transfer.peer));
    return Error(kParameter,
                 fmt::format("EI0005: The arguments for collective communication are inconsistent between "
                             "ranks: group {}, message {}: rank {} sends {} {} to rank {}, which receives "
                             "something else: {}",
                             communicator.name(), SpokenNumber(transfer.running), communicator.rank(), transfer.count,
                             NameOfType(transfer.type), transfer.peer, board.ReasonOf(transfer.peer)));
  }
  if (!entry.Has(entry.finished, transfer.running)) return false;
  if (board.IsRemote(transfer.peer)) CloseSlot(entry, transfer.running);
  FreeStaged(&transfer.staged);
  transfer.stage = Transfer::kDone;
  return true;
}

// Asks for a message that another machine shows.
void FetchMessage(Communicator& communicator, Transfer& transfer) {
  transfer.fetches = std::make_shared<Fetches>(communicator.ranks());
  transfer.stage = Transfer::kFetching;
  communicator.board().net()->Fetch(
      {transfer.peer, communicator.rank(), wire::kFromMessage, transfer.running, 0, transfer.bytes(), transfer.buffer},
      *transfer.fetches);
}

// Copies a message. False: it is on its way.
StatusOr<bool> CopyMessage(device::RunContext& context, Communicator& communicator, Transfer& transfer, Slot& entry) {
  if (transfer.bytes() == 0 || transfer.stage == Transfer::kFetching) return true;
  const std::byte* from = entry.data();
  if (entry.is_inline != 0) {
    if (entry.inline_used < transfer.bytes())
      return Error(kTransfer, fmt::format("EI0013: rank {} has sent less than it says", transfer.peer));
  } else if (communicator.board().IsRemote(transfer.peer)) {
    FetchMessage(communicator, transfer);
    return transfer.fetches->total.load() == 0;
  } else {
    StatusOr<std::byte*> at = communicator.Reach(transfer.peer, entry.send);
    if (!at.ok()) return CannotReach(communicator, transfer.peer, std::move(at).status());
    from = *at;
  }
  if (from != transfer.buffer) runtime::CopyBytes(context, transfer.buffer, from, transfer.bytes());
  return true;
}

// Whether a message is what the receive expects.
bool Agrees(const Descriptor& sent, const Transfer& transfer) {
  const Operator op = transfer.is_envelope ? Operator::kCondition : Operator::kSend;
  return sent.op == static_cast<uint8_t>(op) && sent.count == transfer.count && sent.type == transfer.type &&
         sent.vectors_hash == transfer.hash && sent.branch == transfer.branch;
}
bool DiffersByCondition(const Descriptor& sent, const Transfer& transfer) {
  return transfer.is_envelope || sent.op != static_cast<uint8_t>(Operator::kSend) || sent.branch != transfer.branch;
}
std::string WhyConditionsDiffer(const Communicator& communicator, const Descriptor& sent, const Transfer& transfer) {
  const auto say = [](bool is_condition, uint64_t count, const char* what) {
    return is_condition ? fmt::format("a conditional task whose bodies had {} {}s", count, what)
                        : fmt::format("one {} of {} elements", what, count);
  };
  return fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, message {} from "
      "rank {} to rank {}, a condition, and so what was run in a conditional task, differs: rank {} has {}; rank {} "
      "has "
      "{}",
      communicator.name(), SpokenNumber(transfer.running), transfer.peer, communicator.rank(), transfer.peer,
      say(sent.op == static_cast<uint8_t>(Operator::kCondition), sent.count, "send"), communicator.rank(),
      say(transfer.is_envelope, transfer.count, "receive"));
}

StatusOr<bool> Receive(device::RunContext& context, Communicator& communicator, Transfer& transfer) {
  Slot& entry = EntryOf(communicator, transfer);
  if (!entry.Has(entry.published, transfer.running)) return false;
  if (transfer.stage == Transfer::kFetching && transfer.fetches->total.load() != 0) return false;
  const Reading reading(communicator, transfer.peer, entry, transfer.running);
  if (!reading.is_open() && !transfer.is_envelope)  // that one has no buffer
    return Error(kRemote, fmt::format("EI0012: {}", HeartbeatLost(communicator.board(), transfer.peer)));
  if (!Agrees(entry.descriptor, transfer)) {
    std::string why = DiffersByCondition(entry.descriptor, transfer)
                          ? WhyConditionsDiffer(communicator, entry.descriptor, transfer)
                          : Differ(communicator, transfer.peer, communicator.rank(), transfer.running, entry.descriptor,
                                   transfer.count, transfer.type);
    communicator.Fail(kParameter, why);
    Answer(communicator, transfer, entry.refused, wire::kRefused);
    if (transfer.envelope != nullptr) (void)transfer.envelope->Refuse();
    return Error(kParameter, std::move(why));
  }
  REPRISE_ASSIGN_OR_RETURN(const bool is_there, CopyMessage(context, communicator, transfer, entry));
  if (!is_there) return false;
  Answer(communicator, transfer, entry.finished, wire::kFinished);
  transfer.stage = Transfer::kDone;
  return true;
}

}  // namespace

bool IsFree(const Board& board, const Transfer& transfer, const Slot& entry) {
  const SlotKey& key = transfer.running;
  const uint64_t ring = board.message_ring_of(key);
  return key.place() < ring || entry.Has(entry.finished, key.Before(ring));
}

Status Show(Communicator& communicator, Transfer& transfer) {
  Board& board = communicator.board();
  Slot& entry = EntryOf(communicator, transfer);
  transfer.is_inline = transfer.bytes() <= board.message_inline_bytes();
  entry.Adopt(transfer.running);
  entry.descriptor = {};
  entry.descriptor.op = static_cast<uint8_t>(transfer.is_envelope ? Operator::kCondition : Operator::kSend);
  entry.descriptor.type = transfer.type;
  entry.descriptor.count = transfer.count;
  entry.descriptor.vectors_hash = transfer.hash;
  entry.descriptor.branch = transfer.branch;
  entry.descriptor.number = transfer.running.number;
  entry.descriptor.rank = communicator.rank();
  entry.descriptor.root = transfer.peer;
  entry.is_inline = transfer.is_inline ? 1 : 0;
  entry.send = {};
  if (transfer.is_inline) {
    if (transfer.bytes() != 0) std::memcpy(entry.data(), transfer.buffer, transfer.bytes());
  } else {
    StatusOr<BufferRef> ref = Expose(communicator, transfer.buffer, transfer.bytes(), &transfer.staged);
    if (!ref.ok()) {
      return Error(kMemory, fmt::format("EI0011: a buffer cannot be shown to rank {}: {}", transfer.peer,
                                        std::move(ref).status().detail().what));
    }
    entry.send = *ref;
  }
  entry.inline_used = transfer.is_inline ? static_cast<uint32_t>(transfer.bytes()) : 0;
  entry.published.store(transfer.running.mark(), std::memory_order_seq_cst);
  if (board.IsRemote(transfer.peer)) board.net()->TellMessage(communicator.rank(), transfer.peer, transfer.running);
  transfer.stage = transfer.is_inline && !transfer.is_envelope ? Transfer::kDone : Transfer::kPublished;
  board.Ring();
  return {};
}

void Answer(const Communicator& communicator, const Transfer& transfer, std::atomic<uint64_t>& word,
            wire::MarkKind mark) {
  Board& board = communicator.board();
  word.store(transfer.running.mark(), std::memory_order_seq_cst);
  if (board.IsRemote(transfer.peer))
    board.net()->TellMessageMark(transfer.peer, communicator.rank(), transfer.running, mark);
  board.Ring();
}

bool CanGoOn(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  for (const Transfer& transfer : operation.call.transfers) {
    if (transfer.stage == Transfer::kDone) continue;
    const Slot& entry = EntryOf(communicator, transfer);
    if (transfer.stage == Transfer::kFetching) {
      if (transfer.fetches->total.load() == 0) return true;
      continue;
    }
    if (!transfer.is_send) {
      if (entry.Has(entry.published, transfer.running)) return true;
      continue;
    }
    if (transfer.stage == Transfer::kWaitsForEntry) {
      if (IsFree(communicator.board(), transfer, entry)) return true;
    } else if (entry.Has(entry.finished, transfer.running) || entry.Has(entry.refused, transfer.running)) {
      return true;
    }
  }
  return false;
}

StatusOr<bool> RunTransfers(device::RunContext& context, Operation& operation) {
  Communicator& communicator = *operation.communicator;
  bool is_done = false;
  for (bool goes_on = true; goes_on && !is_done;) {
    goes_on = false;
    is_done = true;
    for (Transfer& transfer : operation.call.transfers) {
      if (transfer.stage == Transfer::kDone) continue;
      StatusOr<bool> step = transfer.is_send ? Send(communicator, transfer) : Receive(context, communicator, transfer);
      if (!step.ok()) return std::move(step).status();
      goes_on |= *step;
      is_done &= transfer.stage == Transfer::kDone;
    }
  }
  return is_done;
}

}  // namespace reprise::collective
