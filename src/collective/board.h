// SPDX-License-Identifier: Apache-2.0
//
// Board: what the ranks of one communicator on one machine see of each other. A piece of memory, shared between
// processes where ranks are in several, in which each rank has
//
//     a row     how it is: ready, suspended, failed, gone, and why
//     slots     one for each of its operators that are under way, found by the operator's number: descriptor, where its
//               buffers are, small data, and how far it has come; and a few more for each, for operators in the bodies
//               of a conditional task that has the number
//
// and each ordered pair of ranks a few entries of the same sort for sends and receives. Whoever writes a part is its
// owner; the others read. A number is written last, so that what it announces is there.
//
// Ranks on other machines have their rows and slots in memory of this process alone, the mirror: what their processes
// send is written there by the thread of the links (net.h), so that all who look at the board need not know.
//
// A wait is a condition on such numbers. A task whose condition does not hold is parked in `waiters`; whoever makes a
// condition true calls Ring, which wakes what waits in this process, and rings the doorbells of others (watch.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/scheduler.h"
#include "device/share.h"

namespace reprise::collective {

/// Names a group over all its processes.
using Nonce = std::array<uint8_t, 16>;

constexpr uint32_t kMostRanks = 4096;
/// Operators of one rank that may be under way at once.
constexpr uint32_t kRing = 16;
/// A number: how often the communicator was resumed, and the place in the order of submission since then.
constexpr uint32_t kEpochShift = 40;
constexpr uint64_t kOrdinalMask = (uint64_t{1} << kEpochShift) - 1;

/// What an operator does, as all ranks must agree on it.
struct Descriptor {
  uint32_t version = 1;
  uint8_t op = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint8_t launch = 0;  ///< 0: eager, 1: by a graph
  uint64_t number = 0;
  uint64_t count = 0;
  uint64_t vectors_hash = 0;  ///< of the arrays of counts that must be equal
  uint64_t graph_hash = 0;    ///< of all operators of the graph, with REPRISE_HCCL_STRICT_GRAPH
  uint32_t root = 0;          ///< or peer
  uint32_t rank = 0;
  uint64_t branch = 0;  ///< in the body of a conditional task: how it came there
  uint64_t spare = 0;
};
static_assert(sizeof(Descriptor) == 64);

/// Which operator of a rank: its number, and for one in a body of a conditional task, which has the number, its place
/// among the operators that the task has run so far.
struct SlotKey {
  uint64_t number = 0;
  uint64_t inner = 0;  ///< 1 for the first one in a body; 0: in no body

