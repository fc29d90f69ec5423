// SPDX-License-Identifier: Apache-2.0
#include "device/event.h"

#include <c10/util/Exception.h>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/capture_places.h"
#include "device/runtime.h"

namespace torch_npu {
namespace {

constexpr uint32_t kOurs = 0x100;  // in a c10::EventFlag: the rest is flags of the runtime

struct Instead {  // of recording
  bool create_only = false;
  void* adopted = nullptr;
};
thread_local Instead t_instead;

// Goes through c10::Event::record, which is the only way to fill a c10::Event.
void Fill(c10::Event& event, c10::DeviceIndex device, Instead instead) {
  t_instead = instead;
  struct Restore {
    ~Restore() { t_instead = {}; }
  } restore;
  event.record(DefaultStream(device));
}

}  // namespace

uint32_t RuntimeFlags(c10::EventFlag flag) noexcept {
  const auto bits = static_cast<uint32_t>(flag);
  if ((bits & kOurs) != 0) return bits & ~kOurs;
  return flag == c10::EventFlag::BACKEND_DEFAULT ? ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE : ACL_EVENT_SYNC;
}

c10::EventFlag FlagOf(uint32_t runtime_flags) noexcept { return static_cast<c10::EventFlag>(kOurs | runtime_flags); }

bool IsExternal(const c10::Event& event) noexcept { return (RuntimeFlags(event.flag()) & ACL_EVENT_EXTERNAL) != 0; }
bool IsTimed(const c10::Event& event) noexcept { return (RuntimeFlags(event.flag()) & ACL_EVENT_TIME_LINE) != 0; }

void CreateNow(c10::Event& event, c10::DeviceIndex device) {
  if (event.eventId() == nullptr) Fill(event, device, {.create_only = true});
}

void Adopt(c10::Event& event, aclrtEvent handle, c10::DeviceIndex device) {
  TORCH_CHECK(event.eventId() == nullptr, "the event exists already");
  Fill(event, device, {.adopted = handle});
}

void Record(c10::Event& event, const NPUStream& stream) { event.record(stream); }

void Wait(c10::Event& event, const NPUStream& stream) {
  RefuseExternal(stream, "wait_event");
  if (IsExternal(event)) CreateNow(event, stream.device_index());
  event.block(stream);
}

void Reset(c10::Event& event, const NPUStream& stream) {
  TORCH_CHECK(IsExternal(event), "reset is for external events only; use torch.npu.ExternalEvent()");
  RefuseExternal(stream, "reset of an event");
  CreateNow(event, stream.device_index());
  const DeviceScope scope(stream.device_index());
  Check(aclrtResetEvent(event.eventId(), stream.handle()), "aclrtResetEvent");
}

double ElapsedTime(const c10::Event& begin, const c10::Event& end) {
  TORCH_CHECK(IsTimed(begin) && IsTimed(end),
              "elapsed_time needs two events made with enable_timing=True: torch.npu.Event(enable_timing=True)");
  TORCH_CHECK(begin.eventId() != nullptr && end.eventId() != nullptr,
              "elapsed_time needs two recorded events; call record() on both first");
  SynchronizeRuntimeEvent(begin.eventId());
  SynchronizeRuntimeEvent(end.eventId());
  float milliseconds = 0;
  Check(aclrtEventElapsedTime(&milliseconds, begin.eventId(), end.eventId()), "aclrtEventElapsedTime");
  return milliseconds;
}

void RecordRuntimeEvent(void** event, const NPUStream& stream, c10::DeviceIndex created_on, c10::EventFlag flag) {
  if (t_instead.adopted != nullptr) {
    *event = t_instead.adopted;
    return;
  }
  RefuseExternal(stream, "record_event");
  if (*event == nullptr) {
    const DeviceScope scope(stream.device_index());
    const uint32_t flags = RuntimeFlags(flag);
    // The other function knows no external events.
    if ((flags & ACL_EVENT_EXTERNAL) != 0) {
      Check(aclrtCreateEventWithFlag(event, flags), "aclrtCreateEventWithFlag");
    } else {
      Check(aclrtCreateEventExWithFlag(event, flags), "aclrtCreateEventExWithFlag");
    }
    if (t_instead.create_only) return;
  } else {
    TORCH_CHECK(created_on == stream.device_index(), "an event of npu:", static_cast<int>(created_on),
                " cannot be recorded on a stream of npu:", static_cast<int>(stream.device_index()),
                "; record another event there");
  }
  const DeviceScope scope(stream.device_index());
  Check(aclrtRecordEvent(*event, stream.handle()), "aclrtRecordEvent");
}

void WaitRuntimeEvent(void* event, const NPUStream& stream) {
  if (event == nullptr) return;
  RefuseExternal(stream, "wait_event");
  const DeviceScope scope(stream.device_index());
  const bool may_fork = IsAnyCapturing() && !stream.is_capturing();
  Check(aclrtStreamWaitEvent(stream.handle(), event), "aclrtStreamWaitEvent");
  if (may_fork && stream.is_capturing()) NoteFork(stream);
}

bool QueryRuntimeEvent(void* event) {
  if (event == nullptr) return true;
  EnsureContext();
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  Check(aclrtQueryEventStatus(event, &status), "aclrtQueryEventStatus");
  return status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
}

void SynchronizeRuntimeEvent(void* event) {
  if (event == nullptr) return;
  EnsureContext();
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtSynchronizeEvent(event);
  }
  Check(code, "aclrtSynchronizeEvent");
}

void DestroyRuntimeEvent(void* event) noexcept {
  if (event != nullptr && IsAlive()) (void)aclrtDestroyEvent(event);
}

}  // namespace torch_npu
