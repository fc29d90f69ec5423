// SPDX-License-Identifier: Apache-2.0
//
// Events and value cells: what orders streams.
#include <fmt/format.h>

#include <mutex>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/memory_pool.h"
#include "runtime/report.h"
#include "runtime/tasks.h"
#include "share_key.h"

namespace reprise::facade {
namespace {

using runtime::Api;
using runtime::Event;
using runtime::NotNull;
using runtime::Stream;

StatusOr<Event*> FindEvent(aclrtEvent event) { return runtime::FindObject(runtime::Events(), event, "event"); }

Status CreateEvent(aclrtEvent* event, uint32_t flags, bool is_ex) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(Event * made, Event::Create(context->device(), flags, is_ex));
  *event = made->handle();
  return {};
}

// Calls of the host that an event outside of graphs (or of another process) does not answer.
Status AnswersHost(const Event& event, const char* api, uint32_t refused_flags) {
  if ((event.flags() & refused_flags) == 0) return {};
  return Error(kFeatureNotSupported, fmt::format("{} is not possible for {}: it was created with flags {:#x}", api,
                                                 event.Describe(), event.flags()))
      .Hint("use an event made by aclrtCreateEventExWithFlag with ACL_EVENT_SYNC or ACL_EVENT_TIME_LINE");
}

Status NotEx(const Event& event, const char* api) {
  if (!event.is_ex()) return {};
  return Error(kFeatureNotSupported,
               fmt::format("{} is not possible for {}: Ex events do not answer it", api, event.Describe()))
      .Hint("use aclrtQueryEventStatus");
}

Status SynchronizeEvent(aclrtEvent handle, int32_t timeout_ms, const char* api) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "event"));
  REPRISE_RETURN_IF_ERROR(IsTimeout(timeout_ms));
  REPRISE_ASSIGN_OR_RETURN(Event * event, FindEvent(handle));
  REPRISE_RETURN_IF_ERROR(AnswersHost(*event, api, ACL_EVENT_EXTERNAL | ACL_EVENT_DEVICE_USE_ONLY));
  REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*event, api));
  auto waited = event->WaitLatest(runtime::DeadlineAfterMs(timeout_ms));
  runtime::MemoryPool::TrimAll();
  REPRISE_ASSIGN_OR_RETURN(const bool done, std::move(waited));
  if (done) return {};
  return Error(kEventSyncTimeout,
               fmt::format("the latest record of {} has not run within {} ms", event->Describe(), timeout_ms))
      .Hint("wait longer, or look for what holds up the stream that records it");
}

// Timestamp of the newest record, in microseconds since the device was first used.
StatusOr<uint64_t> Timestamp(Event& event, int never_recorded_code) {
  runtime::EventRecord* record = event.Latest();
  if (record == nullptr) {
    bool captured = false;
    {
      std::lock_guard lock(event.captured_mutex);
      captured = event.captured.session != 0;
    }
    if (captured) {
      return Error(never_recorded_code,
                   fmt::format("{} was recorded in a capture only, which sets no time", event.Describe()))
          .Hint("record events on the stream that executes the graph, before and after aclmdlRIExecuteAsync");
    }
    return Error(never_recorded_code, fmt::format("{} was never recorded", event.Describe()))
        .Hint("call aclrtRecordEvent first");
  }
  const bool done = record->done();
  const uint64_t time = done ? record->timestamp_us() : 0;
  record->Release();
  if (done && (event.flags() & ACL_EVENT_TIME_LINE) != 0) return time;
  if (!done) {
    return Error(kEventTimestampInvalid, fmt::format("the latest record of {} has not run yet", event.Describe()))
        .Hint("wait for the event with aclrtSynchronizeEvent first");
  }
  return Error(kEventTimestampInvalid, fmt::format("{} was created with flags {:#x}, without ACL_EVENT_TIME_LINE",
                                                   event.Describe(), event.flags()))
      .Hint("create the event with aclrtCreateEventExWithFlag(&event, ACL_EVENT_TIME_LINE)");
}

Status RecordFlagInRange(uint32_t flag) { return InRange(flag, 0, 1, "flag", kInvalidArgument); }

Status RecordEvent(aclrtEvent handle, aclrtStream stream_handle, bool external) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "event"));
  REPRISE_ASSIGN_OR_RETURN(Event * event, FindEvent(handle));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(stream_handle));
  return capture::RecordEvent(*event, *stream, external);
}

Status WaitEvent(aclrtStream stream_handle, aclrtEvent handle, uint32_t timeout_s, bool external) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "event"));
  REPRISE_ASSIGN_OR_RETURN(Event * event, FindEvent(handle));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(stream_handle));
  return capture::WaitEvent(*stream, *event, timeout_s, external);
}

