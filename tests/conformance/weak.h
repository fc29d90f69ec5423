// SPDX-License-Identifier: Apache-2.0
//
// Functions that the libraries may not have yet.
//
// The libraries export a function only when it works. A strong reference to a missing one would keep a whole test
// program from linking, so every function outside the first milestone is declared weak here: its address is null
// until it exists, and a test that needs it says so in its first line:
//
//     TEST_F(AclGraph, AG_158_BuildBeginChecksItsArguments) {
//       REQUIRE_FN(aclmdlRIBuildBegin);
//
// A weak reference is bound when the program is linked: build the tests again after the libraries have grown.
#pragma once

#include <acl/acl.h>
#include <gtest/gtest.h>
#if __has_include(<acl/acl_rt_memory_soma.h>)
#include <acl/acl_rt_memory_soma.h>
#endif

#include <string>

// callback
#pragma weak aclrtCacheLastTaskExtendInfo
#pragma weak aclrtCacheLastTaskOpInfo

// cmo
#pragma weak aclrtCmoAsync
#pragma weak aclrtCmoAsyncWithBarrier
#pragma weak aclrtCmoAsyncWithDesc
#pragma weak aclrtCmoGetDescSize
#pragma weak aclrtCmoSetDesc
#pragma weak aclrtCmoWaitBarrier

// cntnotify
#pragma weak aclrtCntNotifyCreate
#pragma weak aclrtCntNotifyDestroy
#pragma weak aclrtCntNotifyGetId
#pragma weak aclrtCntNotifyRecord
#pragma weak aclrtCntNotifyReset
#pragma weak aclrtCntNotifyWaitWithTimeout

// context
#pragma weak aclrtCtxGetSysParamOpt

// device
#pragma weak aclrtDeviceGetByPCIBusId
#pragma weak aclrtDeviceGetHostAtomicCapabilities
#pragma weak aclrtDeviceGetLimit
#pragma weak aclrtDeviceGetP2PAtomicCapabilities
#pragma weak aclrtDeviceGetPCIBusId
#pragma weak aclrtDeviceL2CacheFlush
#pragma weak aclrtDevicePeerAccessStatus
#pragma weak aclrtDeviceSetLimit
#pragma weak aclrtGetDevicesTopo
#pragma weak aclrtGetLogicDevIdByPhyDevId
#pragma weak aclrtGetPhyDevIdByLogicDevId
#pragma weak aclrtGetPhyDevIdByUserDevId
#pragma weak aclrtGetUserDevIdByLogicDevId
#pragma weak aclrtGetUserDevIdByPhyDevId
#pragma weak aclrtRegDeviceStateCallback
#pragma weak aclrtSetTsDevice

// event
#pragma weak aclrtGetEventAvailNum
#pragma weak aclrtGetEventId

// exception
#pragma weak aclrtBinarySetExceptionCallback
#pragma weak aclrtExceptionInfoCallbackRegister
#pragma weak aclrtExceptionInfoCallbackUnregister
#pragma weak aclrtGetArgsFromExceptionInfo
#pragma weak aclrtGetDeviceIdFromExceptionInfo
#pragma weak aclrtGetErrorCodeFromExceptionInfo
#pragma weak aclrtGetErrorVerbose
#pragma weak aclrtGetFuncHandleFromExceptionInfo
#pragma weak aclrtGetMemUceInfo
#pragma weak aclrtGetStreamIdFromExceptionInfo
#pragma weak aclrtGetTaskIdFromExceptionInfo
#pragma weak aclrtGetThreadIdFromExceptionInfo
#pragma weak aclrtMemUceRepair
#pragma weak aclrtRepairError
#pragma weak aclrtSetDeviceTaskAbortCallback
#pragma weak aclrtSetExceptionInfoCallback

// group
#pragma weak aclrtCreateGroupInfo
#pragma weak aclrtDestroyGroupInfo
#pragma weak aclrtGetAllGroupInfo
#pragma weak aclrtGetGroupCount
#pragma weak aclrtGetGroupInfoDetail
#pragma weak aclrtSetGroup

// hostmem
#pragma weak aclrtFreeHostWithDevSync

// ipc
#pragma weak aclrtIpcMemClose
#pragma weak aclrtIpcMemGetExportKey
#pragma weak aclrtIpcMemImportByKey
#pragma weak aclrtIpcMemImportPidInterServer
#pragma weak aclrtIpcMemSetAttr
#pragma weak aclrtIpcMemSetImportPid

