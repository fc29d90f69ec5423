// SPDX-License-Identifier: Apache-2.0
//
// Host functions and callbacks in stream order.
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "runtime/callback.h"
#include "runtime/report.h"
#include "runtime/tasks.h"
#include "runtime/thread.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
namespace capture = reprise::capture;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::Subscription;

namespace {

constexpr int64_t kMaxOpInfoBytes = 64 << 10;
constexpr size_t kMaxExtendInfoBytes = 4u << 10;

Status Subscribe(Subscription kind, uint64_t thread_id, aclrtStream stream) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
  return runtime::Subscribe(kind, thread_id, *found);
}

Status Unsubscribe(Subscription kind, uint64_t thread_id, aclrtStream stream) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
  return runtime::Unsubscribe(kind, thread_id, *found);
}

Status Process(Subscription kind, int32_t timeout) {
  if (timeout != -1 && timeout <= 0) {
    return Error(kInvalidArgument,
                 fmt::format("timeout is {}, must be -1 (for ever) or a number of milliseconds above 0", timeout))
        .Hint("pass the milliseconds to wait, or -1 to wait until a callback comes");
  }
  return runtime::ProcessCallbacks(kind, timeout);
}

}  // namespace

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return Api("aclrtSubscribeReport", [&] { return Subscribe(Subscription::kReport, threadId, stream); });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return Api("aclrtUnSubscribeReport", [&] { return Unsubscribe(Subscription::kReport, threadId, stream); });
}

aclError aclrtProcessReport(int32_t timeout) {
  return Api("aclrtProcessReport", [&] { return Process(Subscription::kReport, timeout); });
}

aclError aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
  return Api("aclrtSubscribeHostFunc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(exeStream, "exeStream"));
    return Subscribe(Subscription::kHostFunc, hostFuncThreadId, exeStream);
  });
}

aclError aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
  return Api("aclrtUnSubscribeHostFunc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(exeStream, "exeStream"));
    return Unsubscribe(Subscription::kHostFunc, hostFuncThreadId, exeStream);
  });
}

aclError aclrtProcessHostFunc(int32_t timeout) {
  return Api("aclrtProcessHostFunc", [&] { return Process(Subscription::kHostFunc, timeout); });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  return Api("aclrtLaunchCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(
        InRange(blockType, ACL_CALLBACK_NO_BLOCK, ACL_CALLBACK_BLOCK, "blockType", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(NotNullInner(reinterpret_cast<const void*>(fn), "fn"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
    return runtime::SubmitCallback(*found, fn, userData, blockType == ACL_CALLBACK_BLOCK);
  });
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  return Api("aclrtLaunchHostFunc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(reinterpret_cast<const void*>(fn), "fn"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
    return runtime::SubmitHostFunc(*found, fn, args);
  });
}

aclError aclrtCacheLastTaskExtendInfo(const char* const extendInfoPtr, const size_t infoSize) {
  return Api("aclrtCacheLastTaskExtendInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(extendInfoPtr, "extendInfoPtr"));
    REPRISE_RETURN_IF_ERROR(NotZero(infoSize, "infoSize"));
    const size_t bytes = strnlen(extendInfoPtr, infoSize < kMaxExtendInfoBytes ? infoSize : kMaxExtendInfoBytes);
    return capture::AttachExtendInfo(std::string(extendInfoPtr, bytes));
  });
}

aclError aclrtCacheLastTaskOpInfo(const void* const infoPtr, const size_t infoSize) {
  return Api("aclrtCacheLastTaskOpInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(infoPtr, "infoPtr"));
    REPRISE_RETURN_IF_ERROR(InRange(infoSize, 1, kMaxOpInfoBytes, "infoSize", kInvalidArgument));
    return capture::AttachOpInfo(std::string(static_cast<const char*>(infoPtr), infoSize));
  });
}
