// SPDX-License-Identifier: Apache-2.0
//
// Operators as tasks. A collective comes in stages, of which each but the first waits for other ranks:
//
//     slot      all have finished with what was in the slot before
//     publish   descriptor, and where the data are (small data with it)
//     arrive    all have published, and agree: read what they have, reduce
//     fetch     what was asked for from other machines has come: reduce it (nothing on one machine)
//     gather    all have reduced their part: read the parts (AllReduce of large data alone)
//     parts     those of other machines have come
//     finish    nobody reads from this rank's buffers any more
//
// A wait parks the task. Whatever ends an operator before its end makes the rank fail on the board, so that nobody
// waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/net.h"
#include "collective/numbers.h"
#include "device/scheduler.h"
#include "ir/task.h"
#include "runtime/stream.h"

namespace reprise::collective {

/// Copies of the arrays of counts, in elements.
struct Vectors {
  std::vector<uint64_t> send_counts;
  std::vector<uint64_t> send_offsets;
  std::vector<uint64_t> receive_counts;
  std::vector<uint64_t> receive_offsets;
};

class PairEnvelope;

/// One send or receive.
struct Transfer {
  bool is_send = false;
  uint8_t type = 0;
  uint32_t peer = 0;
  uint64_t count = 0;
  std::byte* buffer = nullptr;
  ir::Number number;
  bool is_envelope = false;  ///< no data: a conditional task, with `count` messages of the pair in its bodies
  uint64_t hash = 0;         ///< of these
  // While it runs:
  enum Stage : uint8_t { kWaitsForEntry, kPublished, kFetching, kDone } stage = kWaitsForEntry;
  std::shared_ptr<Fetches> fetches;  ///< of a receive from another machine
  bool is_inline = false;
  SlotKey running;                   ///< this run
  PairEnvelope* envelope = nullptr;  ///< of a run in the body of a conditional task
  uint64_t branch = 0;               ///< and how it came there
  void* staged = nullptr;

  uint64_t bytes() const { return is_envelope ? 0 : count * SizeOf(type); }
};

/// An operator with its arguments. Owns what it points to but the buffers.
struct Call {
  Operator op = Operator::kBarrier;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint32_t root = 0;
  uint64_t count = 0;  ///< of the function's parameter: of one block where a buffer has several
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::unique_ptr<Vectors> vectors;
  std::vector<Transfer> transfers;

  /// Bytes from the first to the last that the rank sends (receives).
  uint64_t SendBytes(uint32_t rank, uint32_t ranks) const;
  uint64_t ReceiveBytes(uint32_t rank, uint32_t ranks) const;
};

/// A reduction of what other machines have to send first, in pieces that their copies have room for.
struct Folding {
  uint64_t first = 0;  ///< element of the sources
  std::byte* receive = nullptr;
  uint64_t count = 0;  ///< 0: there is none
  uint64_t done = 0;
  uint64_t piece = 0;  ///< elements at once
  std::unique_ptr<std::byte[]> room;
};

/// A call on its way through its stages; owned by the payload of its task.
class ConditionEnvelope;

struct Operation final : ir::Numbered {
  Communicator* communicator = nullptr;  ///< one reference
  Call call;
  Descriptor descriptor;  ///< all but the number
  ir::Number number;

  enum Stage : uint8_t { kBegin, kSlot, kArrive, kFetch, kGather, kParts, kFinish } stage = kBegin;
  bool is_inline = false;
  bool is_moving = false;
  bool is_waiting = false;  ///< counted in Board::waiting
  bool has_timer = false;
  bool is_by_graph = false;
  SlotKey running;                        ///< this run
  ConditionEnvelope* envelope = nullptr;  ///< of a run in the body of a conditional task
  int64_t deadline_ns = 0;
  Folding folding;
  std::unique_ptr<Fetches> fetches;      ///< where the communicator spans machines
  void* staged[2] = {nullptr, nullptr};  ///< copies of send and receive where others cannot reach the buffer

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  void TellSeries(ir::SeriesSink& sink) override;
  uint64_t Fingerprint() const override;
  /// What a rank shows of this run.
  Slot& SlotOf(uint32_t rank) const { return communicator->board().slot(rank, running); }
};

/// The bodies of one conditional task, for a communicator that they use. It runs as an operator of its own: its slot is
/// taken when the task begins, and shown when the bodies have ended, with the number of operators in them. Ranks whose
/// conditions differ show different numbers, and all fail. A rank that waits in a body for one that has ended its
/// bodies shows its own number, so that this comes out, and fails, too.
class ConditionEnvelope final : public ir::Envelope {
 public:
  explicit ConditionEnvelope(Communicator& communicator);
  ir::RunResult Open(device::RunContext& context, uint64_t number, uint64_t graph) override;
  uint64_t Take(uint64_t count, uint64_t branch) noexcept override;
  void Announce() noexcept override;
  ir::RunResult Close(device::RunContext& context) override;
  void Abandon(device::Runnable* runnable) noexcept override;
  std::string WaitsFor() const override;

  uint64_t number() const { return own_.running.number; }
  /// A rank that has ended its bodies, and will not come to this operator of one; the number of ranks: none.
  uint32_t WhoHasLeft(const Operation& operation) const;
  /// Why the operator cannot end, as that rank has left.
  std::string WhyLeft(const Operation& operation, uint32_t rank) const;

