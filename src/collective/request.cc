// SPDX-License-Identifier: Apache-2.0
#include "collective/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/operation.h"
#include "device/memory.h"

namespace reprise::collective {
namespace {

// An offset beyond that is no place in memory, and sums stay far from wrapping around.
constexpr uint64_t kMostOffset = uint64_t{1} << 48;

Status Bad(const char* parameter, std::string what, const char* hint) {
  return Error(kParameter, std::move(what)).Culprit(fmt::format("parameter {}", parameter)).Hint(hint);
}

Status Null(const char* parameter) {
  return Error(kPointer, fmt::format("{} is null", parameter))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass the address of memory, or a live handle");
}

// A buffer of a device operator.
Status CheckBuffer(const Communicator& communicator, const void* buffer, uint64_t bytes, uint32_t alignment,
                   const char* what) {
  if (bytes == 0) return {};
  if (buffer == nullptr) return Null(what);
  if (reinterpret_cast<uintptr_t>(buffer) % alignment != 0) {
    return Bad(
        what,
        fmt::format("{} {} is not at a multiple of the {} bytes of an element", what, fmt::ptr(buffer), alignment),
        "align buffers of reductions to their elements");
  }
  if (!device::ChecksPointers()) return {};
  auto range = device::MemoryRegistry::Get().CheckRange(buffer, bytes, what);
  if (!range.ok()) {
    const Status why = std::move(range).status();
    return Bad(what, why.detail().what, "pass a buffer that is as large as the counts say");
  }
  if (range->kind == device::MemoryKind::kPageable) {
    return Bad(what,
               fmt::format("{} is no memory of a device: {} {}", what, fmt::ptr(buffer),
                           device::MemoryRegistry::Get().Explain(buffer)),
               "pass memory of aclrtMalloc, or of aclrtMallocHost");
  }
  if (range->kind == device::MemoryKind::kDevice && range->device != communicator.device()) {
    return Bad(what,
               fmt::format("{} lies on device {}, the communicator is of device {}", what, range->device,
                           communicator.device()),
               "pass memory of the communicator's device");
  }
  return {};
}

StatusOr<runtime::Stream*> FindStreamOf(const Communicator& communicator, void* handle) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, runtime::FindAnyStream(handle));
  if (stream->device().id() != communicator.device()) {
    return Bad("stream",
               fmt::format("{} is of device {}, the communicator of device {}", stream->Describe(),
                           stream->device().id(), communicator.device()),
               "pass a stream of the communicator's device");
  }
  return stream;
}

Status CheckCount(const char* parameter, uint64_t count) {
  if (count <= kMostElements) return {};
  return Bad(parameter, fmt::format("{} is {}, the most is {}", parameter, count, kMostElements), "move less at once");
}

Status CheckType(int type, bool reduces, int reduction) {
  if (SizeOf(type) == 0) {
    return Error(kNotSupported, fmt::format("dataType {} is no type", type))
        .Culprit("parameter dataType")
        .Hint("pass one of HcclDataType");
  }
  if (!reduces) return {};
  if (ReducedAs(type) == kernels::DType::kUndefined) {
    return Error(kNotSupported, fmt::format("data of type {} cannot be reduced", NameOfType(type)))
        .Culprit("parameter dataType")
        .Hint("reduce integers up to 64 bits, fp16, bfp16, fp32 or fp64");
  }
  if (reduction < 0 || reduction > 3) {
    return Error(kNotSupported, fmt::format("op {} is no reduction", reduction))
        .Culprit("parameter op")
        .Hint("pass HCCL_REDUCE_SUM, PROD, MAX or MIN");
  }
  return {};
}

Status CheckRank(const char* parameter, uint32_t rank, uint32_t ranks) {
  if (rank < ranks) return {};
  return Bad(parameter, fmt::format("{} is {}, the communicator has {} ranks", parameter, rank, ranks),
             "pass a rank of the communicator");
}

// ---- Groups ----

struct Pending {
  Communicator* communicator;
  void* stream;
  Admit admit;
  Call call;
};

struct Group {
  uint32_t depth = 0;
  std::vector<Pending> calls;
  std::vector<Management> managements;
  std::vector<Communicator*> failed;  // nothing of theirs is submitted
  Status error;                       // the first

  void Clear() {
    for (const Pending& pending : calls) pending.communicator->Release();
    calls.clear();
    managements.clear();
    failed.clear();
    error = Status();
  }
};

Group& ThisGroup() {
  static thread_local Group group;
  return group;
}

Status Start(Communicator& communicator, void* stream, Call call, Admit admit) {
  Group& group = ThisGroup();
  if (group.depth != 0) {
    communicator.Retain();
    group.calls.push_back({&communicator, stream, admit, std::move(call)});
    return {};
  }
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, FindStreamOf(communicator, stream));
  REPRISE_RETURN_IF_ERROR(admit(*found));
  return Submit(*found, communicator, std::move(call));
}