// A cell of a value task: 8-byte aligned device memory.
Status CheckCell(const void* address) {
  REPRISE_RETURN_IF_ERROR(NotNull(address, "devAddr"));
  if (reinterpret_cast<uintptr_t>(address) % 8 != 0) {
    return Error(kInvalidValue, fmt::format("devAddr {} is not aligned to 8 bytes", fmt::ptr(address)))
        .Hint("pass an address that is a multiple of 8");
  }
  return DeviceReaches(address, 8, "devAddr");
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: this file defines only the C functions below
using reprise::Error;
using reprise::Status;
namespace capture = reprise::capture;
namespace runtime = reprise::runtime;

aclError aclrtCreateEvent(aclrtEvent* event) {
  return Api("aclrtCreateEvent", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    return CreateEvent(event, runtime::kEventPlain | ACL_EVENT_TIME_LINE | ACL_EVENT_CAPTURE_STREAM_PROGRESS, false);
  });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return Api("aclrtCreateEventWithFlag", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(InRange(flag, 1, 0x3F, "flag"));
    for (const uint32_t alone : {ACL_EVENT_EXTERNAL, ACL_EVENT_DEVICE_USE_ONLY}) {
      if ((flag & alone) != 0 && flag != alone) {
        return Error(kInvalidValue, fmt::format("flag {:#x} combines {:#x} with others", flag, alone))
            .Hint("pass ACL_EVENT_EXTERNAL and ACL_EVENT_DEVICE_USE_ONLY alone");
      }
    }
    return CreateEvent(event, flag, false);
  });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return Api("aclrtCreateEventExWithFlag", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    constexpr uint32_t kMask = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE;
    if (flag != ACL_EVENT_IPC && (flag == 0 || (flag & ~kMask) != 0)) {
      return Error(kInvalidValue,
                   fmt::format("flag is {:#x}, must be a combination of ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE and "
                               "ACL_EVENT_CAPTURE_STREAM_PROGRESS, or ACL_EVENT_IPC alone",
                               flag))
          .Hint("pass one of these combinations");
    }
    return CreateEvent(event, flag, true);
  });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return Api("aclrtDestroyEvent", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    if (runtime::Event::Destroy(found)) return {};
    return FindEvent(event).status();  // another thread was faster
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return Api("aclrtRecordEvent", [&] { return RecordEvent(event, stream, false); });
}

aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag) {
  return Api("aclrtRecordEventWithFlag", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(RecordFlagInRange(flag));
    return RecordEvent(event, stream, flag == ACL_EVENT_RECORD_EXTERNAL);
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return Api("aclrtStreamWaitEvent", [&] { return WaitEvent(stream, event, 0, false); });
}

aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
  return Api("aclrtStreamWaitEventWithTimeout", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(InRange(timeout, 0, INT32_MAX, "timeout"));
    return WaitEvent(stream, event, static_cast<uint32_t>(timeout), false);
  });
}

aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout, uint32_t flag) {
  return Api("aclrtStreamWaitEventWithFlag", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(RecordFlagInRange(flag));
    const bool external = flag == ACL_EVENT_WAIT_EXTERNAL;
    if (external && timeout != 0) {
      return Error(kInvalidArgument, fmt::format("timeout is {}, must be 0 for an external wait", timeout))
          .Hint("pass 0: an external wait has no time limit");
    }
    return WaitEvent(stream, event, timeout, external);
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return Api("aclrtResetEvent", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    return capture::ResetEvent(*found, *on);
  });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return Api("aclrtQueryEvent", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(NotNull(status, "status"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_RETURN_IF_ERROR(NotEx(*found, "aclrtQueryEvent"));
    REPRISE_RETURN_IF_ERROR(AnswersHost(*found, "aclrtQueryEvent", ACL_EVENT_EXTERNAL | ACL_EVENT_DEVICE_USE_ONLY));
    REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*found, "aclrtQueryEvent"));
    REPRISE_ASSIGN_OR_RETURN(const bool done, found->LatestDone(false));
    *status = done ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return Api("aclrtQueryEventStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(NotNull(status, "status"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_RETURN_IF_ERROR(
        AnswersHost(*found, "aclrtQueryEventStatus", ACL_EVENT_EXTERNAL | ACL_EVENT_DEVICE_USE_ONLY));
    REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*found, "aclrtQueryEventStatus"));
    REPRISE_ASSIGN_OR_RETURN(const bool done, found->LatestDone(found->is_ex()));
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  return Api("aclrtQueryEventWaitStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(NotNull(status, "status"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_RETURN_IF_ERROR(NotEx(*found, "aclrtQueryEventWaitStatus"));
    REPRISE_RETURN_IF_ERROR(
        AnswersHost(*found, "aclrtQueryEventWaitStatus", ACL_EVENT_EXTERNAL | ACL_EVENT_DEVICE_USE_ONLY));
    REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*found, "aclrtQueryEventWaitStatus"));
    // Waits of a plain event are bound to its records: when the newest has run, so have they.
    bool pending = false;
    if (found->has_flag_semantics()) {
      pending = found->flag().pending_waits.load(std::memory_order_acquire) != 0;
    } else {
      REPRISE_ASSIGN_OR_RETURN(const bool done, found->LatestDone(true));
      pending = !done;
    }
    *status = pending ? ACL_EVENT_WAIT_STATUS_NOT_READY : ACL_EVENT_WAIT_STATUS_COMPLETE;
    return {};
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return Api("aclrtSynchronizeEvent", [&] { return SynchronizeEvent(event, -1, "aclrtSynchronizeEvent"); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return Api("aclrtSynchronizeEventWithTimeout",
             [&] { return SynchronizeEvent(event, timeout, "aclrtSynchronizeEventWithTimeout"); });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return Api("aclrtEventElapsedTime", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ms, "ms"));
    REPRISE_RETURN_IF_ERROR(NotNull(startEvent, "startEvent"));
    REPRISE_RETURN_IF_ERROR(NotNull(endEvent, "endEvent"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * start, FindEvent(startEvent));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * end, FindEvent(endEvent));
    for (runtime::Event* event : {start, end}) {
      REPRISE_RETURN_IF_ERROR(
          AnswersHost(*event, "aclrtEventElapsedTime", ACL_EVENT_EXTERNAL | ACL_EVENT_IPC | ACL_EVENT_DEVICE_USE_ONLY));
      REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*event, "aclrtEventElapsedTime"));
    }
    REPRISE_ASSIGN_OR_RETURN(const uint64_t from, Timestamp(*start, kRuntimeCannot));
    REPRISE_ASSIGN_OR_RETURN(const uint64_t to, Timestamp(*end, kRuntimeCannot));
    *ms = static_cast<float>(static_cast<int64_t>(to - from)) / 1000.0f;
    return {};
  });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  return Api("aclrtEventGetTimestamp", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(timestamp, "timestamp"));
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_RETURN_IF_ERROR(
        AnswersHost(*found, "aclrtEventGetTimestamp", ACL_EVENT_EXTERNAL | ACL_EVENT_IPC | ACL_EVENT_DEVICE_USE_ONLY));
    REPRISE_RETURN_IF_ERROR(capture::CheckEventNotCaptured(*found, "aclrtEventGetTimestamp"));
    REPRISE_ASSIGN_OR_RETURN(*timestamp, Timestamp(*found, kEventTimestampInvalid));
    return {};
  });
}

aclError aclrtGetEventId(aclrtEvent event, uint32_t* eventId) {
  return Api("aclrtGetEventId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_RETURN_IF_ERROR(NotNull(eventId, "eventId"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_RETURN_IF_ERROR(NotEx(*found, "aclrtGetEventId"));
    *eventId = static_cast<uint32_t>(found->id());
    return {};
  });
}

aclError aclrtGetEventAvailNum(uint32_t* eventCount) {
  return Api("aclrtGetEventAvailNum", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(eventCount, "eventCount"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    *eventCount = static_cast<uint32_t>(context->device().event_ids().available());
    return {};
  });
}

aclError aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle* handle) {
  return Api("aclrtIpcGetEventHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * found, FindEvent(event));
    REPRISE_ASSIGN_OR_RETURN(const reprise::device::ShareKey key, found->Export());
    WriteKey(key, handle->reserved, sizeof handle->reserved);
    return {};
  });
}

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent* event) {
  return Api("aclrtIpcOpenEventHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(event, "event"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(const reprise::device::ShareKey key, ReadKey(handle.reserved, sizeof handle.reserved));
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * made, runtime::Event::Open(context->device(), key));
    *event = made->handle();
    return {};
  });
}

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return Api("aclrtValueWrite", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devAddr, "devAddr"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flag, "flag", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(CheckCell(devAddr));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    return runtime::SubmitValueWrite(*on, devAddr, value);
  });
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return Api("aclrtValueWait", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devAddr, "devAddr"));
    REPRISE_RETURN_IF_ERROR(InRange(flag, 0, 3, "flag"));
    REPRISE_RETURN_IF_ERROR(CheckCell(devAddr));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    return runtime::SubmitValueWait(*on, devAddr, value, static_cast<runtime::ValueCompare>(flag));
  });
}
