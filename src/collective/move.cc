// SPDX-License-Identifier: Apache-2.0
//
// The data of collectives. Each rank reads what it needs from the buffers of the others, and writes its own alone.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "collective/fold.h"
#include "collective/operation.h"
#include "device/ipc_memory.h"
#include "device/memory.h"
#include "device/work_cost.h"
#include "runtime/tasks.h"

namespace reprise::collective {
namespace {

using device::MemoryRegistry;

// Whether this machine has cores that do not move data of the operator as its other ranks do: only then a rank's part
// is worth to be cut. Else threads would keep each other from running.
bool HasCoresLeft(const Operation& operation) {
  const uint32_t here = operation.communicator->board().ranks_here();
  uint32_t busy = here;
  if (operation.call.op == Operator::kReduce) busy = 1;
  if (operation.call.op == Operator::kBroadcast) busy = std::max(here, 2u) - 1;  // the root has its data
  return busy < static_cast<uint32_t>(device::UsableCores());
}

// Where the data of rank's slot begin: behind the arrays of an AlltoAllV.
uint64_t VectorBytes(const Call& call, uint32_t ranks) {
  return call.op == Operator::kAllToAllV ? uint64_t{3} * ranks * sizeof(uint64_t) : 0;
}

// Whether the rank's send buffer is read by others.
bool IsRead(const Operation& operation) {
  const Call& call = operation.call;
  const uint32_t rank = operation.communicator->rank();
  if (operation.communicator->ranks() == 1) return false;
  switch (call.op) {
    case Operator::kBarrier:
    case Operator::kCondition: return false;
    case Operator::kBroadcast:
    case Operator::kScatter: return call.root == rank;
    case Operator::kReduce: return call.root != rank;
    default: return true;
  }
}

// Whether all can work on copies in the slots; the same on all ranks.
bool FitsInline(const Operation& operation) {
  const Call& call = operation.call;
  const Communicator& communicator = *operation.communicator;
  const uint64_t element = SizeOf(call.type);
  const uint64_t room = communicator.board().inline_bytes();
  switch (call.op) {
    case Operator::kBarrier:
    case Operator::kCondition: return true;
    case Operator::kAllReduce:
    case Operator::kReduce:
    case Operator::kBroadcast:
    case Operator::kAllGather: return call.count * element <= room;
    case Operator::kReduceScatter:
    case Operator::kScatter:
    case Operator::kAllToAll: return call.count * element * communicator.ranks() <= room;
    case Operator::kAllToAllV:  // each rank on its own: the slot says which
      return VectorBytes(call, communicator.ranks()) + call.SendBytes(communicator.rank(), communicator.ranks()) <=
             room;
    default: return false;
  }
}

struct Part {
  uint64_t begin;  // elements
  uint64_t count;
};

// The part of the elements that a rank reduces; cut at cache lines.
Part PartOf(const Call& call, uint32_t rank, uint32_t ranks) {
  const uint64_t line = std::max<uint64_t>(64 / SizeOf(call.type), 1);
  uint64_t chunk = (call.count + ranks - 1) / ranks;
  chunk = (chunk + line - 1) / line * line;
  const uint64_t begin = std::min(chunk * rank, call.count);
  return {begin, std::min(chunk, call.count - begin)};
}

// The data of one rank, while they are read.
class Source {
 public:
  Source(const Operation& operation, uint32_t rank, bool reduced = false)
      : slot_(operation.SlotOf(rank)), reading_(*operation.communicator, rank, slot_, operation.running) {
    if (!reading_.is_open()) {
      status_ = Error(kRemote, fmt::format("EI0012: {}", HeartbeatLost(operation.communicator->board(), rank)));
      return;
    }
    if (rank == operation.communicator->rank()) {
      data_ = reduced ? operation.call.receive : operation.call.send;
      return;
    }
    if (slot_.is_inline != 0) {
      skipped_ = VectorBytes(operation.call, operation.communicator->ranks());
      data_ = slot_.data() + skipped_;
      is_whole_ = false;
      return;
    }
    StatusOr<std::byte*> at = operation.communicator->Reach(rank, reduced ? slot_.receive : slot_.send);
    if (at.ok()) {
      data_ = *at;
    } else {
      status_ = CannotReach(*operation.communicator, rank, std::move(at).status());
    }
  }
  Status TakeStatus() { return std::move(status_); }
  const std::byte* data() const { return data_; }
  /// Whether the data go on for so long; what comes from another machine says it itself.
  bool Has(uint64_t offset, uint64_t bytes) const {
    if (is_whole_) return true;
    const uint64_t used = slot_.inline_used;
    return used >= skipped_ && offset <= used - skipped_ && bytes <= used - skipped_ - offset;
  }

