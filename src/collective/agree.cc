// SPDX-License-Identifier: Apache-2.0
//
// What ranks say of each other: whether their operators fit together, and who is missing.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

#include "collective/operation.h"

namespace reprise::collective {
namespace {

constexpr unsigned long kIsExiting = 0x4;  // PF_EXITING of Linux

uint64_t HashOfArray(uint64_t hash, const std::vector<uint64_t>& values) {
  for (const uint64_t value : values) hash = Mix(hash, value);
  return Mix(hash, values.size());
}

// Everything that all ranks must have equal.
auto SignatureOf(const Descriptor& d) {
  const auto op = static_cast<Operator>(d.op);
  const bool has_type = op != Operator::kBarrier && op != Operator::kCondition;
  return std::make_tuple(d.version, d.op, has_type ? d.type : uint8_t{0}, IsReduction(op) ? d.reduction : uint8_t{0},
                         HasRoot(op) ? d.root : 0, d.count, d.vectors_hash, d.graph_hash, d.branch);
}

const char* FirstDifference(const Descriptor& a, const Descriptor& b) {
  if (a.version != b.version) return "protocol version";
  if (a.op != b.op) return "operator (the order of operators)";
  if (a.op == static_cast<uint8_t>(Operator::kCondition) && (a.count != b.count || a.vectors_hash != b.vectors_hash))
    return "a condition, and so what was run in a conditional task,";
  if (a.branch != b.branch) return "a condition, and so the branch of a conditional task,";
  if (a.count != b.count) return "count";
  if (a.type != b.type) return "dataType";
  if (a.reduction != b.reduction) return "op";
  if (a.root != b.root) return "root";
  if (a.vectors_hash == b.vectors_hash) return "the graph that it is of (REPRISE_HCCL_STRICT_GRAPH)";
  return "the arrays of counts";
}

// Where graphs are compared.
std::string InGraph(const Descriptor& d) {
  if (!TheEnvironment().compares_graphs) return {};
  return d.graph_hash == 0 ? ", called" : fmt::format(", of graph {:016x}", d.graph_hash);
}

std::string List(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < 16; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > 16) text += fmt::format(" and {} more", ranks.size() - 16);
  return text;
}

// The state of a process as /proc shows it; 0 when it is gone, X while it ends: its files may be closed already.
char StateOf(int32_t pid) {
  char path[32];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/stat", pid).out = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* const end = std::strrchr(text, ')');
  if (end == nullptr || end[1] != ' ' || end[2] == '\0') return 0;
  const char* field = end + 2;  // the state; the flags are six fields behind it
  for (int i = 0; i < 6 && field != nullptr; ++i) {
    field = std::strchr(field, ' ');
    if (field != nullptr) ++field;
  }
  const bool is_exiting = field != nullptr && (std::strtoul(field, nullptr, 10) & kIsExiting) != 0;
  return is_exiting ? 'X' : end[2];
}

std::string DescribeRank(const Board& board, uint32_t rank) {
  const RankRow& row = board.rank(rank);
  std::string text = fmt::format("rank {} (process {}", rank, row.pid);
  if (board.IsRemote(rank)) text += fmt::format(" at {}", board.PlaceOf(row.process));
  switch (board.IsRemote(rank) ? 'R' : StateOf(row.pid)) {
    case 0: text += ", ended"; break;
    case 'T':
    case 't': text += ", alive, not running: it is stopped"; break;
    case 'Z':
    case 'X': text += ", ended"; break;
    default: text += board.IsRemote(rank) ? ", connected" : ", alive"; break;
  }
  text += "; ";
  const uint64_t begun = row.begun.load(std::memory_order_relaxed);
  const uint64_t done = row.done.load(std::memory_order_relaxed);
  if (const uint32_t state = row.state.load(); state == static_cast<uint32_t>(RankState::kLeft)) {
    text += "communicator destroyed";
  } else if (begun == 0) {
    text += "no operator so far";
  } else {
    const Descriptor& last = board.slot(rank, begun - 1).descriptor;
    const bool is_condition = last.op == static_cast<uint8_t>(Operator::kCondition);
    text += fmt::format("{} seq {}: {}", begun == done ? "finished" : "is in", (begun - 1) & kOrdinalMask,
                        is_condition ? "a conditional task" : DescribeCall(last));
  }
  return text + ")";
}

// Sends and receives of different counts between two ranks.
std::string PairsDisagree(const Operation& operation) {
  const Board& board = operation.communicator->board();
  const uint32_t ranks = board.ranks();
  std::vector<const uint64_t*> arrays(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    Slot& slot = operation.SlotOf(rank);
    if (slot.inline_used < 3 * ranks * sizeof(uint64_t)) return fmt::format("EI0011: rank {} shows no counts", rank);
    arrays[rank] = reinterpret_cast<const uint64_t*>(slot.data());
  }
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      const uint64_t sent = arrays[from][to];
      const uint64_t received = arrays[to][2 * ranks + from];
      if (sent == received) continue;
      return fmt::format(
          "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, seq {}, "
          "AlltoAllV: rank {} sends {} elements to rank {}, which receives {} from it",
          operation.communicator->name(), SpokenNumber(operation.running), from, sent, to, received);
    }
  }
  return {};
}

}  // namespace

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccd;
}

