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

std::string Differ(const Communicator& communicator, uint32_t from, uint32_t to, uint64_t number,
                   const Descriptor& sent, uint64_t count, int type) {
  return fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, message {} from "
      "rank "
      "{} to rank {}, {} differs: rank {} sends {} {}; rank {} receives {} {}",
      communicator.name(), number & kOrdinalMask, from, to, sent.count != count ? "count" : "dataType", from,
      sent.count, NameOfType(sent.type), to, count, NameOfType(type));
}

// One step of a send. True when something has happened.
StatusOr<bool> Send(Communicator& communicator, Transfer& transfer) {
  Board& board = communicator.board();
  Slot& entry = EntryOf(communicator, transfer);
  const uint64_t mark = transfer.running + 1;
  if (transfer.stage == Transfer::kWaitsForEntry) {
    const uint64_t ring = board.message_ring();
    if ((transfer.running & kOrdinalMask) >= ring && entry.finished.load(std::memory_order_seq_cst) < mark - ring)
      return false;
    transfer.is_inline = transfer.bytes() <= board.message_inline_bytes();
    entry.descriptor = {};
    entry.descriptor.op = static_cast<uint8_t>(Operator::kSend);
    entry.descriptor.type = transfer.type;
    entry.descriptor.count = transfer.count;
    entry.descriptor.number = transfer.running;
    entry.descriptor.rank = communicator.rank();
    entry.descriptor.root = transfer.peer;
    entry.is_inline = transfer.is_inline ? 1 : 0;
    entry.send = {};
    if (transfer.is_inline) {
      if (transfer.count != 0) std::memcpy(entry.data(), transfer.buffer, transfer.bytes());
    } else {
      StatusOr<BufferRef> ref = Expose(communicator, transfer.buffer, transfer.bytes(), &transfer.staged);
      if (!ref.ok()) {
        return Error(kMemory, fmt::format("EI0011: a buffer cannot be shown to rank {}: {}", transfer.peer,
                                          std::move(ref).status().detail().what));
      }
      entry.send = *ref;
    }
    entry.inline_used = transfer.is_inline ? static_cast<uint32_t>(transfer.bytes()) : 0;
    entry.published.store(mark, std::memory_order_seq_cst);
    if (board.IsRemote(transfer.peer)) board.net()->TellMessage(communicator.rank(), transfer.peer, transfer.running);
    transfer.stage = transfer.is_inline ? Transfer::kDone : Transfer::kPublished;
    board.Ring();
    return true;
  }
  if (entry.refused.load(std::memory_order_seq_cst) >= mark) {
    return Error(kParameter,
                 fmt::format("EI0005: The arguments for collective communication are inconsistent between "
                             "ranks: group {}, message {}: rank {} sends {} {} to rank {}, which receives "
                             "something else: {}",
                             communicator.name(), transfer.running & kOrdinalMask, communicator.rank(), transfer.count,
                             NameOfType(transfer.type), transfer.peer, board.ReasonOf(transfer.peer)));
  }
  if (entry.finished.load(std::memory_order_seq_cst) < mark) return false;
  if (board.IsRemote(transfer.peer)) CloseSlot(entry, transfer.running);
  FreeStaged(&transfer.staged);
  transfer.stage = Transfer::kDone;
  return true;
}

// The sender has a number for what became of its message.
void Answer(const Communicator& communicator, const Transfer& transfer, std::atomic<uint64_t>& word,
            wire::MarkKind mark) {
  Board& board = communicator.board();
  word.store(transfer.running + 1, std::memory_order_seq_cst);
  if (board.IsRemote(transfer.peer))
    board.net()->TellMessageMark(transfer.peer, communicator.rank(), transfer.running, mark);
  board.Ring();
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
  if (transfer.count == 0 || transfer.stage == Transfer::kFetching) return true;
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

StatusOr<bool> Receive(device::RunContext& context, Communicator& communicator, Transfer& transfer) {
  Slot& entry = EntryOf(communicator, transfer);
  const uint64_t mark = transfer.running + 1;
  if (entry.published.load(std::memory_order_seq_cst) < mark) return false;
  if (transfer.stage == Transfer::kFetching && transfer.fetches->total.load() != 0) return false;
  const Reading reading(communicator, transfer.peer, entry, transfer.running);
  if (!reading.is_open())
    return Error(kRemote, fmt::format("EI0012: {}", communicator.board().ReasonOf(transfer.peer)));
  if (entry.descriptor.count != transfer.count || entry.descriptor.type != transfer.type) {
    std::string why = Differ(communicator, transfer.peer, communicator.rank(), transfer.running, entry.descriptor,
                             transfer.count, transfer.type);
    communicator.Fail(kParameter, why);
    Answer(communicator, transfer, entry.refused, wire::kRefused);
    return Error(kParameter, std::move(why));
  }
  REPRISE_ASSIGN_OR_RETURN(const bool is_there, CopyMessage(context, communicator, transfer, entry));
  if (!is_there) return false;
  Answer(communicator, transfer, entry.finished, wire::kFinished);
  transfer.stage = Transfer::kDone;
  return true;
}

}  // namespace

bool CanGoOn(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  for (const Transfer& transfer : operation.call.transfers) {
    if (transfer.stage == Transfer::kDone) continue;
    const Slot& entry = EntryOf(communicator, transfer);
    const uint64_t mark = transfer.running + 1;
    if (transfer.stage == Transfer::kFetching) {
      if (transfer.fetches->total.load() == 0) return true;
      continue;
    }
    if (!transfer.is_send) {
      if (entry.published.load(std::memory_order_seq_cst) >= mark) return true;
      continue;
    }
    const uint64_t ring = communicator.board().message_ring();
    const uint64_t finished = entry.finished.load(std::memory_order_seq_cst);
    if (transfer.stage == Transfer::kWaitsForEntry) {
      if ((transfer.running & kOrdinalMask) < ring || finished >= mark - ring) return true;
    } else if (finished >= mark || entry.refused.load(std::memory_order_seq_cst) >= mark) {
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
