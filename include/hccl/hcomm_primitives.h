/* SPDX-License-Identifier: Apache-2.0
 *
 * Data movement by operator developers (libhcomm.so). Refused here with HCCL_E_NOT_SUPPORT.
 */
#ifndef REPRISE_HCCL_HCOMM_PRIMITIVES_H_
#define REPRISE_HCCL_HCOMM_PRIMITIVES_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

int32_t HcommAclrtNotifyRecordOnThread(ThreadHandle thread, uint64_t dstNotifyId);
int32_t HcommAclrtNotifyWaitOnThread(ThreadHandle thread, uint64_t notifyId, uint32_t timeOut);
int32_t HcommAcquireComm(const char* commId);
int32_t HcommBatchModeEnd(const char* batchTag);
int32_t HcommBatchModeStart(const char* batchTag);
int32_t HcommChannelFence(ChannelHandle channel);
int32_t HcommChannelFenceOnThread(ThreadHandle thread, ChannelHandle channel);
int32_t HcommChannelNotifyRecord(ChannelHandle channel, uint32_t remoteNotifyIdx);
int32_t HcommChannelNotifyRecordOnThread(ThreadHandle thread, ChannelHandle channel, uint32_t remoteNotifyIdx);
int32_t HcommChannelNotifyWait(ChannelHandle channel, uint32_t localNotifyIdx, uint32_t timeOut);
int32_t HcommChannelNotifyWaitOnThread(ThreadHandle thread, ChannelHandle channel, uint32_t localNotifyIdx,
                                       uint32_t timeOut);
int32_t HcommFenceOnThread(ThreadHandle thread);
int32_t HcommLocalCopyOnThread(ThreadHandle thread, void* dst, const void* src, uint64_t len);
int32_t HcommLocalReduceOnThread(ThreadHandle thread, void* dst, const void* src, uint64_t count,
                                 HcommDataType dataType, HcommReduceOp reduceOp);
int32_t HcommReadNbi(ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommReadNbiOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommReadOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommReadReduceOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t count,
                                HcommDataType dataType, HcommReduceOp reduceOp);
int32_t HcommReleaseComm(const char* commId);
int32_t HcommThreadNotifyRecordOnThread(ThreadHandle thread, ThreadHandle dstThread, uint32_t dstNotifyIdx);
int32_t HcommThreadNotifyWaitOnThread(ThreadHandle thread, uint32_t notifyIdx, uint32_t timeOut);
int32_t HcommWriteNbi(ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommWriteNbiOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommWriteOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommWriteReduceOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t count,
                                 HcommDataType dataType, HcommReduceOp reduceOp);
int32_t HcommWriteReduceWithNotifyOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src,
                                           uint64_t count, HcommDataType dataType, HcommReduceOp reduceOp,
                                           uint32_t remoteNotifyIdx);
int32_t HcommWriteWithNotifyNbi(ChannelHandle channel, void* dst, const void* src, uint64_t len,
                                uint32_t remoteNotifyIdx);
int32_t HcommWriteWithNotifyNbiOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src,
                                        uint64_t len, uint32_t remoteNotifyIdx);
int32_t HcommWriteWithNotifyOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src,
                                     uint64_t len, uint32_t remoteNotifyIdx);

#ifdef __cplusplus
}
#endif
#endif