 private:
  Operation own_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> hash_{0};  // of the bodies that had operators
  std::atomic<bool> is_announced_{false};
};

/// The bodies of one conditional task, for messages of one pair in one direction. As ConditionEnvelope, between two
/// ranks: the sender shows a message that says how many there were, and the receiver answers.
class PairEnvelope final : public ir::Envelope {
 public:
  PairEnvelope(Communicator& communicator, bool is_send, uint32_t peer);
  ir::RunResult Open(device::RunContext& context, uint64_t number, uint64_t graph) override;
  uint64_t Take(uint64_t count, uint64_t branch) noexcept override;
  void Announce() noexcept override;
  ir::RunResult Close(device::RunContext& context) override;
  void Abandon(device::Runnable* runnable) noexcept override;
  std::string WaitsFor() const override;
  bool WaitsForAnswer() const override { return own().is_send; }

  uint64_t number() const { return own().running.number; }
  /// Whether the other rank has ended its bodies; a message that is not there then will not come.
  bool HasPeerLeft() const;
  /// Tells the other rank that the two do not agree; and why.
  std::string Refuse() noexcept;

 private:
  Transfer& own() { return operation_.call.transfers[0]; }
  const Transfer& own() const { return operation_.call.transfers[0]; }
  Slot& entry() const;

  Operation operation_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> hash_{0};
  std::atomic<bool> is_announced_{false};
};

/// Queues or records the operator. Its arguments were checked.
Status Submit(runtime::Stream& stream, Communicator& communicator, Call call);

// ---- Parts of Run, see the sources of these names ----

/// task.cc: an operator is under way.
void HoldSpinningIfCrowded(const Board& board);

/// agree.cc: why the ranks cannot do this together; empty when they agree. All have published.
std::string WhyDisagree(const Operation& operation);
/// Which ranks did not come to the stage that the operation waits in, and how far they are.
std::string WhoIsMissing(const Operation& operation);
/// A missing rank that waits for this one in another communicator; empty when there is none. Not for handlers of
/// signals.
std::string WhoWaitsElsewhere(const Operation& operation);
bool HasArrived(const Operation& operation, uint32_t rank);
std::string DescribeCall(const Descriptor& descriptor);
/// "7", or "7, operator 2 of its conditional task".
std::string SpokenNumber(const SlotKey& key);
/// A hash, with one more value.
uint64_t Mix(uint64_t hash, uint64_t value);
/// The buffer that a rank shows cannot be opened: the rank is lost, where that is why.
Status CannotReach(const Communicator& communicator, uint32_t rank, const Status& why);
/// "Heartbeat Lost Occurred: ", and why a rank is out. Of one that failed because another was lost, why that one was:
/// the rank with which it began is named, however many lie between.
std::string HeartbeatLost(const Board& board, uint32_t rank);
uint64_t HashOf(const Call& call);
/// Of all that ranks must have equal.
uint64_t FingerprintOf(const Descriptor& descriptor);

/// move.cc: tells the others where the data are.
Status Publish(Operation& operation);
/// Reads and reduces what others have published; asks for what is on other machines.
Status MoveArrived(device::RunContext& context, Operation& operation);
/// Reduces what has come from other machines, and asks for more. Done when operation.folding has no count.
Status GoOnFolding(device::RunContext& context, Operation& operation);
/// The result of the first step is there.
void EndArrived(Operation& operation) noexcept;
/// The second step of an AllReduce.
Status MoveReduced(device::RunContext& context, Operation& operation);
bool HasSecondStep(const Operation& operation);
/// Whether others read from this rank's buffers, so that it must wait for them.
bool IsExposed(const Operation& operation);
/// Where others find `bytes` at `buffer`; copies them into `staged` when they cannot reach these themselves.
StatusOr<BufferRef> Expose(Communicator& communicator, const void* buffer, uint64_t bytes, void** staged);
void FreeStaged(void** staged) noexcept;
/// The buffers of a slot go back to the program: waits for who reads them in this process. Readers of others have the
/// memory mapped.
void CloseSlot(Slot& slot, const SlotKey& key) noexcept;

/// The buffers of a slot of this process, while somebody reads them.
class Reading {
 public:
  Reading(const Communicator& communicator, uint32_t rank, Slot& slot, const SlotKey& key);
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading();
  /// False: their owner has failed and taken them away.
  bool is_open() const { return is_open_; }

 private:
  Slot* slot_ = nullptr;
  bool is_open_ = true;
};

/// operation.cc: one run of the task.
ir::RunResult RunOperation(device::RunContext& context, Operation& operation);
/// When the operator must have ended.
void SetDeadline(Operation& operation);
/// The first stage, until the slot is free, and all that follow. As runs of a task; a failure stands in the
/// context.
ir::RunResult RunToSlot(device::RunContext& context, Operation& operation);
ir::RunResult RunPointToPoint(device::RunContext& context, Operation& operation);
ir::RunResult RunCollective(device::RunContext& context, Operation& operation);
/// Shows the operator to the others.
Status PublishAndTell(Operation& operation);
/// It ends before its end.
void CancelRun(Operation& operation, device::Runnable* runnable, bool was_waiting) noexcept;

/// transfer.cc: goes on with all sends and receives. True when all are done.
StatusOr<bool> RunTransfers(device::RunContext& context, Operation& operation);
/// Whether one of the transfers that are not done can go on.
bool CanGoOn(const Operation& operation);
/// Whether the place of a message is free.
bool IsFree(const Board& board, const Transfer& transfer, const Slot& entry);
/// Shows a message whose place is free.
Status Show(Communicator& communicator, Transfer& transfer);
/// The receiver has a word for what became of a message.
void Answer(const Communicator& communicator, const Transfer& transfer, std::atomic<uint64_t>& word,
            wire::MarkKind mark);

}  // namespace reprise::collective