  SlotKey() = default;
  SlotKey(uint64_t of, uint64_t place = 0) : number(of), inner(place) {}  // NOLINT: a number is a key
  /// What the words of the slot say of it; of one before it in the same ring they say less.
  uint64_t mark() const { return inner != 0 ? inner : number + 1; }
  /// Its place among those that share a ring, and the key `back` places before; not for places below that.
  uint64_t place() const { return inner != 0 ? inner - 1 : number & kOrdinalMask; }
  SlotKey Before(uint64_t back) const { return inner != 0 ? SlotKey(number, inner - back) : SlotKey(number - back); }
};

/// A buffer as its owner tells the others.
struct BufferRef {
  uint64_t address = 0;  ///< in the owner's process
  uint64_t key = 0;      ///< of the block around it (device/ipc_memory.h); 0: only this process can reach it
  uint64_t offset = 0;   ///< in that block
  uint64_t bytes = 0;    ///< from there
};

/// One operator of one rank, or one message of a pair. Words hold the mark of the operator (SlotKey), so that 0 is
/// none.
struct alignas(64) Slot {
  std::atomic<uint64_t> published{0};  ///< descriptor, buffers and small data are there
  /// The rank's part of the result is there. Of a message that stands for a conditional task: its receiver has ended
  /// the bodies.
  std::atomic<uint64_t> reduced{0};
  std::atomic<uint64_t> finished{0};  ///< the rank reads nothing more; of a message: it was taken
  std::atomic<uint64_t> refused{0};   ///< of a message: the other side does not agree
  // The buffers go away although readers of this process may be in the midst of them: after a failure.
  std::atomic<uint64_t> closed{0};
  std::atomic<uint32_t> readers{0};
  uint32_t is_inline = 0;
  uint32_t inline_used = 0;       ///< bytes behind the slot that were written
  std::atomic<uint64_t> task{0};  ///< of one for bodies: number + 1 of the conditional task that the other words are of
  Descriptor descriptor;
  BufferRef send;
  BufferRef receive;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  /// Before the first operator of `key` is shown here: what an earlier conditional task has left is gone.
  void Adopt(const SlotKey& key) noexcept;
  /// Whether the rank has come that far with this operator.
  bool Has(const std::atomic<uint64_t>& word, const SlotKey& key) const noexcept {
    if (key.inner != 0 && task.load(std::memory_order_seq_cst) != key.number + 1) return false;
    return word.load(std::memory_order_seq_cst) >= key.mark();
  }
  /// Whether its buffers are still there; asked by those who are counted in `readers`.
  bool IsOpen(const SlotKey& key) const noexcept {
    if (key.inner != 0 && task.load(std::memory_order_seq_cst) != key.number + 1) return false;
    return closed.load(std::memory_order_seq_cst) < key.mark();
  }
};
static_assert(sizeof(Slot) % 64 == 0 && std::atomic<uint64_t>::is_always_lock_free);

enum class RankState : uint32_t { kAbsent, kReady, kSuspended, kFailed, kLeft };

/// Why a rank takes part no more, in words. Written once: by the rank's process, or by one that finds that it is gone.
struct Reason {
  enum Stage : uint32_t { kNone, kIsWritten, kThere };  ///< kIsWritten: by somebody, who may be killed at it
  std::atomic<uint32_t> stage{kNone};
  char text[512] = {};  ///< ends with 0
};

struct alignas(64) RankRow {
  std::atomic<uint32_t> state{0};
  std::atomic<int32_t> code{0};    ///< why it failed: a Code
  std::atomic<uint64_t> epoch{0};  ///< how often it was resumed
  std::atomic<uint64_t> begun{0};  ///< number + 1 of the newest operator that it came to
  std::atomic<uint64_t> done{0};   ///< and of the newest that ended well
  int32_t pid = 0;
  int32_t device = 0;
  uint32_t process = 0;  ///< index of its row
  uint32_t world_rank = 0;
  std::array<Reason, 3> reasons;  ///< by state, from kSuspended on: what somebody reads is not written again

  Reason& reason(uint32_t of) { return reasons[of - static_cast<uint32_t>(RankState::kSuspended)]; }
  void ForgetReasons() noexcept {
    for (Reason& each : reasons) each.stage.store(Reason::kNone);
  }
};

struct alignas(64) ProcessRow {
  std::atomic<uint32_t> armed{0};  ///< somebody in it waits
  int32_t pid = 0;
  device::ShareKey doorbell;
};

class Net;

/// Threads: thread-safe. Ranks of this process share one object.
class Board {
 public:
  /// Room for `ranks`; in a memory file that others may open if `shared`. The caller fills the rows before anybody
  /// else sees it.
  static StatusOr<std::shared_ptr<Board>> Create(const Nonce& nonce, uint32_t ranks, bool shared);
  /// The board of another process, or the one that this process has opened already.
  static StatusOr<std::shared_ptr<Board>> Open(const Nonce& nonce, const device::ShareKey& key);
  /// The live board of this process, or null.
  static std::shared_ptr<Board> Find(const Nonce& nonce);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  const Nonce& nonce() const { return nonce_; }
  uint32_t ranks() const { return ranks_; }
  /// Whether ranks are in several processes.
  bool is_shared() const { return fd_owned_ || opened_; }
  StatusOr<device::ShareKey> Offer();
  void StopOffering() noexcept;

  /// The processes of other machines, by index, and where each is reached; rows of ranks must be filled by the caller.
  /// To be called before anybody else sees the board; `process_of` is by rank.
  Status SetRemote(std::vector<bool> processes, std::vector<std::string> places,
                   const std::vector<uint32_t>& process_of);
  bool IsRemote(uint32_t rank) const { return !remote_ranks_.empty() && remote_ranks_[rank] != 0; }
  bool IsRemoteProcess(uint32_t index) const { return !remote_processes_.empty() && remote_processes_[index]; }
  /// Where a process of another machine is reached; empty for those of this one.
  const std::string& PlaceOf(uint32_t process) const;
  /// The links to other machines; null when there are none.
  Net* net() const { return net_.get(); }
  void set_net(std::unique_ptr<Net> net);

