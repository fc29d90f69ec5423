/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: how ranks meet, what a communicator says about itself, groups of calls, memory of communicators.
 *
 * A rank is one participant: a process, a thread, or one of several in the same thread. Functions that create
 * communicators wait for the other ranks. Inside of a group (HcclGroupStart, HcclGroupEnd) they do not, so one thread
 * can create all ranks of a process.
 */
#ifndef REPRISE_HCCL_HCCL_COMM_H_
#define REPRISE_HCCL_HCCL_COMM_H_

#include <string.h>

#include "acl/acl.h"
#include "hccl/hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes the token of a new group. One rank calls this and hands the 4108 bytes to all others; a token is good once. */
HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);
/** Joins the group of a token as rank `rank` of `nRanks`; returns when all ranks have come, or after
 *  HCCL_CONNECT_TIMEOUT seconds with HCCL_E_TIMEOUT. */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm);
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm);
/** As HcclGetRootInfo, on each of several ranks. */
HcclResult HcclGetRootInfoScalable(HcclRootInfo* rootInfo);
/** As HcclCommInitRootInfoConfig with several tokens, the same list on all ranks. `nExtRoot` must be 0. */
HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot, const HcclRootInfo* rootInfoList,
                                        uint32_t rank, uint32_t nExtRoot, const HcclCommConfig* config, HcclComm* comm);
/** Joins the group that a rank table (a file of JSON) describes. */
HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm);
HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank, HcclCommConfig* config,
                                         HcclComm* comm);
/** Makes the communicators of all ranks of one process: comms[i] is rank i, on device devices[i]. */
HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms);
/** Makes a communicator of some ranks of another one. Ranks that are no members pass a null list and the id
 *  0xFFFFFFFF, or do not call. */
HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig* config, HcclComm* subComm);
/** Destroys; null is a success. HCCL_E_AGAIN while an operator of this rank moves data. */
HcclResult HcclCommDestroy(HcclComm comm);

HcclResult HcclGetCommName(HcclComm comm, char* commName);
HcclResult HcclCommGetHandleWithName(const char* commName, HcclComm* comm);
HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank);
/** The error that an operator of the communicator has left behind, 0 when none has; it stays. With an error,
 *  aclGetRecentErrMsg of this thread then has its words: operator, ranks, reason. */
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError);
/** Never null. */
const char* HcclGetErrorString(HcclResult code);

uint32_t HcclGetCommConfigCapability(void);
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue);
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue);
HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen, void* info);

/** From now on operators are refused and waiting ones end, until HcclCommResume. */
HcclResult HcclCommSuspend(HcclComm comm);
/** Forgets the error of the communicator. All ranks resume before any of them uses it again. */
HcclResult HcclCommResume(HcclComm comm);
HcclResult HcclCommGetStatus(const char* commId, HcclCommStatus* status);
HcclResult HcclCommRegCommStateCallback(const char* regName, HcclCommStateCallback cb, void* args);
HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t* ranks, bool* useBackup, uint32_t nRanks);

/** No rank passes it on its stream before all have reached it. */
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

/** Calls of this thread up to HcclGroupEnd are submitted together. Groups may be nested. */
HcclResult HcclGroupStart(void);
HcclResult HcclGroupEnd(void);
HcclResult HcclGroupStatusGet(bool* isGroupEnabled);

HcclResult HcclCommSetMemoryRange(HcclComm comm, void* baseVirPtr, size_t size, size_t alignment, uint64_t flags);
HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void* baseVirPtr);
HcclResult HcclCommActivateCommMemory(HcclComm comm, void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                                      uint64_t flags);
HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void* virPtr);
HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle, uint32_t flag);
HcclResult HcclCommDeregister(HcclComm comm, void* handle);
HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks, uint32_t peerRankNum);
/** Collective: all ranks register memory of the same size. `flag` must be 1. */
HcclResult HcclCommSymWinRegister(HcclComm comm, void* addr, uint64_t size, HcclCommSymWindow* winHandle,
                                  uint32_t flag);
HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle);
HcclResult HcclCommSymWinGet(HcclComm comm, void* ptr, size_t size, HcclCommSymWindow* winHandle, size_t* offset);

/** Device memory in steps of 2 MiB, in libhcomm.so. */
typedef int32_t HcommResult;
HcommResult HcommMemAlloc(void** ptr, size_t size);
HcommResult HcommMemFree(void* ptr);

/** Fills a configuration with its header and with nothing set. */
static inline void HcclCommConfigInit(HcclCommConfig* config) {
  const uint64_t size = sizeof(HcclCommConfig);
  const uint32_t magic = HCCL_COMM_CONFIG_MAGIC_WORD;
  const uint32_t version = HCCL_COMM_CONFIG_VERSION;
  if (!config) return;
  memset(config, 0, sizeof(HcclCommConfig));
  memcpy(config->reserved, &size, sizeof size);
  memcpy(config->reserved + 8, &magic, sizeof magic);
  memcpy(config->reserved + 12, &version, sizeof version);
  config->hcclBufferSize = HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET;
  config->hcclDeterministic = HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET;
  config->hcclRdmaTrafficClass = HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET;
  config->hcclRdmaServiceLevel = HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET;
  config->hcclExecTimeOut = HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET;
  config->hcclQos = HCCL_COMM_QOS_CONFIG_NOT_SET;
  config->hcclSymWinMaxMemSizePerRank = HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE;
  config->hcclChannelSqDepth = HCCL_COMM_CHANNEL_SQ_DEPTH_CONFIG_NOT_SET;
}

#ifdef __cplusplus
}
#endif
#endif
