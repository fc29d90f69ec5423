// SPDX-License-Identifier: Apache-2.0
//
// Functions with which operators for the engines of a device are developed: there to be linked, all refused. They are
// defined without parameters, which none of them looks at.
#include "runtime/report.h"

namespace {

constexpr int kNotSupported = 5;  // HCCL_E_NOT_SUPPORT

int Refuse(const char* api) {
  return reprise::runtime::Refuse(api, kNotSupported,
                                  "it belongs to the operator development interface of the vendor's device",
                                  "call the operators of hccl.h; kernels of your own are in include/reprise/kernel.h");
}

}  // namespace

#define REPRISE_REFUSED(name) \
  int name() { return Refuse(#name); }

#pragma GCC visibility push(default)
extern "C" {
REPRISE_REFUSED(HcclGetCommConfig)
REPRISE_REFUSED(HcclSetCommConfig)
REPRISE_REFUSED(HcclChannelAcquireWithConfig)
REPRISE_REFUSED(HcclChannelConfigCreate)
REPRISE_REFUSED(HcclChannelConfigDestroy)
REPRISE_REFUSED(HcclChannelConfigSetInt)
REPRISE_REFUSED(HcclChannelConfigSetStr)
REPRISE_REFUSED(HcclChannelDestroy)
REPRISE_REFUSED(HcclChannelQuery)
REPRISE_REFUSED(HcclCreateOpResCtx)
REPRISE_REFUSED(HcclKfcAllocOpArgs)
REPRISE_REFUSED(HcclKfcFreeOpArgs)
REPRISE_REFUSED(HcclKfcOpArgsSetAlgConfig)
REPRISE_REFUSED(HcclKfcOpArgsSetCommEngine)
REPRISE_REFUSED(HcclKfcOpArgsSetCount)
REPRISE_REFUSED(HcclKfcOpArgsSetDstDataType)
REPRISE_REFUSED(HcclKfcOpArgsSetReduceType)
REPRISE_REFUSED(HcclKfcOpArgsSetSrcDataType)
REPRISE_REFUSED(HcclGetHeterogMode)
REPRISE_REFUSED(HcclRankGraphGetEndpointDesc)
REPRISE_REFUSED(HcclRankGraphGetEndpointInfo)
REPRISE_REFUSED(HcclRankGraphGetEndpointNum)
REPRISE_REFUSED(HcclRankGraphGetLinks)
REPRISE_REFUSED(HcclChannelAcquire)
REPRISE_REFUSED(HcclChannelGetHcclBuffer)
REPRISE_REFUSED(HcclChannelGetRemoteMems)
REPRISE_REFUSED(HcclCommMemReg)
REPRISE_REFUSED(HcclDedicatedThreadAcquire)
REPRISE_REFUSED(HcclEngineCtxCopy)
REPRISE_REFUSED(HcclEngineCtxCreate)
REPRISE_REFUSED(HcclEngineCtxDestroy)
REPRISE_REFUSED(HcclEngineCtxGet)
REPRISE_REFUSED(HcclGetHcclBuffer)
REPRISE_REFUSED(HcclGetHcclBufferCleared)
REPRISE_REFUSED(HcclThreadAcquire)
REPRISE_REFUSED(HcclThreadAcquireWithConfig)
REPRISE_REFUSED(HcclThreadAcquireWithStream)
REPRISE_REFUSED(HcclThreadResGetInfo)
REPRISE_REFUSED(HcclTeamCreate)
REPRISE_REFUSED(HcclTeamDestroy)
REPRISE_REFUSED(HcommAclrtNotifyRecordOnThread)
REPRISE_REFUSED(HcommAclrtNotifyWaitOnThread)
REPRISE_REFUSED(HcommAcquireComm)
REPRISE_REFUSED(HcommBatchModeEnd)
REPRISE_REFUSED(HcommBatchModeStart)
REPRISE_REFUSED(HcommChannelFence)
REPRISE_REFUSED(HcommChannelFenceOnThread)
REPRISE_REFUSED(HcommChannelNotifyRecord)
REPRISE_REFUSED(HcommChannelNotifyRecordOnThread)
REPRISE_REFUSED(HcommChannelNotifyWait)
REPRISE_REFUSED(HcommChannelNotifyWaitOnThread)
REPRISE_REFUSED(HcommFenceOnThread)
REPRISE_REFUSED(HcommLocalCopyOnThread)
REPRISE_REFUSED(HcommLocalReduceOnThread)
REPRISE_REFUSED(HcommReadNbi)
REPRISE_REFUSED(HcommReadNbiOnThread)
REPRISE_REFUSED(HcommReadOnThread)
REPRISE_REFUSED(HcommReadReduceOnThread)
REPRISE_REFUSED(HcommReleaseComm)
REPRISE_REFUSED(HcommThreadNotifyRecordOnThread)
REPRISE_REFUSED(HcommThreadNotifyWaitOnThread)
REPRISE_REFUSED(HcommWriteNbi)
REPRISE_REFUSED(HcommWriteNbiOnThread)
REPRISE_REFUSED(HcommWriteOnThread)
REPRISE_REFUSED(HcommWriteReduceOnThread)
REPRISE_REFUSED(HcommWriteReduceWithNotifyOnThread)
REPRISE_REFUSED(HcommWriteWithNotifyNbi)
REPRISE_REFUSED(HcommWriteWithNotifyNbiOnThread)
REPRISE_REFUSED(HcommWriteWithNotifyOnThread)
REPRISE_REFUSED(HcommChannelCreate)
REPRISE_REFUSED(HcommChannelDestroy)
REPRISE_REFUSED(HcommChannelGetStatus)
REPRISE_REFUSED(HcommEndpointCreate)
REPRISE_REFUSED(HcommEndpointDestroy)
REPRISE_REFUSED(HcommMemExport)
REPRISE_REFUSED(HcommMemImport)
REPRISE_REFUSED(HcommMemReg)
REPRISE_REFUSED(HcommMemUnimport)
REPRISE_REFUSED(HcommMemUnreg)
REPRISE_REFUSED(HcommThreadAlloc)
REPRISE_REFUSED(HcommThreadFree)
}  // extern "C"
#pragma GCC visibility pop