// Notes an error of a call in a group for its end.
Status Noted(Status status, Communicator* communicator) {
  Group& group = ThisGroup();
  if (status.ok() || group.depth == 0) return status;
  if (group.error.ok()) group.error = status.Clone();
  if (communicator != nullptr) group.failed.push_back(communicator);
  return status;
}

// ---- Arguments ----

Status CopyArray(const uint64_t* values, size_t count, const char* name, std::vector<uint64_t>& copy, uint64_t most) {
  if (values == nullptr) return Null(name);
  copy.assign(values, values + count);
  for (size_t i = 0; i < count; ++i) {
    if (copy[i] <= most) continue;
    return Bad(name, fmt::format("{}[{}] is {}, the most is {}", name, i, copy[i], most), "move less at once");
  }
  return {};
}

// The arrays of the V forms.
Status TakeArrays(const Request& request, const Communicator& communicator, Call& call) {
  const uint32_t ranks = communicator.ranks();
  const uint32_t rank = communicator.rank();
  call.vectors = std::make_unique<Vectors>();
  Vectors& vectors = *call.vectors;
  switch (request.op) {
    case Operator::kAllGatherV:
      REPRISE_RETURN_IF_ERROR(
          CopyArray(request.receive_counts, ranks, "recvCounts", vectors.receive_counts, kMostElements));
      REPRISE_RETURN_IF_ERROR(
          CopyArray(request.receive_offsets, ranks, "recvDispls", vectors.receive_offsets, kMostOffset));
      if (vectors.receive_counts[rank] != request.other_count) {
        return Bad("sendCount",
                   fmt::format("sendCount is {}, recvCounts[{}] of this rank {}", request.other_count, rank,
                               vectors.receive_counts[rank]),
                   "pass what the array says of this rank");
      }
      return {};
    case Operator::kReduceScatterV:
      REPRISE_RETURN_IF_ERROR(CopyArray(request.send_counts, ranks, "sendCounts", vectors.send_counts, kMostElements));
      REPRISE_RETURN_IF_ERROR(CopyArray(request.send_offsets, ranks, "sendDispls", vectors.send_offsets, kMostOffset));
      if (vectors.send_counts[rank] != request.other_count) {
        return Bad("recvCount",
                   fmt::format("recvCount is {}, sendCounts[{}] of this rank {}", request.other_count, rank,
                               vectors.send_counts[rank]),
                   "pass what the array says of this rank");
      }
      return {};
    case Operator::kAllToAllV:
      REPRISE_RETURN_IF_ERROR(CopyArray(request.send_counts, ranks, "sendCounts", vectors.send_counts, kMostElements));
      REPRISE_RETURN_IF_ERROR(CopyArray(request.send_offsets, ranks, "sdispls", vectors.send_offsets, kMostOffset));
      REPRISE_RETURN_IF_ERROR(
          CopyArray(request.receive_counts, ranks, "recvCounts", vectors.receive_counts, kMostElements));
      return CopyArray(request.receive_offsets, ranks, "rdispls", vectors.receive_offsets, kMostOffset);
    default:
      return CopyArray(request.send_counts, size_t{ranks} * ranks, "sendCountMatrix", vectors.send_counts,
                       kMostElements);
  }
}

bool IsAllToAll(Operator op) {
  return op == Operator::kAllToAll || op == Operator::kAllToAllV || op == Operator::kAllToAllVC;
}

Status CheckAllToAll(const Request& request) {
  if (!IsAllToAll(request.op)) return {};
  if (request.type != request.other_type) {
    return Bad("recvType",
               fmt::format("recvType is {}, sendType {}", NameOfType(request.other_type), NameOfType(request.type)),
               "pass one type for both");
  }
  if (request.op == Operator::kAllToAll && request.count != request.other_count) {
    return Bad("recvCount", fmt::format("recvCount is {}, sendCount {}", request.other_count, request.count),
               "pass one count for both");
  }
  return {};
}