  RankRow& rank(uint32_t rank) const { return IsRemote(rank) ? mirror_rows_[rank] : rank_rows_[rank]; }
  ProcessRow& process(uint32_t index) const { return process_rows_[index]; }
  uint32_t processes() const;
  void set_processes(uint32_t count);
  /// Whether the ranks of this machine have more threads that wait for each other, a caller and a worker each, than
  /// this process has cores.
  bool IsCrowded() const;
  /// Of this machine.
  uint32_t ranks_here() const { return ranks_here_; }
  Slot& slot(uint32_t rank, const SlotKey& key) const;
  /// Operators in bodies of one conditional task that a rank may have under way at once.
  uint32_t inner_ring() const { return inner_ring_; }
  Slot& message(uint32_t from, uint32_t to, const SlotKey& key) const;
  /// As slots: where a message is shown, an earlier one of its ring has been.
  uint64_t message_ring_of(const SlotKey& key) const { return key.inner != 0 ? inner_message_ring_ : message_ring_; }
  uint32_t inline_bytes() const { return inline_bytes_; }
  uint32_t message_inline_bytes() const { return message_inline_bytes_; }

  /// Which of the processes this one is; set once its rank rows are known.
  uint32_t own_process = 0;

  device::WaitList waiters;
  /// Tasks of this process that wait for others.
  std::atomic<uint32_t> waiting{0};
  /// To be called before a condition is looked at for the last time: from then on a change rings.
  void Arm() noexcept { process_rows_[own_process].armed.store(1, std::memory_order_seq_cst); }
  /// Something has changed that may be waited for.
  void Ring() noexcept;
  /// The same, in this process alone.
  void WakeHere() noexcept;

  /// Marks a rank as no longer taking part, with the reason that others will read. The first one of a state counts.
  void Fail(uint32_t rank, RankState state, int code, std::string_view reason) noexcept;
  /// The rank takes part in nothing any more.
  bool IsOut(uint32_t rank) const noexcept {
    return this->rank(rank).state.load(std::memory_order_seq_cst) > static_cast<uint32_t>(RankState::kReady);
  }
  /// Never empty for a rank that is out.
  std::string ReasonOf(uint32_t rank) const;

 private:
  struct Header;
  Board(const Nonce& nonce, uint32_t ranks);
  Status Map(int fd);
  uint64_t bytes() const;
  uint64_t slot_bytes() const;
  uint64_t message_bytes() const;

  const Nonce nonce_;
  const uint32_t ranks_;
  uint32_t ranks_here_ = ranks_;  // on this machine
  uint32_t inline_bytes_;
  uint32_t message_inline_bytes_;
  uint32_t message_ring_;
  uint32_t inner_ring_;
  uint32_t inner_message_ring_;
  std::byte* base_ = nullptr;
  Header* header_ = nullptr;
  RankRow* rank_rows_ = nullptr;
  ProcessRow* process_rows_ = nullptr;
  std::byte* slots_ = nullptr;
  std::byte* messages_ = nullptr;
  // Of ranks on other machines.
  std::vector<uint8_t> remote_ranks_;
  std::vector<bool> remote_processes_;
  std::vector<std::string> places_;
  std::byte* mirror_ = nullptr;
  RankRow* mirror_rows_ = nullptr;
  std::byte* mirror_slots_ = nullptr;
  std::byte* mirror_messages_ = nullptr;
  std::unique_ptr<Net> net_;
  int fd_ = -1;
  bool fd_owned_ = false;
  bool opened_ = false;
  device::ShareKey key_;
};

/// "group of 4 ranks" helpers: the first rank for which `holds` is false; `ranks()` when there is none.
template <class Holds>
uint32_t FirstWithout(const Board& board, Holds holds) {
  uint32_t rank = 0;
  while (rank < board.ranks() && holds(rank)) ++rank;
  return rank;
}

}  // namespace reprise::collective