// kernel
#pragma weak aclrtBinaryGetDevAddress
#pragma weak aclrtBinaryGetGlobal
#pragma weak aclrtBinaryLoad
#pragma weak aclrtCreateBinary
#pragma weak aclrtDestroyBinary
#pragma weak aclrtFunctionGetAvailDynUbufPerBlock
#pragma weak aclrtFunctionGetBinary
#pragma weak aclrtFunctionGetParamCount
#pragma weak aclrtFunctionGetParamInfo
#pragma weak aclrtGetFuncBySymbol
#pragma weak aclrtGetFunctionAddr
#pragma weak aclrtGetFunctionAttribute
#pragma weak aclrtGetFunctionName
#pragma weak aclrtGetFunctionSize
#pragma weak aclrtGetHardwareSyncAddr
#pragma weak aclrtGetSymbolAddress
#pragma weak aclrtGetSymbolSize
#pragma weak aclrtKernelArgsGetHandleMemSize
#pragma weak aclrtKernelArgsGetMemSize
#pragma weak aclrtKernelArgsInitByUserMem
#pragma weak aclrtKernelArgsParaUpdate
#pragma weak aclrtLaunchKernelWithArgsArray
#pragma weak aclrtLaunchSIMTKernelWithArgsArray
#pragma weak aclrtLaunchSIMTKernelWithHostArgs
#pragma weak aclrtMemcpyFromSymbol
#pragma weak aclrtMemcpyFromSymbolAsync
#pragma weak aclrtMemcpyToSymbol
#pragma weak aclrtMemcpyToSymbolAsync
#pragma weak aclrtRegisterCpuFunc

// label
#pragma weak aclrtCreateLabel
#pragma weak aclrtCreateLabelList
#pragma weak aclrtDestroyLabel
#pragma weak aclrtDestroyLabelList
#pragma weak aclrtSetLabel
#pragma weak aclrtSwitchLabelByIndex

// managed
#pragma weak aclrtMemAllocManaged
#pragma weak aclrtMemManagedAdvise
#pragma weak aclrtMemManagedGetAttr
#pragma weak aclrtMemManagedGetAttrs
#pragma weak aclrtMemManagedPrefetchAsync
#pragma weak aclrtMemManagedPrefetchBatchAsync

// mbuf
#pragma weak aclrtAllocBuf
#pragma weak aclrtAppendBufChain
#pragma weak aclrtCopyBufRef
#pragma weak aclrtFreeBuf
#pragma weak aclrtGetBufChainNum
#pragma weak aclrtGetBufData
#pragma weak aclrtGetBufDataLen
#pragma weak aclrtGetBufFromChain
#pragma weak aclrtGetBufUserData
#pragma weak aclrtSetBufDataLen
#pragma weak aclrtSetBufUserData

// mdlri
#pragma weak aclmdlRIAbort
#pragma weak aclmdlRIAddCondTask
#pragma weak aclmdlRIBindStream
#pragma weak aclmdlRIBuildBegin
#pragma weak aclmdlRIBuildEnd
#pragma weak aclmdlRICaptureTaskGrpBegin
#pragma weak aclmdlRICaptureTaskGrpEnd
#pragma weak aclmdlRICaptureTaskUpdateBegin
#pragma weak aclmdlRICaptureTaskUpdateEnd
#pragma weak aclmdlRICaptureToModelRIBegin
#pragma weak aclmdlRICondHandleCreate
#pragma weak aclmdlRICondHandleGetCondPtr
#pragma weak aclmdlRIDestroyRegisterCallback
#pragma weak aclmdlRIDestroyUnregisterCallback
#pragma weak aclmdlRIEndTask
#pragma weak aclmdlRIExecute
#pragma weak aclmdlRIKernelTaskGetAttribute
#pragma weak aclmdlRITaskDisable
#pragma weak aclmdlRITaskGetParams
#pragma weak aclmdlRITaskSetParams
#pragma weak aclmdlRIUnbindStream
#pragma weak aclmdlRIUpdate

// memcpy
#pragma weak aclrtGetMemcpyDescSize
#pragma weak aclrtMemcpyAsyncWithDesc
#pragma weak aclrtMemcpyAsyncWithOffset
#pragma weak aclrtMemcpyBatchAsyncV2
#pragma weak aclrtMemcpyBatchV2
#pragma weak aclrtMemsetD32
#pragma weak aclrtMemsetD32Async
#pragma weak aclrtSetMemcpyDesc

// memory
#pragma weak aclrtCheckMemType
#pragma weak aclrtFreeWithDevSync
#pragma weak aclrtMallocCached
#pragma weak aclrtMallocForTaskScheduler
#pragma weak aclrtMemFlush
#pragma weak aclrtMemInvalidate

