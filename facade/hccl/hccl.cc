// SPDX-License-Identifier: Apache-2.0
//
// Collective communication, which is not here yet: what would need a communicator refuses with HCCL_E_NOT_SUPPORT.
// Process-wide configuration and texts of errors work.
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runtime/report.h"

using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::Refuse;

namespace {

constexpr int kHcclParameter = 1;     // HCCL_E_PARA
constexpr int kHcclPointer = 2;       // HCCL_E_PTR
constexpr int kHcclNotSupported = 5;  // HCCL_E_NOT_SUPPORT
constexpr int kHcclDeterministic = 0;
constexpr int kMostDeterministic = 2;  // strict order
// HcclCommConfigCapability: a communicator's configuration has eleven parts.
constexpr uint32_t kCapabilities = 12;

std::atomic<int32_t> g_deterministic{0};

int No(const char* api) {
  return Refuse(api, kHcclNotSupported, "there are no collectives on this device yet",
                "use the backend gloo: torch.distributed.init_process_group(\"gloo\"), with tensors of the CPU");
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

using HcclResult = int;
using HcclDataType = int;
using HcclReduceOp = int;
using HcclConfig = int;
using HcclConfigType = int;
using HcclComm = void*;
using HcclCommSymWindow = void*;
using aclrtStream = void*;
using aclrtDrvMemHandle = void*;
using HcclCommStateCallback = void*;
using HcclCommStatus = int;
struct HcclSendRecvItem;
struct HcclCommConfig;
struct HcclRootInfo;
union HcclConfigValue {
  int32_t value;
};

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
  return Api("HcclSetConfig", [&]() -> Status {
    if (config != kHcclDeterministic) return {};
    if (configValue.value < 0 || configValue.value > kMostDeterministic) {
      return Error(kHcclParameter, fmt::format("configValue of HCCL_DETERMINISTIC is {}, must be 0 to {}",
                                               configValue.value, kMostDeterministic))
          .Culprit("parameter configValue")
          .Hint("pass 0 (off), 1 (on) or 2 (strict order)");
    }
    g_deterministic.store(configValue.value, std::memory_order_relaxed);
    return {};
  });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue) {
  return Api("HcclGetConfig", [&]() -> Status {
    if (configValue == nullptr) {
      return Error(kHcclPointer, "configValue is null")
          .Culprit("parameter configValue")
          .Hint("pass the address of an HcclConfigValue");
    }
    configValue->value = config == kHcclDeterministic ? g_deterministic.load(std::memory_order_relaxed) : 0;
    return {};
  });
}

const char* HcclGetErrorString(HcclResult code) {
  static const char* const texts[] = {
      "success",
      "a parameter has a value that is not allowed",
      "a required pointer is null",
      "a call for memory failed",
      "internal error",
      "not supported",
      "resource not found",
      "resource unavailable",
      "a call of the system failed",
      "the time is up",
      "a file cannot be opened",
      "no TCP connection",
      "no RoCE connection",
      "a TCP transfer failed",
      "a RoCE transfer failed",
      "a call of the runtime failed",
      "a call of the driver failed",
      "profiling failed",
      "the engine of collectives failed",
      "no usable network",
      "in use, try again",
      "a remote rank failed",
      "the communicator is suspended",
      "trying the operator again failed",
      "out of memory",
  };
  return code >= 0 && code < static_cast<int>(std::size(texts)) ? texts[code] : "unknown error";
}

uint32_t HcclGetCommConfigCapability() { return kCapabilities; }

HcclResult HcclCommDestroy(HcclComm comm) { return comm == nullptr ? 0 : No("HcclCommDestroy"); }

HcclResult HcclAllGather(void* /*sendBuf*/, void* /*recvBuf*/, uint64_t /*sendCount*/, HcclDataType /*dataType*/,
                         HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclAllGather");
}
HcclResult HcclAllGatherV(void* /*sendBuf*/, uint64_t /*sendCount*/, void* /*recvBuf*/, const void* /*recvCounts*/,
                          const void* /*recvDispls*/, HcclDataType /*dataType*/, HcclComm /*comm*/,
                          aclrtStream /*stream*/) {
  return No("HcclAllGatherV");
}
HcclResult HcclAllReduce(void* /*sendBuf*/, void* /*recvBuf*/, uint64_t /*count*/, HcclDataType /*dataType*/,
                         HcclReduceOp /*op*/, HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclAllReduce");
}
HcclResult HcclAlltoAll(const void* /*sendBuf*/, uint64_t /*sendCount*/, HcclDataType /*sendType*/,
                        const void* /*recvBuf*/, uint64_t /*recvCount*/, HcclDataType /*recvType*/, HcclComm /*comm*/,
                        aclrtStream /*stream*/) {
  return No("HcclAlltoAll");
}
HcclResult HcclAlltoAllV(const void* /*sendBuf*/, const void* /*sendCounts*/, const void* /*sdispls*/,
                         HcclDataType /*sendType*/, const void* /*recvBuf*/, const void* /*recvCounts*/,
                         const void* /*rdispls*/, HcclDataType /*recvType*/, HcclComm /*comm*/,
                         aclrtStream /*stream*/) {
  return No("HcclAlltoAllV");
}
HcclResult HcclAlltoAllVC(const void* /*sendBuf*/, const void* /*sendCountMatrix*/, HcclDataType /*sendType*/,
                          const void* /*recvBuf*/, HcclDataType /*recvType*/, HcclComm /*comm*/,
                          aclrtStream /*stream*/) {
  return No("HcclAlltoAllVC");
}
HcclResult HcclBatchSendRecv(HcclSendRecvItem* /*sendRecvInfo*/, uint32_t /*itemNum*/, HcclComm /*comm*/,
                             aclrtStream /*stream*/) {
  return No("HcclBatchSendRecv");
}
HcclResult HcclBroadcast(void* /*buf*/, uint64_t /*count*/, HcclDataType /*dataType*/, uint32_t /*root*/,
                         HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclBroadcast");
}
HcclResult HcclRecv(void* /*recvBuf*/, uint64_t /*count*/, HcclDataType /*dataType*/, uint32_t /*srcRank*/,
                    HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclRecv");
}
HcclResult HcclReduce(void* /*sendBuf*/, void* /*recvBuf*/, uint64_t /*count*/, HcclDataType /*dataType*/,
                      HcclReduceOp /*op*/, uint32_t /*root*/, HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclReduce");
}
HcclResult HcclReduceScatter(void* /*sendBuf*/, void* /*recvBuf*/, uint64_t /*recvCount*/, HcclDataType /*dataType*/,
                             HcclReduceOp /*op*/, HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclReduceScatter");
}
HcclResult HcclReduceScatterV(void* /*sendBuf*/, const void* /*sendCounts*/, const void* /*sendDispls*/,
                              void* /*recvBuf*/, uint64_t /*recvCount*/, HcclDataType /*dataType*/, HcclReduceOp /*op*/,
                              HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclReduceScatterV");
}
HcclResult HcclScatter(void* /*sendBuf*/, void* /*recvBuf*/, uint64_t /*recvCount*/, HcclDataType /*dataType*/,
                       uint32_t /*root*/, HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclScatter");
}
HcclResult HcclSend(void* /*sendBuf*/, uint64_t /*count*/, HcclDataType /*dataType*/, uint32_t /*destRank*/,
                    HcclComm /*comm*/, aclrtStream /*stream*/) {
  return No("HcclSend");
}
HcclResult HcclCommDeregister(HcclComm /*comm*/, void* /*handle*/) { return No("HcclCommDeregister"); }
HcclResult HcclCommExchangeMem(HcclComm /*comm*/, void* /*windowHandle*/, uint32_t* /*peerRanks*/,
                               uint32_t /*peerRankNum*/) {
  return No("HcclCommExchangeMem");
}
HcclResult HcclCommRegister(HcclComm /*comm*/, void* /*addr*/, uint64_t /*size*/, void** /*handle*/,
                            uint32_t /*flag*/) {
  return No("HcclCommRegister");
}
HcclResult HcclCommActivateCommMemory(HcclComm /*comm*/, void* /*virPtr*/, size_t /*size*/, size_t /*offset*/,
                                      aclrtDrvMemHandle /*handle*/, uint64_t /*flags*/) {
  return No("HcclCommActivateCommMemory");
}
HcclResult HcclCommDeactivateCommMemory(HcclComm /*comm*/, void* /*virPtr*/) {
  return No("HcclCommDeactivateCommMemory");
}
HcclResult HcclCommInitAll(uint32_t /*ndev*/, int32_t* /*devices*/, HcclComm* /*comms*/) {
  return No("HcclCommInitAll");
}
HcclResult HcclCommInitClusterInfoConfig(const char* /*clusterInfo*/, uint32_t /*rank*/, HcclCommConfig* /*config*/,
                                         HcclComm* /*comm*/) {
  return No("HcclCommInitClusterInfoConfig");
}
HcclResult HcclCommInitRootInfo(uint32_t /*nRanks*/, const HcclRootInfo* /*rootInfo*/, uint32_t /*rank*/,
                                HcclComm* /*comm*/) {
  return No("HcclCommInitRootInfo");
}
HcclResult HcclCommInitRootInfoConfig(uint32_t /*nRanks*/, const HcclRootInfo* /*rootInfo*/, uint32_t /*rank*/,
                                      const HcclCommConfig* /*config*/, HcclComm* /*comm*/) {
  return No("HcclCommInitRootInfoConfig");
}
HcclResult HcclCommInitRootInfoScalable(uint32_t /*nRanks*/, uint32_t /*nRoot*/, const HcclRootInfo* /*rootInfoList*/,
                                        uint32_t /*rank*/, uint32_t /*nExtRoot*/, const HcclCommConfig* /*config*/,
                                        HcclComm* /*comm*/) {
  return No("HcclCommInitRootInfoScalable");
}
HcclResult HcclCommResume(HcclComm /*comm*/) { return No("HcclCommResume"); }
HcclResult HcclCommSetMemoryRange(HcclComm /*comm*/, void* /*baseVirPtr*/, size_t /*size*/, size_t /*alignment*/,
                                  uint64_t /*flags*/) {
  return No("HcclCommSetMemoryRange");
}
HcclResult HcclCommSymWinDeregister(HcclCommSymWindow /*winHandle*/) { return No("HcclCommSymWinDeregister"); }
HcclResult HcclCommSymWinRegister(HcclComm /*comm*/, void* /*addr*/, uint64_t /*size*/,
                                  HcclCommSymWindow* /*winHandle*/, uint32_t /*flag*/) {
  return No("HcclCommSymWinRegister");
}
HcclResult HcclCommUnsetMemoryRange(HcclComm /*comm*/, void* /*baseVirPtr*/) { return No("HcclCommUnsetMemoryRange"); }
HcclResult HcclCommWorkingDevNicSet(HcclComm /*comm*/, uint32_t* /*ranks*/, bool* /*useBackup*/, uint32_t /*nRanks*/) {
  return No("HcclCommWorkingDevNicSet");
}
HcclResult HcclCreateSubCommConfig(HcclComm* /*comm*/, uint32_t /*rankNum*/, uint32_t* /*rankIds*/,
                                   uint64_t /*subCommId*/, uint32_t /*subCommRankId*/, HcclCommConfig* /*config*/,
                                   HcclComm* /*subComm*/) {
  return No("HcclCreateSubCommConfig");
}
HcclResult HcclGetCommAsyncError(HcclComm /*comm*/, HcclResult* /*asyncError*/) { return No("HcclGetCommAsyncError"); }
HcclResult HcclGetCommName(HcclComm /*comm*/, char* /*commName*/) { return No("HcclGetCommName"); }
HcclResult HcclGetRootInfo(HcclRootInfo* /*rootInfo*/) { return No("HcclGetRootInfo"); }
HcclResult HcclGetRootInfoScalable(HcclRootInfo* /*rootInfo*/) { return No("HcclGetRootInfoScalable"); }
HcclResult HcclGroupEnd() { return No("HcclGroupEnd"); }
HcclResult HcclGroupStart() { return No("HcclGroupStart"); }
HcclResult HcommMemAlloc(void** /*ptr*/, size_t /*size*/) { return No("HcommMemAlloc"); }
HcclResult HcommMemFree(void* /*ptr*/) { return No("HcommMemFree"); }
HcclResult HcclBarrier(HcclComm /*comm*/, aclrtStream /*stream*/) { return No("HcclBarrier"); }
HcclResult HcclCommGetHandleWithName(const char* /*commName*/, HcclComm* /*comm*/) {
  return No("HcclCommGetHandleWithName");
}
HcclResult HcclCommGetStatus(const char* /*commId*/, HcclCommStatus* /*status*/) { return No("HcclCommGetStatus"); }
HcclResult HcclCommInitClusterInfo(const char* /*clusterInfo*/, uint32_t /*rank*/, HcclComm* /*comm*/) {
  return No("HcclCommInitClusterInfo");
}
HcclResult HcclCommRegCommStateCallback(const char* /*regName*/, HcclCommStateCallback /*cb*/, void* /*args*/) {
  return No("HcclCommRegCommStateCallback");
}
HcclResult HcclCommSuspend(HcclComm /*comm*/) { return No("HcclCommSuspend"); }
HcclResult HcclCommSymWinGet(HcclComm /*comm*/, void* /*ptr*/, size_t /*size*/, HcclCommSymWindow* /*winHandle*/,
                             size_t* /*offset*/) {
  return No("HcclCommSymWinGet");
}
HcclResult HcclConfigGetInfo(HcclComm /*comm*/, HcclConfigType /*cfgType*/, uint32_t /*infoLen*/, void* /*info*/) {
  return No("HcclConfigGetInfo");
}
HcclResult HcclGetRankId(HcclComm /*comm*/, uint32_t* /*rank*/) { return No("HcclGetRankId"); }
HcclResult HcclGetRankSize(HcclComm /*comm*/, uint32_t* /*rankSize*/) { return No("HcclGetRankSize"); }
HcclResult HcclGroupStatusGet(bool* /*isGroupEnabled*/) { return No("HcclGroupStatusGet"); }
HcclResult HcclSymWinGetPeerPointer(HcclCommSymWindow /*winHandle*/, size_t /*offset*/, uint32_t /*peerRank*/,
                                    void** /*ptr*/) {
  return No("HcclSymWinGetPeerPointer");
}

}  // extern "C"
#pragma GCC visibility pop
