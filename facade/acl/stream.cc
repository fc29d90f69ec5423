// SPDX-License-Identifier: Apache-2.0
//
// Streams: making and destroying, waiting, attributes, core budgets, abort.
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "limits.h"
#include "runtime/chip.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/memory_pool.h"
#include "runtime/task_abort.h"
#include "runtime/thread.h"
#include "state_callbacks.h"

namespace reprise::facade {
namespace {

using runtime::Context;
using runtime::Stream;

constexpr uint32_t kSpecialFlags = ACL_STREAM_PERSISTENT | ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;
constexpr uint32_t kKnownFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_HUGE | kSpecialFlags;

// ---- Creation and destruction ----

Status CreateStream(aclrtStream* out, uint32_t priority, uint32_t flags) {
  REPRISE_RETURN_IF_ERROR(InRange(priority, 0, runtime::chip::kLeastPriority, "priority"));
  if ((flags & ~kKnownFlags) != 0) flags = 0;  // a plain stream
  if (std::popcount(flags & kSpecialFlags) > 1) {
    return Error(kInvalidValue,
                 fmt::format("flag is {:#x}: PERSISTENT, CPU_SCHEDULE and DEVICE_USE_ONLY exclude each other", flags))
        .Culprit("parameter flag")
        .Hint("pass at most one of the three");
  }
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, Stream::Create(*context, {.flags = flags, .priority = priority}));
  if (context->stop_on_failure.load()) stream->attributes.failure_mode = ACL_STOP_ON_FAILURE;
  *out = stream->handle();
  AnnounceStream(*stream, ACL_RT_STREAM_STATE_CREATE_POST);
  return {};
}

Status BoundToModel(const Stream& stream) {
  return Error(kStreamModel, fmt::format("{} cannot be destroyed: it is bound to a built model", stream.Describe()))
      .Hint("unbind it with aclmdlRIUnbindStream, or destroy the model first");
}

Status DestroyStream(const char* api, aclrtStream handle, Stream::DestroyMode mode) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(handle, "stream"));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(handle));
  if (stream->is_default()) {
    return Error(kInvalidValue,
                 fmt::format("{} cannot be destroyed: it is the default stream of its context", stream->Describe()))
        .Culprit(stream->Describe())
        .Hint("destroy the context, or reset the device");
  }
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*stream, api));
  if (stream->bound_model.load() != nullptr) {
    return BoundToModel(*stream);
  }
  REPRISE_RETURN_IF_ERROR(stream->CheckNotInside("destroys that stream, which waits for its tasks"));
  AnnounceStream(*stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
  if (!Stream::Hide(stream)) return runtime::NotLive(runtime::Streams(), handle, "stream");
  // Once more: calls of other threads may have changed that until now.
  Status unchanged = runtime::CheckNotCapturing(*stream, api);
  if (unchanged.ok() && !stream->CloseToModels()) unchanged = BoundToModel(*stream);
  if (!unchanged.ok()) {
    runtime::Streams().Show(handle);
    return unchanged;
  }
  Stream::DestroyHidden(stream, mode);
  return {};
}

/// Configurations that programs hold. They are plain structures, so a list says which pointers are live.
struct Configurations {
  std::mutex mutex;
  std::set<const aclrtStreamConfigHandle*> live;
};

Configurations& TheConfigurations() {
  static auto* const configurations = new Configurations;
  return *configurations;
}

// With the mutex of TheConfigurations held.
Status CheckConfiguration(const aclrtStreamConfigHandle* handle) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(handle, "handle"));
  if (TheConfigurations().live.count(handle) != 0) return {};
  return Error(kInvalidHandle, fmt::format("{} is no live stream configuration", fmt::ptr(handle)))
      .Culprit("parameter handle")
      .Hint("pass a handle that aclrtCreateStreamConfigHandle returned and that was not destroyed since");
}

// ---- Waiting ----

Status Synchronize(const char* api, aclrtStream handle, int32_t timeout) {
  REPRISE_RETURN_IF_ERROR(IsTimeout(timeout));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(handle));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*stream, api));
  Status status = stream->Synchronize(runtime::DeadlineAfterMs(timeout));
  runtime::MemoryPool::TrimAll();
  return status;
}