Status Check(const Request& request, Communicator& communicator, Call& call, bool has_arrays) {
  const bool reduces = IsReduction(request.op);
  REPRISE_RETURN_IF_ERROR(CheckCount("count", request.count));
  REPRISE_RETURN_IF_ERROR(CheckType(request.type, reduces, request.reduction));
  REPRISE_RETURN_IF_ERROR(CheckAllToAll(request));
  if (HasRoot(request.op)) REPRISE_RETURN_IF_ERROR(CheckRank("root", request.root, communicator.ranks()));
  call.op = request.op;
  call.type = static_cast<uint8_t>(request.type);
  call.reduction = reduces ? static_cast<uint8_t>(request.reduction) : uint8_t{0};
  call.root = HasRoot(request.op) ? request.root : 0;
  call.count = request.count;
  call.send = static_cast<const std::byte*>(request.send);
  call.receive = static_cast<std::byte*>(const_cast<void*>(request.receive));
  if (has_arrays) REPRISE_RETURN_IF_ERROR(TakeArrays(request, communicator, call));
  const uint32_t rank = communicator.rank();
  const uint64_t send_bytes = call.SendBytes(rank, communicator.ranks());
  const uint64_t receive_bytes = call.ReceiveBytes(rank, communicator.ranks());
  const uint32_t alignment = reduces ? SizeOf(request.type) : 1;
  const char* const send_name = request.op == Operator::kBroadcast ? "buf" : "sendBuf";
  const char* const receive_name = request.op == Operator::kBroadcast ? "buf" : "recvBuf";
  REPRISE_RETURN_IF_ERROR(CheckBuffer(communicator, request.send, send_bytes, alignment, send_name));
  REPRISE_RETURN_IF_ERROR(CheckBuffer(communicator, request.receive, receive_bytes, alignment, receive_name));
  const bool in_place = request.send == request.receive && request.send != nullptr;
  if (in_place && (IsAllToAll(request.op) || request.op == Operator::kReduceScatterV)) {
    return Bad("recvBuf", fmt::format("{} does not work in place", NameOf(request.op)),
               "pass another buffer to receive");
  }
  return {};
}

Status DoEnter(const Request& request, Admit admit, Communicator*& communicator) {
  const bool has_arrays = request.op == Operator::kAllGatherV || request.op == Operator::kReduceScatterV ||
                          request.op == Operator::kAllToAllV || request.op == Operator::kAllToAllVC;
  const bool is_barrier = request.op == Operator::kBarrier;
  if (!has_arrays && !is_barrier && request.count == 0 && request.other_count == 0) return {};
  if (request.stream == nullptr) return Null("stream");
  if (request.communicator == nullptr) return Null("comm");
  // Whether the rank sends or receives at all depends on the communicator only where a root is named.
  if (!is_barrier && !has_arrays) {
    if (request.send == nullptr && request.op != Operator::kScatter)
      return Null(request.op == Operator::kBroadcast ? "buf" : "sendBuf");
    if (request.receive == nullptr && request.op != Operator::kReduce) return Null("recvBuf");
  }
  REPRISE_ASSIGN_OR_RETURN(communicator, FindCommunicator(request.communicator));
  Call call;
  REPRISE_RETURN_IF_ERROR(Check(request, *communicator, call, has_arrays));
  REPRISE_RETURN_IF_ERROR(communicator->CheckUsable());
  return Start(*communicator, request.stream, std::move(call), admit);
}

Status DoEnterTransfers(const TransferItem* items, uint32_t count, bool is_batch, void* handle, void* stream,
                        Admit admit, Communicator*& communicator) {
  if (count == 0 || (!is_batch && items[0].count == 0)) return {};
  if (stream == nullptr) return Null("stream");
  if (handle == nullptr) return Null("comm");
  if (items == nullptr) return Null("sendRecvInfo");
  if (!is_batch && items[0].buffer == nullptr) return Null(items[0].direction == 0 ? "sendBuf" : "recvBuf");
  if (is_batch && IsInGroup()) {
    return Error(kNotSupported, "HcclBatchSendRecv cannot be called in a group")
        .Culprit("the group of this thread")
        .Hint("call HcclSend and HcclRecv in the group, or HcclBatchSendRecv outside");
  }
  REPRISE_ASSIGN_OR_RETURN(communicator, FindCommunicator(handle));
  Call call;
  std::vector<int64_t> to_self(2);
  for (uint32_t i = 0; i < count; ++i) {
    const TransferItem& item = items[i];
    if (item.direction != 0 && item.direction != 1)
      return Bad("sendRecvInfo", fmt::format("sendRecvType of item {} is {}", i, item.direction),
                 "pass HCCL_SEND or HCCL_RECV");
    REPRISE_RETURN_IF_ERROR(CheckCount("count", item.count));
    REPRISE_RETURN_IF_ERROR(CheckType(item.type, false, 0));
    const char* const peer = is_batch ? "remoteRank" : item.direction == 0 ? "destRank" : "srcRank";
    REPRISE_RETURN_IF_ERROR(CheckRank(peer, item.peer, communicator->ranks()));
    if (item.peer == communicator->rank() && !is_batch && !IsInGroup()) {
      return Error(kNotSupported, fmt::format("{} is this rank itself", peer))
          .Culprit(fmt::format("parameter {}", peer))
          .Hint("send to oneself in a group, or with HcclBatchSendRecv");
    }
    if (item.peer == communicator->rank()) to_self[static_cast<size_t>(item.direction)] += 1;
    if (item.count == 0) continue;
    REPRISE_RETURN_IF_ERROR(CheckBuffer(*communicator, item.buffer, item.count * SizeOf(item.type), 1,
                                        is_batch              ? "sendRecvInfo.buf"
                                        : item.direction == 0 ? "sendBuf"
                                                              : "recvBuf"));
    Transfer transfer;
    transfer.is_send = item.direction == 0;
    transfer.type = static_cast<uint8_t>(item.type);
    transfer.peer = item.peer;
    transfer.count = item.count;
    transfer.buffer = static_cast<std::byte*>(item.buffer);
    call.transfers.push_back(transfer);
  }
  if (is_batch && to_self[0] != to_self[1]) {
    return Bad("sendRecvInfo", fmt::format("{} sends of this rank to itself and {} receives", to_self[0], to_self[1]),
               "match each send to oneself with a receive");
  }
  if (call.transfers.empty()) return {};
  call.op = is_batch ? Operator::kBatchSendReceive : call.transfers[0].is_send ? Operator::kSend : Operator::kReceive;
  call.count = call.transfers[0].count;
  call.type = call.transfers[0].type;
  REPRISE_RETURN_IF_ERROR(communicator->CheckUsable());
  return Start(*communicator, stream, std::move(call), admit);
}