 private:
  Slot& slot_;
  Reading reading_;
  const std::byte* data_ = nullptr;
  bool is_whole_ = true;
  uint64_t skipped_ = 0;
  Status status_;
};

Status TooLittle(uint32_t rank) {
  return Error(kTransfer, fmt::format("EI0013: rank {} has sent less than its operator says", rank));
}

// Whether the data of a rank have to come from another machine first.
bool IsFar(const Operation& operation, uint32_t rank) {
  const Board& board = operation.communicator->board();
  return board.IsRemote(rank) && operation.SlotOf(rank).is_inline == 0;
}

void Fetch(Operation& operation, uint32_t rank, bool reduced, uint64_t offset, std::byte* to, uint64_t bytes) {
  if (operation.fetches == nullptr) operation.fetches = std::make_unique<Fetches>(operation.communicator->ranks());
  operation.communicator->board().net()->Fetch(
      {rank, 0, reduced ? wire::kFromReceive : wire::kFromSend, operation.running, offset, bytes, to},
      *operation.fetches);
}

// Memory for one thing of each rank, without an allocation for groups of the usual sizes.
template <class T>
class PerRank {
 public:
  explicit PerRank(size_t ranks) : many_(ranks > kFew ? new T[ranks]() : nullptr) {}
  T* data() { return many_ != nullptr ? many_.get() : few_; }
  T& operator[](size_t rank) { return data()[rank]; }