Status Query(aclrtStream handle, aclrtStreamStatus* status) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(status, "status"));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(handle));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*stream, "aclrtStreamQuery"));
  *status = ACL_STREAM_STATUS_COMPLETE;
  if (stream->IsIdle()) return stream->Synchronize(Clock::now());  // returns at once, with what the tasks left
  *status = ACL_STREAM_STATUS_NOT_READY;
  return stream->TakeError();
}

// ---- Attributes ----

Status CheckFailureMode(uint64_t mode) { return InRange(mode, ACL_CONTINUE_ON_FAILURE, ACL_STOP_ON_FAILURE, "mode"); }

Status CheckAttribute(aclrtStreamAttr attribute) {
  return InRange(attribute, ACL_STREAM_ATTR_FAILURE_MODE, ACL_STREAM_ATTR_PRIORITY, "stmAttrType");
}

Status SetAttribute(Stream& stream, aclrtStreamAttr attribute, const aclrtStreamAttrValue& value) {
  switch (attribute) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
      if (stream.is_default()) {
        return Error(kInvalidValue,
                     fmt::format("the failure mode of {} cannot be set as an attribute", stream.Describe()))
            .Culprit(stream.Describe())
            .Hint("use aclrtSetStreamFailureMode for the default stream");
      }
      REPRISE_RETURN_IF_ERROR(CheckFailureMode(value.failureMode));
      return runtime::SetFailureMode(stream, value.failureMode == ACL_STOP_ON_FAILURE);
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
      REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclrtSetStreamAttribute(FLOAT_OVERFLOW_CHECK)"));
      REPRISE_RETURN_IF_ERROR(InRange(value.overflowSwitch, 0, 1, "overflowSwitch"));
      stream.attributes.overflow_switch = value.overflowSwitch;
      return {};
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
      REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclrtSetStreamAttribute(USER_CUSTOM_TAG)"));
      stream.attributes.tag = value.userCustomTag;
      return {};
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
      REPRISE_RETURN_IF_ERROR(InRange(value.cacheOpInfoSwitch, 0, 1, "cacheOpInfoSwitch"));
      stream.attributes.cache_op_info = value.cacheOpInfoSwitch;
      return {};
    case ACL_STREAM_ATTR_PRIORITY:
      REPRISE_RETURN_IF_ERROR(InRange(value.streamPriority, 0, runtime::chip::kLeastPriority, "streamPriority"));
      stream.attributes.priority = value.streamPriority;
      return {};
  }
  return {};
}

void GetAttribute(const Stream& stream, aclrtStreamAttr attribute, aclrtStreamAttrValue* value) {
  switch (attribute) {
    case ACL_STREAM_ATTR_FAILURE_MODE: value->failureMode = stream.attributes.failure_mode; return;
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: value->overflowSwitch = stream.attributes.overflow_switch; return;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG: value->userCustomTag = stream.attributes.tag; return;
    case ACL_STREAM_ATTR_CACHE_OP_INFO: value->cacheOpInfoSwitch = capture::CacheOpInfo(stream); return;
    case ACL_STREAM_ATTR_PRIORITY: value->streamPriority = stream.attributes.priority; return;
  }
}

Status RefuseDefault(const Stream& stream, const char* what) {
  if (!stream.is_default()) return {};
  return Error(kInvalidValue,
               fmt::format("{} cannot be {}: it is the default stream of its context", stream.Describe(), what))
      .Culprit(stream.Describe())
      .Hint("use a stream made by aclrtCreateStream");
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

// ---- Creation and destruction ----

aclError aclrtCreateStream(aclrtStream* stream) {
  return runtime::Api("aclrtCreateStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(stream, "stream"));
    return CreateStream(stream, 0, 0);
  });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return runtime::Api("aclrtCreateStreamWithConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(stream, "stream"));
    return CreateStream(stream, priority, flag);
  });
}

