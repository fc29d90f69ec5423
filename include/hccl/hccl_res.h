/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads, channels and contexts of operator developers. Refused here with HCCL_E_NOT_SUPPORT.
 */
#ifndef REPRISE_HCCL_HCCL_RES_H_
#define REPRISE_HCCL_HCCL_RES_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

HcclResult HcclChannelAcquire(HcclComm comm, CommEngine engine, const HcclChannelDesc* channelDescs,
                              uint32_t channelNum, ChannelHandle* channels);
HcclResult HcclChannelGetHcclBuffer(HcclComm comm, ChannelHandle channel, void** buffer, uint64_t* size);
HcclResult HcclChannelGetRemoteMems(HcclComm comm, ChannelHandle channel, uint32_t* memNum, CommMem** remoteMems,
                                    char*** memTags);
HcclResult HcclCommMemReg(HcclComm comm, const char* memTag, const CommMem* mem, HcclMemHandle* memHandle);
HcclResult HcclDedicatedThreadAcquire(HcclComm comm, HcclDedicatedThreadType useType, uint32_t notifyNumPerThread,
                                      ThreadHandle* thread);
HcclResult HcclEngineCtxCopy(HcclComm comm, CommEngine engine, const char* ctxTag, const void* srcCtx, uint64_t size,
                             uint64_t dstCtxOffset);
HcclResult HcclEngineCtxCreate(HcclComm comm, const char* ctxTag, CommEngine engine, uint64_t size, void** ctx);
HcclResult HcclEngineCtxDestroy(HcclComm comm, const char* ctxTag, CommEngine engine);
HcclResult HcclEngineCtxGet(HcclComm comm, const char* ctxTag, CommEngine engine, void** ctx, uint64_t* size);
HcclResult HcclGetHcclBuffer(HcclComm comm, void** buffer, uint64_t* size);
HcclResult HcclGetHcclBufferCleared(HcclComm comm, void** buffer, uint64_t* size);
HcclResult HcclThreadAcquire(HcclComm comm, CommEngine engine, uint32_t threadNum, uint32_t notifyNumPerThread,
                             ThreadHandle* threads);
HcclResult HcclThreadAcquireWithConfig(HcclComm comm, CommEngine engine, uint32_t threadNum, ThreadType type,
                                       const ThreadConfig* config, ThreadHandle* threads);
HcclResult HcclThreadAcquireWithStream(HcclComm comm, CommEngine engine, aclrtStream stream, uint32_t notifyNum,
                                       ThreadHandle* thread);
HcclResult HcclThreadResGetInfo(HcclComm comm, ThreadHandle thread, ThreadResType resType, uint32_t infoLen,
                                void** info);

#ifdef __cplusplus
}
#endif
#endif
