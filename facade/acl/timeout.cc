// SPDX-License-Identifier: Apache-2.0
//
// Time limits of device work, and floating-point overflow.
#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/overflow.h"
#include "runtime/timeouts.h"

namespace reprise::facade {
namespace {

using runtime::Context;
using runtime::OverflowMode;
using runtime::Stream;

constexpr uint64_t kUsPerSecond = 1'000'000;

Status CheckSaturation(const Context& context) {
  if (runtime::GetOverflowMode(context.device()) == OverflowMode::kSaturation) return {};
  return Error(kFeatureNotSupported,
               fmt::format("device {} is in INFNAN mode, and this call needs saturation mode", context.device().id()))
      .Culprit("the overflow mode that aclrtGetDeviceSatMode shows")
      .Hint(
          "use aclrtGetOverflowStatus and aclrtResetOverflowStatus, or select ACL_RT_OVERFLOW_MODE_SATURATION with "
          "aclrtSetDeviceSatMode");
}

Status ReadStatus(const char* api, void* output, uint64_t bytes, aclrtStream handle, bool saturation_only) {
  if (bytes != runtime::kOverflowStatusBytes) {
    return Error(kInvalidValue, fmt::format("outputSize is {}, must be {}", bytes, runtime::kOverflowStatusBytes))
        .Culprit("parameter outputSize")
        .Hint(fmt::format("pass a buffer of {} bytes", runtime::kOverflowStatusBytes));
  }
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(handle));
  if (saturation_only) REPRISE_RETURN_IF_ERROR(CheckSaturation(stream->context()));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*stream, api));
  REPRISE_RETURN_IF_ERROR(DeviceReaches(output, bytes, "outputAddr"));
  return runtime::SubmitOverflowRead(*stream, output);
}

Status ClearStatus(const char* api, aclrtStream handle, bool saturation_only) {
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(handle));
  if (saturation_only) REPRISE_RETURN_IF_ERROR(CheckSaturation(stream->context()));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*stream, api));
  return runtime::SubmitOverflowClear(*stream);
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

// ---- Time limits ----

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  return runtime::Api("aclrtSetOpWaitTimeout", [&]() -> Status {
    runtime::DefaultWaitTimeout() = timeout;
    return {};
  });
}

aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
  return runtime::Api("aclrtSetOpExecuteTimeOut", [&]() -> Status {
    runtime::SetExecuteTimeout(uint64_t{timeout} * kUsPerSecond);
    return {};
  });
}

aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout) {
  return runtime::Api("aclrtSetOpExecuteTimeOutWithMs", [&]() -> Status {
    runtime::SetExecuteTimeout(uint64_t{timeout} * 1000);
    return {};
  });
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout) {
  return runtime::Api("aclrtSetOpExecuteTimeOutV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(actualTimeout, "actualTimeout"));
    *actualTimeout = runtime::SetExecuteTimeout(timeout);
    return {};
  });
}

aclError aclrtGetOpTimeOutInterval(uint64_t* interval) {
  return runtime::Api("aclrtGetOpTimeOutInterval", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(interval, "interval"));
    *interval = runtime::kExecuteIntervalUs;
    return {};
  });
}

aclError aclrtGetOpExecuteTimeout(uint32_t* const timeoutMs) {
  return runtime::Api("aclrtGetOpExecuteTimeout", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(timeoutMs, "timeoutMs"));
    *timeoutMs = static_cast<uint32_t>(runtime::ExecuteTimeout() / 1000);
    return {};
  });
}

// ---- Overflow ----

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  return runtime::Api("aclrtSetStreamOverflowSwitch", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(InRange(flag, 0, 1, "flag"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*found, "aclrtSetStreamOverflowSwitch"));
    found->attributes.overflow_switch = flag;
    return {};
  });
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t* flag) {
  return runtime::Api("aclrtGetStreamOverflowSwitch", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(flag, "flag"));
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindAnyStream(stream));
    *flag = found->attributes.overflow_switch;
    return {};
  });
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return runtime::Api("aclrtSetDeviceSatMode", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(InRange(mode, ACL_RT_OVERFLOW_MODE_SATURATION, ACL_RT_OVERFLOW_MODE_INFNAN, "mode"));
    REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
    runtime::SetOverflowMode(context->device(), static_cast<OverflowMode>(mode));
    return {};
  });
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  return runtime::Api("aclrtGetDeviceSatMode", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(mode, "mode"));
    REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
    *mode = static_cast<aclrtFloatOverflowMode>(runtime::GetOverflowMode(context->device()));
    return {};
  });
}

aclError aclrtGetOverflowStatus(void* outputAddr, size_t outputSize, aclrtStream stream) {
  return runtime::Api("aclrtGetOverflowStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(outputAddr, "outputAddr"));
    return ReadStatus("aclrtGetOverflowStatus", outputAddr, outputSize, stream, false);
  });
}

aclError aclrtResetOverflowStatus(aclrtStream stream) {
  return runtime::Api("aclrtResetOverflowStatus",
                      [&]() -> Status { return ClearStatus("aclrtResetOverflowStatus", stream, false); });
}

aclError aclrtCtxGetFloatOverflowAddr(void** overflowAddr) {
  return runtime::Api("aclrtCtxGetFloatOverflowAddr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(overflowAddr, "overflowAddr"));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    REPRISE_RETURN_IF_ERROR(CheckSaturation(*context));
    REPRISE_ASSIGN_OR_RETURN(*overflowAddr, runtime::OverflowAddress(*context));
    return {};
  });
}

aclError aclrtGetFloatOverflowStatus(void* outputAddr, uint64_t outputSize, aclrtStream stream) {
  return runtime::Api("aclrtGetFloatOverflowStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(outputAddr, "outputAddr"));
    return ReadStatus("aclrtGetFloatOverflowStatus", outputAddr, outputSize, stream, true);
  });
}

aclError aclrtResetFloatOverflowStatus(aclrtStream stream) {
  return runtime::Api("aclrtResetFloatOverflowStatus",
                      [&]() -> Status { return ClearStatus("aclrtResetFloatOverflowStatus", stream, true); });
}

aclError aclrtNpuGetFloatOverFlowStatus(void* outputAddr, uint64_t outputSize, uint32_t checkMode, aclrtStream stream) {
  return runtime::Api("aclrtNpuGetFloatOverFlowStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(outputAddr, "outputAddr"));
    REPRISE_RETURN_IF_ERROR(IsReserved(checkMode, "checkMode", kInvalidValue));
    return ReadStatus("aclrtNpuGetFloatOverFlowStatus", outputAddr, outputSize, stream, true);
  });
}

aclError aclrtNpuClearFloatOverFlowStatus(uint32_t checkMode, aclrtStream stream) {
  return runtime::Api("aclrtNpuClearFloatOverFlowStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(IsReserved(checkMode, "checkMode", kInvalidValue));
    return ClearStatus("aclrtNpuClearFloatOverFlowStatus", stream, true);
  });
}