aclError aclrtCreateStreamV2(aclrtStream* stream, const aclrtStreamConfigHandle* handle) {
  return runtime::Api("aclrtCreateStreamV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(stream, "stream"));
    aclrtStreamConfigHandle config;
    {
      std::lock_guard lock(TheConfigurations().mutex);
      REPRISE_RETURN_IF_ERROR(CheckConfiguration(handle));
      config = *handle;
    }
    const uint32_t flags = config.flag > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(config.flag);
    return CreateStream(stream, config.priority, flags);
  });
}

aclrtStreamConfigHandle* aclrtCreateStreamConfigHandle() {
  aclrtStreamConfigHandle* handle = nullptr;
  runtime::Api("aclrtCreateStreamConfigHandle", [&]() -> Status {
    auto made = std::make_unique<aclrtStreamConfigHandle>();
    std::lock_guard lock(TheConfigurations().mutex);
    TheConfigurations().live.insert(made.get());
    handle = made.release();
    return {};
  });
  return handle;
}

aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle* handle, aclrtStreamConfigAttr attr, const void* attrValue,
                                 size_t valueSize) {
  return runtime::Api("aclrtSetStreamConfigOpt", [&]() -> Status {
    std::lock_guard lock(TheConfigurations().mutex);
    REPRISE_RETURN_IF_ERROR(CheckConfiguration(handle));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(attrValue, "attrValue"));
    REPRISE_RETURN_IF_ERROR(
        InRange(attr, ACL_RT_STREAM_WORK_ADDR_PTR, ACL_RT_STREAM_PRIORITY, "attr", kInvalidArgument));
    void* field = nullptr;
    size_t bytes = sizeof(size_t);
    switch (attr) {
      case ACL_RT_STREAM_WORK_ADDR_PTR: field = &handle->workptr; break;
      case ACL_RT_STREAM_WORK_SIZE: field = &handle->workSize; break;
      case ACL_RT_STREAM_FLAG: field = &handle->flag; break;
      case ACL_RT_STREAM_PRIORITY:
        field = &handle->priority;
        bytes = sizeof handle->priority;
        break;
    }
    // The flags of all other calls are a uint32_t, so programs pass one here, too.
    if (attr == ACL_RT_STREAM_FLAG && valueSize == sizeof(uint32_t)) {
      uint32_t flags = 0;
      std::memcpy(&flags, attrValue, sizeof flags);
      handle->flag = flags;
      return {};
    }
    if (valueSize != bytes) {
      return Error(kInvalidArgument,
                   fmt::format("valueSize is {}, must be {}{} for attribute {}", valueSize,
                               attr == ACL_RT_STREAM_FLAG ? "4 or " : "", bytes, static_cast<int>(attr)))
          .Culprit("parameter valueSize")
          .Hint(fmt::format("pass a value of {} bytes", bytes));
    }
    std::memcpy(field, attrValue, bytes);
    return {};
  });
}

aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle* handle) {
  return runtime::Api("aclrtDestroyStreamConfigHandle", [&]() -> Status {
    std::lock_guard lock(TheConfigurations().mutex);
    REPRISE_RETURN_IF_ERROR(CheckConfiguration(handle));
    TheConfigurations().live.erase(handle);
    delete handle;
    return {};
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return runtime::Api("aclrtDestroyStream", [&]() -> Status {
    return DestroyStream("aclrtDestroyStream", stream, Stream::DestroyMode::kWait);
  });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return runtime::Api("aclrtDestroyStreamForce", [&]() -> Status {
    return DestroyStream("aclrtDestroyStreamForce", stream, Stream::DestroyMode::kForce);
  });
}

aclError aclrtRegStreamStateCallback(const char* regName, aclrtStreamStateCallback callback, void* args) {
  return runtime::Api("aclrtRegStreamStateCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(regName, "regName"));
    return StreamStateCallbacks().Set(regName, callback, args);
  });
}

// ---- Waiting and aborting ----

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return runtime::Api("aclrtSynchronizeStream",
                      [&]() -> Status { return Synchronize("aclrtSynchronizeStream", stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return runtime::Api("aclrtSynchronizeStreamWithTimeout",
                      [&]() -> Status { return Synchronize("aclrtSynchronizeStreamWithTimeout", stream, timeout); });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return runtime::Api("aclrtStreamQuery", [&]() -> Status { return Query(stream, status); });
}

aclError aclrtStreamAbort(aclrtStream stream) {
  return runtime::Api("aclrtStreamAbort", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*found, "aclrtStreamAbort"));
    found->Abort(kStreamAbort);
    return {};
  });
}

