// SPDX-License-Identifier: Apache-2.0
//
// Collective operators.
#include <cstdint>

#include "capture/session.h"
#include "collective/request.h"
#include "hccl/hccl.h"
#include "hccl_report.h"

namespace {

using reprise::Error;
using reprise::Status;
using reprise::collective::Operator;
using reprise::collective::Request;
using reprise::collective::TransferItem;

// Whether the stream takes an operator now.
Status Admit(const reprise::runtime::Stream& stream) {
  if (!stream.is_capturing()) [[likely]]
    return {};
  const auto info = reprise::capture::Info(stream);
  if (info.status == reprise::capture::CaptureStatus::kInvalidated) {
    return Error(reprise::collective::kRuntime, stream.Describe() + " is in a capture that was invalidated")
        .Culprit(reprise::capture::DescribeOpenCapture())
        .Hint("end the capture with aclmdlRICaptureEnd, which says why, and begin anew");
  }
  return {};
}

HcclResult Enter(const char* api, const Request& request) {
  return reprise::hccl::Api(api, [&] { return reprise::collective::Enter(request, Admit); });
}

HcclResult EnterOne(const char* api, int direction, void* buffer, uint64_t count, int type, uint32_t peer,
                    HcclComm comm, aclrtStream stream) {
  const TransferItem item{direction, buffer, count, type, peer};
  return reprise::hccl::Api(api,
                            [&] { return reprise::collective::EnterTransfers(&item, 1, false, comm, stream, Admit); });
}

const uint64_t* Counts(const void* array) { return static_cast<const uint64_t*>(array); }

static_assert(sizeof(TransferItem) == sizeof(HcclSendRecvItem) && alignof(TransferItem) == alignof(HcclSendRecvItem));
static_assert(offsetof(TransferItem, count) == offsetof(HcclSendRecvItem, count) &&
              offsetof(TransferItem, peer) == offsetof(HcclSendRecvItem, remoteRank));

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
  return Enter("HcclAllReduce", {.op = Operator::kAllReduce,
                                 .send = sendBuf,
                                 .receive = recvBuf,
                                 .count = count,
                                 .type = dataType,
                                 .reduction = op,
                                 .communicator = comm,
                                 .stream = stream});
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                      uint32_t root, HcclComm comm, aclrtStream stream) {
  return Enter("HcclReduce", {.op = Operator::kReduce,
                              .send = sendBuf,
                              .receive = recvBuf,
                              .count = count,
                              .type = dataType,
                              .reduction = op,
                              .root = root,
                              .communicator = comm,
                              .stream = stream});
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
  return Enter("HcclReduceScatter", {.op = Operator::kReduceScatter,
                                     .send = sendBuf,
                                     .receive = recvBuf,
                                     .count = recvCount,
                                     .type = dataType,
                                     .reduction = op,
                                     .communicator = comm,
                                     .stream = stream});
}

HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls, void* recvBuf,
                              uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                              aclrtStream stream) {
  return Enter("HcclReduceScatterV", {.op = Operator::kReduceScatterV,
                                      .send = sendBuf,
                                      .receive = recvBuf,
                                      .type = dataType,
                                      .reduction = op,
                                      .communicator = comm,
                                      .stream = stream,
                                      .other_count = recvCount,
                                      .send_counts = Counts(sendCounts),
                                      .send_offsets = Counts(sendDispls)});
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
  return Enter("HcclAllGather", {.op = Operator::kAllGather,
                                 .send = sendBuf,
                                 .receive = recvBuf,
                                 .count = sendCount,
                                 .type = dataType,
                                 .communicator = comm,
                                 .stream = stream});
}

HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm, aclrtStream stream) {
  return Enter("HcclAllGatherV", {.op = Operator::kAllGatherV,
                                  .send = sendBuf,
                                  .receive = recvBuf,
                                  .type = dataType,
                                  .communicator = comm,
                                  .stream = stream,
                                  .other_count = sendCount,
                                  .receive_counts = Counts(recvCounts),
                                  .receive_offsets = Counts(recvDispls)});
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return Enter("HcclBroadcast", {.op = Operator::kBroadcast,
                                 .send = buf,
                                 .receive = buf,
                                 .count = count,
                                 .type = dataType,
                                 .root = root,
                                 .communicator = comm,
                                 .stream = stream});
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root,
                       HcclComm comm, aclrtStream stream) {
  return Enter("HcclScatter", {.op = Operator::kScatter,
                               .send = sendBuf,
                               .receive = recvBuf,
                               .count = recvCount,
                               .type = dataType,
                               .root = root,
                               .communicator = comm,
                               .stream = stream});
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return Enter("HcclAlltoAll", {.op = Operator::kAllToAll,
                                .send = sendBuf,
                                .receive = recvBuf,
                                .count = sendCount,
                                .type = sendType,
                                .communicator = comm,
                                .stream = stream,
                                .other_count = recvCount,
                                .other_type = recvType});
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls, HcclDataType sendType,
                         const void* recvBuf, const void* recvCounts, const void* rdispls, HcclDataType recvType,
                         HcclComm comm, aclrtStream stream) {
  return Enter("HcclAlltoAllV", {.op = Operator::kAllToAllV,
                                 .send = sendBuf,
                                 .receive = recvBuf,
                                 .type = sendType,
                                 .communicator = comm,
                                 .stream = stream,
                                 .other_type = recvType,
                                 .send_counts = Counts(sendCounts),
                                 .send_offsets = Counts(sdispls),
                                 .receive_counts = Counts(recvCounts),
                                 .receive_offsets = Counts(rdispls)});
}

HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType, const void* recvBuf,
                          HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return Enter("HcclAlltoAllVC", {.op = Operator::kAllToAllVC,
                                  .send = sendBuf,
                                  .receive = recvBuf,
                                  .type = sendType,
                                  .communicator = comm,
                                  .stream = stream,
                                  .other_type = recvType,
                                  .send_counts = Counts(sendCountMatrix)});
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return Enter("HcclBarrier", {.op = Operator::kBarrier, .communicator = comm, .stream = stream});
}

HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm,
                    aclrtStream stream) {
  return EnterOne("HcclSend", HCCL_SEND, sendBuf, count, dataType, destRank, comm, stream);
}

HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm,
                    aclrtStream stream) {
  return EnterOne("HcclRecv", HCCL_RECV, recvBuf, count, dataType, srcRank, comm, stream);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream) {
  return reprise::hccl::Api("HcclBatchSendRecv", [&] {
    return reprise::collective::EnterTransfers(reinterpret_cast<const TransferItem*>(sendRecvInfo), itemNum, true, comm,
                                               stream, Admit);
  });
}

}  // extern "C"
#pragma GCC visibility pop
