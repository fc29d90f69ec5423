// SPDX-License-Identifier: Apache-2.0
//
// Errors: the thread's last one, callbacks for failed tasks, and device faults (of which the CPU device has none).
#include <cstring>

#include "acl/acl.h"
#include "check.h"
#include "runtime/device.h"
#include "runtime/exception.h"
#include "runtime/kernel.h"
#include "runtime/thread.h"
#include "state_callbacks.h"

namespace reprise::facade {
namespace {

using runtime::TaskFailure;

constexpr uint32_t kNothing = UINT32_MAX;

// aclrtExceptionInfo is what programs see of a TaskFailure.
aclrtExceptionInfo* InfoOf(const TaskFailure& failure) {
  return reinterpret_cast<aclrtExceptionInfo*>(const_cast<TaskFailure*>(&failure));
}
const TaskFailure& FailureOf(const aclrtExceptionInfo* info) { return *reinterpret_cast<const TaskFailure*>(info); }

runtime::FailureListener ListenerFor(aclrtExceptionInfoCallback callback) {
  return [callback](const TaskFailure& failure) { callback(InfoOf(failure)); };
}

Status CheckLevel(aclrtLastErrLevel level) {
  return InRange(level, ACL_RT_THREAD_LEVEL, ACL_RT_THREAD_LEVEL, "level", kInvalidArgument);
}

Status CheckKernelInfo(const aclrtExceptionInfo* info) {
  if (info != nullptr && FailureOf(info).function != nullptr) return {};
  return Error(-1, info == nullptr ? "parameter info is null" : "the failed task is no kernel")
      .Culprit("parameter info")
      .Hint("ask only for failed kernels; aclrtGetErrorCodeFromExceptionInfo tells what failed");
}

Status CheckFaultArray(int32_t device_id, const void* array, size_t size, const size_t* filled, bool wants_filled) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(array, "memUceInfoArray"));
  if (wants_filled) REPRISE_RETURN_IF_ERROR(runtime::NotNull(filled, "retSize"));
  REPRISE_RETURN_IF_ERROR(InRange(size, 1, MAX_MEM_UCE_INFO_ARRAY_SIZE, "arraySize", kInvalidArgument));
  return runtime::FindDevice(device_id).status();
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

// ---- Last error ----

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  const aclError refused = runtime::Api("aclrtPeekAtLastError", [&]() -> Status { return CheckLevel(level); });
  return refused != 0 ? refused : runtime::ThisThread().last_error;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  const aclError refused = runtime::Api("aclrtGetLastError", [&]() -> Status { return CheckLevel(level); });
  return refused != 0 ? refused : std::exchange(runtime::ThisThread().last_error, 0);
}

// ---- Callbacks ----

aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
  return runtime::Api("aclrtSetExceptionInfoCallback", [&]() -> Status {
    runtime::SetFailureSlot(callback != nullptr ? ListenerFor(callback) : nullptr);
    return {};
  });
}

aclError aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback) {
  return runtime::Api("aclrtExceptionInfoCallbackRegister", [&]() -> Status {
    const void* key = reinterpret_cast<const void*>(callback);
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(key, "callback"));
    runtime::AddFailureListener(key, ListenerFor(callback));
    return {};
  });
}

aclError aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback) {
  return runtime::Api("aclrtExceptionInfoCallbackUnregister", [&]() -> Status {
    const void* key = reinterpret_cast<const void*>(callback);
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(key, "callback"));
    runtime::RemoveFailureListener(key);
    return {};
  });
}

aclError aclrtBinarySetExceptionCallback(aclrtBinHandle binHandle, aclrtOpExceptionCallback callback, void* userData) {
  return runtime::Api("aclrtBinarySetExceptionCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(binHandle, "binHandle"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(reinterpret_cast<const void*>(callback), "callback"));
    REPRISE_RETURN_IF_ERROR(runtime::FindObject(runtime::KernelBinaries(), binHandle, "kernel binary").status());
    runtime::SetBinaryFailureListener(
        binHandle, [callback, userData](const TaskFailure& failure) { callback(InfoOf(failure), userData); });
    return {};
  });
}

aclError aclrtSetDeviceTaskAbortCallback(const char* regName, aclrtDeviceTaskAbortCallback callback, void* args) {
  return runtime::Api("aclrtSetDeviceTaskAbortCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(regName, "regName"));
    return TaskAbortCallbacks().Set(regName, callback, args);
  });
}

// ---- What a callback may ask ----

uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info != nullptr ? FailureOf(info).task_id : kNothing;
}

uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info != nullptr ? static_cast<uint32_t>(FailureOf(info).stream_id) : kNothing;
}

uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info != nullptr ? FailureOf(info).thread_id : kNothing;
}

uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info != nullptr ? static_cast<uint32_t>(FailureOf(info).device_id) : kNothing;
}

uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info != nullptr ? static_cast<uint32_t>(FailureOf(info).error_code) : kNothing;
}

aclError aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo* info, void** devArgsPtr, uint32_t* devArgsLen) {
  return runtime::Api("aclrtGetArgsFromExceptionInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(devArgsPtr, "devArgsPtr"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(devArgsLen, "devArgsLen"));
    REPRISE_RETURN_IF_ERROR(CheckKernelInfo(info));
    *devArgsPtr = const_cast<void*>(FailureOf(info).args);
    *devArgsLen = FailureOf(info).args_bytes;
    return {};
  });
}

aclError aclrtGetFuncHandleFromExceptionInfo(const aclrtExceptionInfo* info, aclrtFuncHandle* func) {
  return runtime::Api("aclrtGetFuncHandleFromExceptionInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(func, "func"));
    REPRISE_RETURN_IF_ERROR(CheckKernelInfo(info));
    *func = FailureOf(info).function;
    return {};
  });
}

// ---- Device faults ----

aclError aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo* memUceInfoArray, size_t arraySize, size_t* retSize) {
  return runtime::Api("aclrtGetMemUceInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckFaultArray(deviceId, memUceInfoArray, arraySize, retSize, true));
    *retSize = 0;
    return {};
  });
}

aclError aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo* memUceInfoArray, size_t arraySize) {
  return runtime::Api("aclrtMemUceRepair", [&]() -> Status {
    return CheckFaultArray(deviceId, memUceInfoArray, arraySize, nullptr, false);
  });
}

aclError aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo* errorInfo) {
  return runtime::Api("aclrtGetErrorVerbose", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(errorInfo, "errorInfo"));
    REPRISE_RETURN_IF_ERROR(runtime::FindDevice(deviceId).status());
    std::memset(errorInfo, 0, sizeof *errorInfo);
    errorInfo->errorType = ACL_RT_NO_ERROR;
    return {};
  });
}

aclError aclrtRepairError(int32_t deviceId, const aclrtErrorInfo* errorInfo) {
  return runtime::Api("aclrtRepairError", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(errorInfo, "errorInfo"));
    return runtime::FindDevice(deviceId).status();
  });
}