aclError aclrtStreamStop(aclrtStream stream) {
  return runtime::Api("aclrtStreamStop", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(RefuseDefault(*found, "stopped"));
    REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*found, "aclrtStreamStop"));
    if (found->bound_model.load() != nullptr) {
      return Error(kInvalidValue, fmt::format("{} cannot be stopped: it is bound to a built model", found->Describe()))
          .Culprit(found->Describe())
          .Hint("abort the model with aclmdlRIAbort");
    }
    found->Stop();
    return {};
  });
}

// ---- Properties ----

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  return runtime::Api("aclrtCtxGetCurrentDefaultStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
    *stream = context->default_stream()->handle();
    return {};
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return runtime::Api("aclrtStreamGetId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(streamId, "streamId"));
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindAnyStream(stream));
    *streamId = found->id();
    return {};
  });
}

aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t* priority) {
  return runtime::Api("aclrtStreamGetPriority", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(priority, "priority"));
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindAnyStream(stream));
    *priority = found->attributes.priority;
    return {};
  });
}

aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t* flags) {
  return runtime::Api("aclrtStreamGetFlags", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(flags, "flags"));
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindAnyStream(stream));
    *flags = found->flags();
    return {};
  });
}

aclError aclrtDeviceGetStreamPriorityRange(int32_t* leastPriority, int32_t* greatestPriority) {
  return runtime::Api("aclrtDeviceGetStreamPriorityRange", [&]() -> Status {
    if (leastPriority != nullptr) *leastPriority = runtime::chip::kLeastPriority;
    if (greatestPriority != nullptr) *greatestPriority = 0;
    return {};
  });
}

aclError aclrtGetStreamAvailableNum(uint32_t* streamCount) {
  return runtime::Api("aclrtGetStreamAvailableNum", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(streamCount, "streamCount"));
    REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
    *streamCount = static_cast<uint32_t>(context->device().stream_ids().available());
    return {};
  });
}

aclError aclrtGetThreadLastTaskId(uint32_t* taskId) {
  return runtime::Api("aclrtGetThreadLastTaskId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(taskId, "taskId"));
    *taskId = runtime::ThisThread().last_task_id;
    return {};
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return runtime::Api("aclrtSetStreamFailureMode", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckFailureMode(mode));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    return runtime::SetFailureMode(*found, mode == ACL_STOP_ON_FAILURE);
  });
}

aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  return runtime::Api("aclrtSetStreamAttribute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckAttribute(stmAttrType));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    return SetAttribute(*found, stmAttrType, *value);
  });
}

aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue* value) {
  return runtime::Api("aclrtGetStreamAttribute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckAttribute(stmAttrType));
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindAnyStream(stream));
    GetAttribute(*found, stmAttrType, value);
    return {};
  });
}

// ---- Core budgets ----

aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t* value) {
  return runtime::Api("aclrtGetStreamResLimit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(InRange(type, ACL_RT_DEV_RES_CUBE_CORE, ACL_RT_DEV_RES_VECTOR_CORE, "type"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindAnyStream(stream));
    *value = runtime::EffectiveCores(found->device(), found, type);
    return {};
  });
}

aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value) {
  return runtime::Api("aclrtSetStreamResLimit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckCores(type, value));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    runtime::SetCores(*found, type, value);
    return {};
  });
}

aclError aclrtResetStreamResLimit(aclrtStream stream) {
  return runtime::Api("aclrtResetStreamResLimit", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    runtime::ResetCores(*found);
    return {};
  });
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream stream) {
  return runtime::Api("aclrtUseStreamResInCurrentThread", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindStream(stream));
    runtime::ThisThread().limits_stream = found->handle();
    return {};
  });
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
  return runtime::Api("aclrtUnuseStreamResInCurrentThread", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const Stream* found, runtime::FindStream(stream));
    void*& used = runtime::ThisThread().limits_stream;
    if (used == found->handle()) used = nullptr;  // of another stream, or of none: nothing to undo
    return {};
  });
}