// notify
#pragma weak aclrtCreateNotify
#pragma weak aclrtDestroyNotify
#pragma weak aclrtGetNotifyId
#pragma weak aclrtNotifyBatchReset
#pragma weak aclrtNotifyGetExportKey
#pragma weak aclrtNotifyImportByKey
#pragma weak aclrtNotifySetImportPid
#pragma weak aclrtNotifySetImportPidInterServer
#pragma weak aclrtRecordNotify
#pragma weak aclrtWaitAndResetNotify

// optimeout
#pragma weak aclrtGetOpExecuteTimeout
#pragma weak aclrtGetOpTimeOutInterval
#pragma weak aclrtSetOpExecuteTimeOut
#pragma weak aclrtSetOpExecuteTimeOutV2
#pragma weak aclrtSetOpExecuteTimeOutWithMs
#pragma weak aclrtSetOpWaitTimeout

// overflow
#pragma weak aclrtCtxGetFloatOverflowAddr
#pragma weak aclrtGetDeviceSatMode
#pragma weak aclrtGetFloatOverflowStatus
#pragma weak aclrtGetOverflowStatus
#pragma weak aclrtGetStreamOverflowSwitch
#pragma weak aclrtNpuClearFloatOverFlowStatus
#pragma weak aclrtNpuGetFloatOverFlowStatus
#pragma weak aclrtResetFloatOverflowStatus
#pragma weak aclrtResetOverflowStatus
#pragma weak aclrtSetDeviceSatMode
#pragma weak aclrtSetStreamOverflowSwitch

// profiling
#pragma weak aclrtProfTrace

// randred
#pragma weak aclrtRandomNumAsync
#pragma weak aclrtReduceAsync

// stream
#pragma weak aclrtActiveStream
#pragma weak aclrtGetStreamAvailableNum
#pragma weak aclrtPersistentTaskClean
#pragma weak aclrtSwitchStream
#pragma weak aclrtTaskUpdateAsync

// sysinfo
#pragma weak aclrtGetDeviceCapability
#pragma weak aclrtGetRunMode
#pragma weak aclrtGetSysParamOpt
#pragma weak aclrtGetVersion
#pragma weak aclrtSetSysParamOpt

// vmm
#pragma weak aclrtFreePhysical
#pragma weak aclrtHostMemMapCapabilities
#pragma weak aclrtMallocPhysical
#pragma weak aclrtMapMem
#pragma weak aclrtMemExportToShareableHandle
#pragma weak aclrtMemExportToShareableHandleV2
#pragma weak aclrtMemGetAccess
#pragma weak aclrtMemGetAddressRange
#pragma weak aclrtMemGetAllocationGranularity
#pragma weak aclrtMemGetAllocationPropertiesFromHandle
#pragma weak aclrtMemImportFromShareableHandle
#pragma weak aclrtMemImportFromShareableHandleV2
#pragma weak aclrtMemMapNoAccess
#pragma weak aclrtMemMapSelectedLink
#pragma weak aclrtMemMapSetLink
#pragma weak aclrtMemP2PMap
#pragma weak aclrtMemRetainAllocationHandle
#pragma weak aclrtMemSetAccess
#pragma weak aclrtMemSetPidToShareableHandle
#pragma weak aclrtMemSetPidToShareableHandleV2
#pragma weak aclrtReleaseMemAddress
#pragma weak aclrtReserveMemAddress
#pragma weak aclrtReserveMemAddressNoUCMemory
#pragma weak aclrtUnmapMem

// stream-ordered memory pools
#if __has_include(<acl/acl_rt_memory_soma.h>)
#pragma weak aclrtMemPoolCreate
#pragma weak aclrtMemPoolDestroy
#pragma weak aclrtMemPoolFreeAsync
#pragma weak aclrtMemPoolGetAttr
#pragma weak aclrtMemPoolMallocAsync
#pragma weak aclrtMemPoolSetAttr
#pragma weak aclrtMemPoolTrimTo
#endif

namespace reprise::conformance {

/// The first of `functions` that is null, by its place in the comma-separated `names`; empty when all exist.
template <class... Functions>
std::string FirstMissing(const std::string& names, Functions... functions) {
  const bool exists[] = {(functions != nullptr)...};
  size_t begin = 0;
  for (const bool there : exists) {
    begin = names.find_first_not_of(" ,\n", begin);
    const size_t end = names.find_first_of(" ,\n", begin);
    if (!there) return names.substr(begin, end - begin);
    begin = end;
  }
  return {};
}

}  // namespace reprise::conformance

/// Skips the test when one of the named functions is not exported yet. Must stand in the test's own body.
#define REQUIRE_FN(...)                                                                                \
  if (const std::string missing_fn_ = ::reprise::conformance::FirstMissing(#__VA_ARGS__, __VA_ARGS__); \
      !missing_fn_.empty())                                                                            \
  GTEST_SKIP() << "not there yet: " << missing_fn_