std::string SpokenNumber(const SlotKey& key) {
  std::string text = std::to_string(key.number & kOrdinalMask);
  if (key.inner != 0) text += fmt::format(", operator {} of its conditional task", key.inner);
  return text;
}

Status CannotReach(const Communicator& communicator, uint32_t rank, const Status& why) {
  Board& board = communicator.board();
  const int32_t pid = board.rank(rank).pid;
  const char state = StateOf(pid);
  if (state == 0 || state == 'Z' || state == 'X') {
    board.Fail(rank, RankState::kFailed, kRemote,
               fmt::format("rank {} (process {}) was killed, or ended without HcclCommDestroy", rank, pid));
  }
  if (board.IsOut(rank)) {
    return Error(kRemote, fmt::format("EI0012: rank {} cannot read from rank {}, {}", communicator.rank(), rank,
                                      HeartbeatLost(board, rank)));
  }
  return Error(kMemory, fmt::format("EI0011: the buffer of rank {} (process {}) cannot be reached: {}", rank, pid,
                                    why.detail().what));
}

std::string HeartbeatLost(const Board& board, uint32_t rank) {
  constexpr std::string_view kMarker = "Heartbeat Lost Occurred: ";
  const std::string reason = board.ReasonOf(rank);
  const size_t last = reason.rfind(kMarker);
  return last != std::string::npos ? reason.substr(last) : fmt::format("{}{}", kMarker, reason);
}

uint64_t HashOf(const Call& call) {
  if (call.vectors == nullptr) return 0;
  // Of AlltoAllV each rank has its own; pairs are compared.
  uint64_t hash = 0;
  switch (call.op) {
    case Operator::kAllToAllVC:
    case Operator::kReduceScatterV:
      return HashOfArray(HashOfArray(hash, call.vectors->send_counts), call.vectors->send_offsets);
    case Operator::kAllGatherV:
      return HashOfArray(HashOfArray(hash, call.vectors->receive_counts), call.vectors->receive_offsets);
    default: return 0;
  }
}

uint64_t FingerprintOf(const Descriptor& descriptor) {
  uint64_t hash = descriptor.op;
  for (const uint64_t value : {uint64_t{descriptor.type}, uint64_t{descriptor.reduction}, uint64_t{descriptor.root},
                               descriptor.count, descriptor.vectors_hash}) {
    hash = Mix(hash, value);
  }
  return hash;
}

std::string DescribeCall(const Descriptor& descriptor) {
  const auto op = static_cast<Operator>(descriptor.op);
  std::string text = NameOf(op);
  if (op == Operator::kBarrier) return text;
  if (op == Operator::kCondition)
    return fmt::format("a conditional task whose bodies had {} operators", descriptor.count);
  text += fmt::format(", count {}, {}", descriptor.count, NameOfType(descriptor.type));
  if (IsReduction(op)) text += fmt::format(", {}", NameOfReduction(descriptor.reduction));
  if (HasRoot(op)) text += fmt::format(", root {}", descriptor.root);
  return text;
}

bool HasArrived(const Operation& operation, uint32_t rank) {
  const Communicator& communicator = *operation.communicator;
  const Board& board = communicator.board();
  if (!operation.call.transfers.empty()) {
    for (const Transfer& transfer : operation.call.transfers) {
      if (transfer.peer != rank || transfer.stage == Transfer::kDone) continue;
      const Slot& entry = transfer.is_send ? board.message(communicator.rank(), rank, transfer.running)
                                           : board.message(rank, communicator.rank(), transfer.running);
      const SlotKey& key = transfer.running;
      if (!transfer.is_send && !entry.Has(entry.published, key)) return false;
      if (transfer.stage == Transfer::kFetching && transfer.fetches->of_rank[rank].load() != 0) return false;
      if (transfer.is_send && transfer.stage == Transfer::kPublished && !entry.Has(entry.finished, key) &&
          !entry.Has(entry.refused, key))
        return false;
      if (transfer.is_send && transfer.stage == Transfer::kWaitsForEntry && !IsFree(board, transfer, entry))
        return false;
    }
    return true;
  }
  const Slot& slot = operation.SlotOf(rank);
  const SlotKey& key = operation.running;
  switch (operation.stage) {
    case Operation::kSlot: {
      const uint64_t ring = key.inner != 0 ? board.inner_ring() : kRing;
      return key.place() < ring || slot.Has(slot.finished, key.Before(ring));
    }
    case Operation::kArrive: return slot.Has(slot.published, key);
    case Operation::kGather: return slot.Has(slot.reduced, key);
    case Operation::kFetch:
    case Operation::kParts: return operation.fetches == nullptr || operation.fetches->of_rank[rank].load() == 0;
    case Operation::kFinish: return slot.Has(slot.finished, key);
    case Operation::kBegin: break;
  }
  return true;
}