// Sends and receives of one communicator and stream become one task, at the place of the first.
void MergeTransfers(std::vector<Pending>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].call.transfers.empty()) continue;
    for (size_t k = i + 1; k < calls.size();) {
      Pending& other = calls[k];
      const bool fits = !other.call.transfers.empty() && other.communicator == calls[i].communicator &&
                        other.stream == calls[i].stream;
      if (!fits) {
        ++k;
        continue;
      }
      calls[i].call.op = Operator::kBatchSendReceive;
      for (const Transfer& transfer : other.call.transfers) calls[i].call.transfers.push_back(transfer);
      other.communicator->Release();
      calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

Status RunManagements(std::vector<Management>& managements) {
  Status first;
  const auto note = [&](Status status) {
    if (!status.ok() && first.ok()) first = std::move(status);
  };
  for (const auto step : {&Management::begin, &Management::meet, &Management::link, &Management::finish}) {
    for (Management& management : managements) {
      if (management.*step) note((management.*step)());
    }
  }
  return first;
}

}  // namespace

Status Enter(const Request& request, Admit admit) {
  Communicator* communicator = nullptr;
  Status status = DoEnter(request, admit, communicator);
  return Noted(std::move(status), communicator);
}

Status EnterTransfers(const TransferItem* items, uint32_t count, bool is_batch, void* handle, void* stream,
                      Admit admit) {
  Communicator* communicator = nullptr;
  Status status = DoEnterTransfers(items, count, is_batch, handle, stream, admit, communicator);
  return Noted(std::move(status), communicator);
}

void StartGroup() { ++ThisGroup().depth; }
bool IsInGroup() { return ThisGroup().depth != 0; }

Status EndGroup() {
  Group& group = ThisGroup();
  if (group.depth == 0) {
    return Error(kNotSupported, "no group has begun on this thread")
        .Culprit("the calling thread")
        .Hint("call HcclGroupStart first, on the same thread");
  }
  if (--group.depth != 0) return {};
  Group ended;
  std::swap(ended, group);
  Status first = std::move(ended.error);
  if (!ended.managements.empty() && !ended.calls.empty()) {
    ended.Clear();
    return Error(kParameter, "the group has both operators and calls that make or destroy communicators")
        .Culprit("the group of this thread")
        .Hint("use two groups");
  }
  if (!ended.managements.empty()) {
    Status status = RunManagements(ended.managements);
    return first.ok() ? std::move(status) : std::move(first);
  }
  std::erase_if(ended.calls, [&](Pending& pending) {
    const bool failed = std::find(ended.failed.begin(), ended.failed.end(), pending.communicator) != ended.failed.end();
    if (failed) pending.communicator->Release();
    return failed;
  });
  MergeTransfers(ended.calls);
  for (Pending& pending : ended.calls) {
    Status status = Start(*pending.communicator, pending.stream, std::move(pending.call), pending.admit);
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  ended.Clear();
  return first;
}

Status Manage(Management management) {
  Group& group = ThisGroup();
  std::vector<Management> one;
  one.push_back(std::move(management));
  if (group.depth == 0) return RunManagements(one);
  group.managements.push_back(std::move(one.front()));
  return {};
}

}  // namespace reprise::collective
