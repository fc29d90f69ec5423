// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/Event.h>
#include <torch/csrc/Stream.h>

#include <cstring>
#include <string>
#include <utility>

#include "bind/bindings.h"
#include "common/error.h"
#include "device/event.h"
#include "device/runtime.h"
#include "device/stream.h"

namespace torch_npu {
namespace {

namespace py = pybind11;

using Parts = std::tuple<int64_t, int, int>;  // id, device index, device type: what torch.Stream is made of

Parts PartsOf(const NPUStream& stream) {
  return {stream.id(), stream.device_index(), static_cast<int>(c10::kPrivateUse1)};
}

const char* TypeName(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

c10::Event& EventOf(py::handle object) {
  TORCH_CHECK(THPEvent_Check(object.ptr()), "expected a torch.npu.Event, not ", TypeName(object));
  c10::Event& event = reinterpret_cast<THPEvent*>(object.ptr())->event;
  TORCH_CHECK(event.device_type() == c10::kPrivateUse1, "expected an event of an npu device, not of ",
              c10::DeviceTypeName(event.device_type(), true));
  return event;
}

// None: the current stream.
NPUStream StreamOrCurrent(py::handle object) { return object.is_none() ? CurrentStream() : StreamOf(object); }

}  // namespace

NPUStream StreamOf(py::handle object) {
  TORCH_CHECK(THPStream_Check(object.ptr()), "expected a torch.npu.Stream, not ", TypeName(object),
              "; make one with torch.npu.Stream()");
  const auto* const stream = reinterpret_cast<THPStream*>(object.ptr());
  return StreamFromParts(stream->stream_id, stream->device_index, stream->device_type);
}

void BindStreams(py::module_& module) {
  module.def("_npu_streamFromPool", [](int64_t device, int priority, bool is_sync_launch) {
    LazyInit();
    return PartsOf(StreamFromPool(priority, ToDeviceIndex(device),
                                  is_sync_launch ? StreamType::kSyncLaunch : StreamType::kNormal));
  });
  module.def("_npu_streamFromParts",
             [](int64_t id, int64_t device, int64_t type) { return PartsOf(StreamFromParts(id, device, type)); });
  module.def("_npu_streamFromExternal", [](uint64_t handle, int64_t device) {
    TORCH_CHECK(handle != 0, "stream_ptr is null; pass the handle of an existing stream");
    return PartsOf(StreamFromExternal(reinterpret_cast<aclrtStream>(handle), ToDeviceIndex(device)));
  });
  module.def("_npu_getCurrentStream", [](int64_t device) { return PartsOf(CurrentStream(ToDeviceIndex(device))); });
  module.def("_npu_getDefaultStream", [](int64_t device) { return PartsOf(DefaultStream(ToDeviceIndex(device))); });
  module.def("_npu_setStream", [](py::handle object) {
    const NPUStream stream = StreamOf(object);
    SetDevice(stream.device_index());
    SetCurrentStream(stream);
  });
  module.def("_npu_getCurrentRawStream",
             [](int64_t device) { return reinterpret_cast<uint64_t>(CurrentStream(ToDeviceIndex(device)).handle()); });
  module.def("_npu_streamWaitEvent",
             [](py::handle stream, py::handle event) { Wait(EventOf(event), StreamOrCurrent(stream)); });

  module.def("_npu_eventSetFlags",
             [](py::handle object, uint32_t flags) { EventOf(object) = c10::Event(c10::kPrivateUse1, FlagOf(flags)); });
  module.def("_npu_eventRecord",
             [](py::handle object, py::handle stream) { Record(EventOf(object), StreamOrCurrent(stream)); });
  module.def("_npu_eventReset",
             [](py::handle object, py::handle stream) { Reset(EventOf(object), StreamOrCurrent(stream)); });
  module.def("_npu_eventElapsedTime",
             [](py::handle begin, py::handle end) { return ElapsedTime(EventOf(begin), EventOf(end)); });
  module.def("_npu_eventRecordedTime", [](py::handle object) {
    const c10::Event& event = EventOf(object);
    TORCH_CHECK(IsTimed(event), "recorded_time needs an event made with enable_timing=True");
    TORCH_CHECK(event.eventId() != nullptr, "recorded_time needs a recorded event; call record() first");
    SynchronizeRuntimeEvent(event.eventId());
    uint64_t timestamp = 0;
    Check(aclrtEventGetTimestamp(event.eventId(), &timestamp), "aclrtEventGetTimestamp");
    return timestamp;
  });
  module.def("_npu_eventIpcHandle", [](py::handle object) {
    c10::Event& event = EventOf(object);
    TORCH_CHECK((RuntimeFlags(event.flag()) & ACL_EVENT_IPC) != 0,
                "ipc_handle is for events that are shared; make it with interprocess=True");
    CreateNow(event, CurrentDevice());
    aclrtIpcEventHandle handle{};
    Check(aclrtIpcGetEventHandle(event.eventId(), &handle), "aclrtIpcGetEventHandle");
    return py::bytes(reinterpret_cast<const char*>(&handle), sizeof handle);
  });
  module.def("_npu_eventOpenIpcHandle", [](py::handle object, int64_t device, const std::string& bytes) {
    aclrtIpcEventHandle handle{};
    TORCH_CHECK(bytes.size() == sizeof handle, "the handle of a shared event has ", sizeof handle, " bytes, not ",
                bytes.size(), "; take it from ipc_handle()");
    std::memcpy(&handle, bytes.data(), sizeof handle);
    const DeviceScope scope(ToDeviceIndex(device));
    aclrtEvent opened = nullptr;
    Check(aclrtIpcOpenEventHandle(handle, &opened), "aclrtIpcOpenEventHandle");
    Adopt(EventOf(object), opened, CurrentDevice());
  });
}

}  // namespace torch_npu
