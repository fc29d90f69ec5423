// SPDX-License-Identifier: Apache-2.0
//
// Cache operations.
#include <fmt/format.h>

#include "acl/acl.h"
#include "check.h"
#include "runtime/cache.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::Stream;

namespace {

Status CheckType(aclrtCmoType type, const char* parameter) {
  return InRange(type, ACL_RT_CMO_TYPE_PREFETCH, ACL_RT_CMO_TYPE_FLUSH, parameter);
}

Status OnlyPrefetch(aclrtCmoType type) {
  REPRISE_RETURN_IF_ERROR(CheckType(type, "cmoType"));
  if (type == ACL_RT_CMO_TYPE_PREFETCH) return {};
  return Error(kFeatureNotSupported, fmt::format("cmoType is {}, and this chip only knows ACL_RT_CMO_TYPE_PREFETCH (0)",
                                                 static_cast<int>(type)))
      .Culprit("parameter cmoType")
      .Hint("leave the call out: memory is coherent here");
}

// Barriers are a means of models that are built.
Status CheckBound(const Stream& stream) {
  if (stream.bound_model.load() != nullptr) return {};
  return Error(kStreamModel, fmt::format("{} is not bound to a model", stream.Describe()))
      .Culprit("parameter stream")
      .Hint("bind it with aclmdlRIBindStream first; other streams have aclrtCmoAsync");
}

}  // namespace

aclError aclrtCmoAsync(void* src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
  return Api("aclrtCmoAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(src, "src"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(OnlyPrefetch(cmoType));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(src, size, "src"));
    return runtime::SubmitCacheOperation(*found, src, size);
  });
}

aclError aclrtCmoAsyncWithBarrier(void* src, size_t size, aclrtCmoType cmoType, uint32_t barrierId,
                                  aclrtStream stream) {
  return Api("aclrtCmoAsyncWithBarrier", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(src, "src"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(CheckType(cmoType, "cmoType"));
    if (barrierId != 0 && cmoType != ACL_RT_CMO_TYPE_INVALID) {
      return Error(kInvalidValue,
                   fmt::format("barrierId is {} with cmoType {}: only ACL_RT_CMO_TYPE_INVALID ({}) has barriers",
                               barrierId, static_cast<int>(cmoType), static_cast<int>(ACL_RT_CMO_TYPE_INVALID)))
          .Culprit("parameters barrierId and cmoType")
          .Hint("pass 0 for barrierId");
    }
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(CheckBound(*found));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(src, size, "src"));
    return runtime::SubmitCacheOperation(*found, src, size);
  });
}

aclError aclrtCmoWaitBarrier(aclrtBarrierTaskInfo* taskInfo, aclrtStream stream, uint32_t flag) {
  return Api("aclrtCmoWaitBarrier", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(taskInfo, "taskInfo"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flag, "flag", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(InRange(taskInfo->barrierNum, 1, ACL_RT_CMO_MAX_BARRIER_NUM, "taskInfo->barrierNum"));
    for (size_t i = 0; i < taskInfo->barrierNum; ++i) {
      REPRISE_RETURN_IF_ERROR(CheckType(taskInfo->cmoInfo[i].cmoType, "taskInfo->cmoInfo[].cmoType"));
    }
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(CheckBound(*found));
    return runtime::SubmitCacheBarrier(*found);
  });
}

aclError aclrtCmoGetDescSize(size_t* size) {
  return Api("aclrtCmoGetDescSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(size, "size"));
    *size = runtime::kCacheDescriptorBytes;
    return {};
  });
}

aclError aclrtCmoSetDesc(void* cmoDesc, void* src, size_t size) {
  return Api("aclrtCmoSetDesc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(cmoDesc, "cmoDesc"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(src, "src"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(cmoDesc, runtime::kCacheDescriptorBytes, "cmoDesc"));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(src, size, "src"));
    runtime::WriteCacheDescriptor(cmoDesc, src, size);
    return {};
  });
}

aclError aclrtCmoAsyncWithDesc(void* cmoDesc, aclrtCmoType cmoType, aclrtStream stream, const void* reserve) {
  return Api("aclrtCmoAsyncWithDesc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(cmoDesc, "cmoDesc"));
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(OnlyPrefetch(cmoType));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(cmoDesc, runtime::kCacheDescriptorBytes, "cmoDesc"));
    return runtime::SubmitCacheOperationByDescriptor(*found, cmoDesc);
  });
}