 private:
  static constexpr size_t kFew = 16;
  T few_[kFew] = {};
  std::unique_ptr<T[]> many_;
};

struct FoldJob {
  kernels::DType type;
  FoldKind kind;
  uint64_t element;
  std::byte* dst;
  const void* const* sources;
  size_t count;
};

// receive[i] = the reduction over all ranks of element `first` + i, of `count` elements. `room` has those of other
// machines, one after the other, `stride` bytes each.
Status FoldHere(device::RunContext& context, const Operation& operation, uint64_t first, std::byte* receive,
                uint64_t count, const std::byte* room, uint64_t stride) {
  if (count == 0) return {};
  const uint32_t ranks = operation.communicator->ranks();
  const uint64_t element = SizeOf(operation.call.type);
  PerRank<std::optional<Source>> sources(ranks);
  PerRank<const void*> data(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (IsFar(operation, rank)) {
      data[rank] = room;
      room += stride;
      continue;
    }
    Source& source = sources[rank].emplace(operation, rank);
    if (Status status = source.TakeStatus(); !status.ok()) return status;
    if (!source.Has(first * element, count * element)) return TooLittle(rank);
    data[rank] = source.data() + first * element;
  }
  FoldJob job{ReducedAs(operation.call.type),
              static_cast<FoldKind>(operation.call.reduction),
              element,
              receive,
              data.data(),
              ranks};
  context.scheduler().ParallelFor(
      static_cast<int64_t>(count),
      HasCoresLeft(operation) ? device::GrainOf({.elements = ranks}) : static_cast<int64_t>(count),
      [](void* argument, int64_t begin, int64_t end) {
        const auto& all = *static_cast<const FoldJob*>(argument);
        PerRank<const void*> at(all.count);
        for (size_t i = 0; i < all.count; ++i)
          at[i] = static_cast<const std::byte*>(all.sources[i]) + static_cast<uint64_t>(begin) * all.element;
        Fold(all.type, all.kind, all.dst + static_cast<uint64_t>(begin) * all.element, at.data(), all.count,
             end - begin);
      },
      &job);
  return {};
}

uint64_t PieceOf(const Folding& folding) { return std::min(folding.piece, folding.count - folding.done); }

// Asks other machines for the next piece of a reduction.
void FetchPiece(Operation& operation) {
  const Folding& folding = operation.folding;
  const uint64_t element = SizeOf(operation.call.type);
  std::byte* room = folding.room.get();
  for (uint32_t rank = 0; rank < operation.communicator->ranks(); ++rank) {
    if (!IsFar(operation, rank)) continue;
    Fetch(operation, rank, false, (folding.first + folding.done) * element, room, PieceOf(folding) * element);
    room += folding.piece * element;
  }
}

// FoldHere of what is here; else begins operation.folding.
Status FoldAll(device::RunContext& context, Operation& operation, uint64_t first, std::byte* receive, uint64_t count) {
  if (count == 0) return {};
  const Communicator& communicator = *operation.communicator;
  uint64_t far = 0;
  for (uint32_t rank = 0; communicator.board().net() != nullptr && rank < communicator.ranks(); ++rank)
    far += IsFar(operation, rank) ? 1 : 0;
  if (far == 0) return FoldHere(context, operation, first, receive, count, nullptr, 0);
  const uint64_t element = SizeOf(operation.call.type);
  const uint64_t most = (uint64_t{communicator.settings().buffer_mb} << 20) / (far * element);
  Folding& folding = operation.folding;
  folding = {first, receive, count, 0, std::min(count, std::max<uint64_t>(most, 64)), nullptr};
  folding.room.reset(new (std::nothrow) std::byte[far * folding.piece * element]);
  if (folding.room == nullptr) {
    return Error(kOutOfMemory, fmt::format("EI0007: the host has no {} bytes for data of other machines",
                                           far * folding.piece * element));
  }
  FetchPiece(operation);
  return {};
}

// Copies `bytes` at `offset` of what rank has.
Status CopyFrom(device::RunContext& context, Operation& operation, uint32_t rank, uint64_t offset, std::byte* receive,
                uint64_t bytes, bool reduced = false) {
  if (bytes == 0) return {};
  if (IsFar(operation, rank)) {
    Fetch(operation, rank, reduced, offset, receive, bytes);
    return {};
  }
  Source source(operation, rank, reduced);
  REPRISE_RETURN_IF_ERROR(source.TakeStatus());
  if (!source.Has(offset, bytes)) return TooLittle(rank);
  if (source.data() + offset == receive) return {};
  if (HasCoresLeft(operation)) {
    runtime::CopyBytes(context, receive, source.data() + offset, bytes);
  } else {
    std::memmove(receive, source.data() + offset, bytes);
  }
  return {};
}

// What an AlltoAll of any form takes from one rank.
struct Block {
  uint64_t from;  // elements
  uint64_t to;
  uint64_t count;
};
Block BlockOf(const Operation& operation, uint32_t peer) {
  const Call& call = operation.call;
  const Communicator& communicator = *operation.communicator;
  const uint32_t rank = communicator.rank();
  const uint32_t ranks = communicator.ranks();
  if (call.op == Operator::kAllToAll) return Block{rank * call.count, peer * call.count, call.count};
  const Vectors& vectors = *call.vectors;
  if (call.op == Operator::kAllToAllVC) {
    const uint64_t* const matrix = vectors.send_counts.data();
    Block block{0, 0, matrix[uint64_t{peer} * ranks + rank]};
    for (uint32_t i = 0; i < rank; ++i) block.from += matrix[uint64_t{peer} * ranks + i];
    for (uint32_t i = 0; i < peer; ++i) block.to += matrix[uint64_t{i} * ranks + rank];
    return block;
  }
  if (peer == rank) return Block{vectors.send_offsets[rank], vectors.receive_offsets[rank], vectors.send_counts[rank]};
  const auto* const values = reinterpret_cast<const uint64_t*>(operation.SlotOf(peer).data());
  // They were compared, but belong to another process.
  return Block{values[ranks + rank], vectors.receive_offsets[peer],
               std::min(values[rank], vectors.receive_counts[peer])};
}

}  // namespace

// ---- Reading ----

Reading::Reading(const Communicator& communicator, uint32_t rank, Slot& slot, const SlotKey& key) {
  if (rank == communicator.rank() || !communicator.IsLocal(rank)) return;
  slot.readers.fetch_add(1, std::memory_order_seq_cst);
  slot_ = &slot;
  is_open_ = slot.IsOpen(key);
}

void CloseSlot(Slot& slot, const SlotKey& key) noexcept {
  slot.closed.store(key.mark(), std::memory_order_seq_cst);
  while (slot.readers.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

Reading::~Reading() {
  if (slot_ != nullptr) slot_->readers.fetch_sub(1, std::memory_order_seq_cst);
}

// ---- Publishing ----

void FreeStaged(void** staged) noexcept {
  if (*staged == nullptr) return;
  (void)MemoryRegistry::Get().Free(*staged, device::MemoryKind::kDevice, true, device::Users::kNone);
  *staged = nullptr;
}

StatusOr<BufferRef> Expose(Communicator& communicator, const void* buffer, uint64_t bytes, void** staged) {
  BufferRef ref;
  ref.address = reinterpret_cast<uint64_t>(buffer);
  ref.bytes = bytes;
  if (!communicator.board().is_shared() || bytes == 0) return ref;
  const auto offer = [&](const void* at) -> Status {
    const std::optional<device::MemoryRange> range = MemoryRegistry::Get().Find(at);
    if (!range || range->kind != device::MemoryKind::kDevice ||
        (range->origin != device::MemoryOrigin::kHeap && range->origin != device::MemoryOrigin::kMmap) ||
        reinterpret_cast<uintptr_t>(at) + bytes > range->end())
      return Error(kMemory, "not a block of device memory");
    REPRISE_ASSIGN_OR_RETURN(const device::ShareKey key,
                             device::ExportMemory(reinterpret_cast<void*>(range->begin), range->bytes, false));
    ref.key = key.Pack();
    ref.offset = reinterpret_cast<uintptr_t>(at) - range->begin;
    return {};
  };
  if (offer(buffer).ok()) return ref;
  if (*staged == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(*staged, MemoryRegistry::Get().AllocateDevice(communicator.device(), bytes, 4096, true));
  }
  std::memcpy(*staged, buffer, bytes);
  REPRISE_RETURN_IF_ERROR(offer(*staged));
  return ref;
}

bool HasSecondStep(const Operation& operation) {
  return operation.call.op == Operator::kAllReduce && !operation.is_inline && operation.communicator->ranks() > 1;
}

bool IsExposed(const Operation& operation) { return !operation.is_inline && IsRead(operation); }

Status Publish(Operation& operation) {
  Communicator& communicator = *operation.communicator;
  const Call& call = operation.call;
  Slot& slot = operation.SlotOf(communicator.rank());
  const uint64_t bytes = call.SendBytes(communicator.rank(), communicator.ranks());
  operation.is_inline = FitsInline(operation);
  slot.Adopt(operation.running);
  slot.descriptor = operation.descriptor;
  slot.descriptor.number = operation.running.number;
  slot.descriptor.launch = operation.is_by_graph ? 1 : 0;
  slot.is_inline = operation.is_inline ? 1 : 0;
  slot.send = {};
  slot.receive = {};
  const auto as_memory = [](Status status) {
    return Error(kMemory, fmt::format("EI0011: a buffer cannot be shown to other ranks: {}", status.detail().what));
  };
  std::byte* data = slot.data();
  const uint64_t arrays = VectorBytes(call, communicator.ranks());
  if (arrays != 0) {
    const Vectors& vectors = *call.vectors;
    for (const auto* values : {&vectors.send_counts, &vectors.send_offsets, &vectors.receive_counts}) {
      std::memcpy(data, values->data(), arrays / 3);
      data += arrays / 3;
    }
  }
  slot.inline_used = static_cast<uint32_t>(arrays + (operation.is_inline && IsRead(operation) ? bytes : 0));
  if (operation.is_inline) {
    if (IsRead(operation) && bytes != 0) std::memcpy(data, call.send, bytes);
    return {};
  }
  if (IsRead(operation) && call.send != nullptr) {
    StatusOr<BufferRef> ref = Expose(communicator, call.send, bytes, &operation.staged[0]);
    if (!ref.ok()) return as_memory(std::move(ref).status());
    slot.send = *ref;
  }
  if (HasSecondStep(operation)) {
    StatusOr<BufferRef> ref = Expose(communicator, call.receive, bytes, &operation.staged[1]);
    if (!ref.ok()) return as_memory(std::move(ref).status());
    slot.receive = *ref;
  }
  return {};
}

// ---- Moving ----

Status MoveArrived(device::RunContext& context, Operation& operation) {
  const Call& call = operation.call;
  Communicator& communicator = *operation.communicator;
  const uint32_t rank = communicator.rank();
  const uint32_t ranks = communicator.ranks();
  const uint64_t element = SizeOf(call.type);
  const uint64_t bytes = call.count * element;
  switch (call.op) {
    case Operator::kBarrier:
    case Operator::kCondition: return {};
    case Operator::kAllReduce: {
      if (!HasSecondStep(operation)) return FoldAll(context, operation, 0, call.receive, call.count);
      const Part part = PartOf(call, rank, ranks);
      std::byte* const to = call.receive + part.begin * element;
      return FoldAll(context, operation, part.begin, to, part.count);
    }
    case Operator::kReduce:
      return rank == call.root ? FoldAll(context, operation, 0, call.receive, call.count) : Status();
    case Operator::kReduceScatter: return FoldAll(context, operation, rank * call.count, call.receive, call.count);
    case Operator::kReduceScatterV:
      return FoldAll(context, operation, call.vectors->send_offsets[rank], call.receive,
                     call.vectors->send_counts[rank]);
    case Operator::kBroadcast:
      return rank == call.root ? Status() : CopyFrom(context, operation, call.root, 0, call.receive, bytes);
    case Operator::kScatter: return CopyFrom(context, operation, call.root, rank * bytes, call.receive, bytes);
    case Operator::kAllGather:
    case Operator::kAllGatherV:
      for (uint32_t i = 0; i < ranks; ++i) {
        const uint32_t peer = (rank + i) % ranks;  // not all at the same memory
        const bool is_even = call.op == Operator::kAllGather;
        const uint64_t offset = is_even ? peer * call.count : call.vectors->receive_offsets[peer];
        const uint64_t count = is_even ? call.count : call.vectors->receive_counts[peer];
        REPRISE_RETURN_IF_ERROR(
            CopyFrom(context, operation, peer, 0, call.receive + offset * element, count * element));
      }
      return {};
    case Operator::kAllToAll:
    case Operator::kAllToAllV:
    case Operator::kAllToAllVC:
      for (uint32_t i = 0; i < ranks; ++i) {
        const uint32_t peer = (rank + i) % ranks;
        const Block block = BlockOf(operation, peer);
        REPRISE_RETURN_IF_ERROR(CopyFrom(context, operation, peer, block.from * element,
                                         call.receive + block.to * element, block.count * element));
      }
      return {};
    default: return Error(kInternal, "no collective");
  }
}

Status GoOnFolding(device::RunContext& context, Operation& operation) {
  Folding& folding = operation.folding;
  if (folding.count == 0) return {};
  const uint64_t element = SizeOf(operation.call.type);
  const uint64_t count = PieceOf(folding);
  REPRISE_RETURN_IF_ERROR(FoldHere(context, operation, folding.first + folding.done,
                                   folding.receive + folding.done * element, count, folding.room.get(),
                                   folding.piece * element));
  folding.done += count;
  if (folding.done == folding.count) {
    folding = {};
  } else {
    FetchPiece(operation);
  }
  return {};
}

void EndArrived(Operation& operation) noexcept {
  if (!HasSecondStep(operation) || operation.staged[1] == nullptr) return;
  const Call& call = operation.call;
  const uint64_t element = SizeOf(call.type);
  const Part part = PartOf(call, operation.communicator->rank(), operation.communicator->ranks());
  if (part.count == 0) return;
  std::memcpy(static_cast<std::byte*>(operation.staged[1]) + part.begin * element, call.receive + part.begin * element,
              part.count * element);
}

Status MoveReduced(device::RunContext& context, Operation& operation) {
  const Call& call = operation.call;
  const uint32_t rank = operation.communicator->rank();
  const uint32_t ranks = operation.communicator->ranks();
  const uint64_t element = SizeOf(call.type);
  for (uint32_t i = 1; i < ranks; ++i) {
    const uint32_t peer = (rank + i) % ranks;
    const Part part = PartOf(call, peer, ranks);
    REPRISE_RETURN_IF_ERROR(CopyFrom(context, operation, peer, part.begin * element,
                                     call.receive + part.begin * element, part.count * element, true));
  }
  return {};
}

}  // namespace reprise::collective