std::string WhyDisagree(const Operation& operation) {
  const Communicator& communicator = *operation.communicator;
  const Board& board = communicator.board();
  const Descriptor& own = operation.SlotOf(communicator.rank()).descriptor;
  bool all_equal = true;
  for (uint32_t rank = 0; rank < board.ranks() && all_equal; ++rank)
    all_equal = SignatureOf(operation.SlotOf(rank).descriptor) == SignatureOf(own);
  if (all_equal) {
    if (operation.call.op == Operator::kAllToAllV) return PairsDisagree(operation);
    return {};
  }
  // The ranks by what they call. The largest part is held to be right; of equal ones that with the lowest rank.
  std::map<decltype(SignatureOf(own)), std::vector<uint32_t>> parts;
  for (uint32_t rank = 0; rank < board.ranks(); ++rank)
    parts[SignatureOf(operation.SlotOf(rank).descriptor)].push_back(rank);
  const auto most = std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second[0] > b.second[0];
  });
  std::vector<uint32_t> odd;
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (std::find(most->second.begin(), most->second.end(), rank) == most->second.end()) odd.push_back(rank);
  }
  const Descriptor& right = operation.SlotOf(most->second[0]).descriptor;
  const Descriptor& wrong = operation.SlotOf(odd[0]).descriptor;
  return fmt::format(
      "EI0005: The arguments for collective communication are inconsistent between ranks: group {}, seq {}, {} "
      "differs: "
      "rank {}: {}; against rank {}: {}{}",
      communicator.name(), SpokenNumber(operation.running), FirstDifference(right, wrong), List(odd),
      DescribeCall(wrong) + InGraph(wrong), List(most->second), DescribeCall(right) + InGraph(right),
      wrong.launch != right.launch ? " (one side is a graph: a condition may have differed between ranks)" : "");
}

std::string WhoIsMissing(const Operation& operation) {
  const Board& board = operation.communicator->board();
  std::string text;
  int shown = 0;
  for (uint32_t rank = 0; rank < board.ranks(); ++rank) {
    if (rank == operation.communicator->rank() || HasArrived(operation, rank)) continue;
    if (++shown > 8) {
      text += ", …";
      break;
    }
    text += fmt::format("{}{}", text.empty() ? "did not come: " : ", ", DescribeRank(board, rank));
  }
  return text.empty() ? "nobody is missing" : text;
}

std::string WhoWaitsElsewhere(const Operation& operation) {
  const Communicator& here = *operation.communicator;
  std::string text;
  ForEachCommunicator([&](const Communicator& other) {
    const Board& board = other.board();
    if (&board == &here.board() || other.device() != here.device() || !text.empty()) return;
    const uint64_t own = board.rank(other.rank()).begun.load();
    for (uint32_t rank = 0; rank < here.ranks(); ++rank) {
      const RankRow& missing = here.board().rank(rank);
      if (rank == here.rank() || HasArrived(operation, rank)) continue;
      for (uint32_t as = 0; as < board.ranks(); ++as) {
        const RankRow& row = board.rank(as);
        const uint64_t begun = row.begun.load();
        if (row.pid != missing.pid || row.device != missing.device || as == other.rank() ||
            board.IsRemote(as) != here.board().IsRemote(rank) || begun <= own || begun <= row.done.load())
          continue;
        const Slot& slot = board.slot(as, begun - 1);
        const bool is_known = slot.published.load() == begun;
        text += fmt::format(
            "; rank {} waits in {} of group {}, seq {}, for this rank: let all ranks use the groups in "
            "one order, or on different streams",
            rank, is_known ? NameOf(static_cast<Operator>(slot.descriptor.op)) : "an operator", other.name(),
            (begun - 1) & kOrdinalMask);
        return;
      }
    }
  });
  return text;
}

}  // namespace reprise::collective
