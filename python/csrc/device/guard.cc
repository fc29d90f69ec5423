// SPDX-License-Identifier: Apache-2.0
//
// The device guard: how torch's device-generic code (autograd engine, torch.Stream, torch.Event, ...) reaches devices,
// streams and events.
#include <acl/acl.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "common/error.h"
#include "device/event.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/device_allocator.h"

namespace torch_npu {
namespace {

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {c10::kPrivateUse1, ExchangeDevice(device.index())};
  }
  c10::Device getDevice() const override { return {c10::kPrivateUse1, CurrentDevice()}; }
  void setDevice(c10::Device device) const override { SetDevice(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      if (IsAlive()) SetDevice(device.index());
    } catch (...) {  // nothing that could be done about it here
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DeviceCount(); }

  c10::Stream getStream(c10::Device device) const override { return CurrentStream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return DefaultStream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    return StreamFromPool(is_high_priority ? -1 : 0, device.index());
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return StreamFromPool(priority, device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const NPUStream before = CurrentStream(stream.device_index());
    SetCurrentStream(NPUStream(stream));
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return NPUStream(stream).handle(); }
  bool queryStream(const c10::Stream& stream) const override { return NPUStream(stream).query(); }
  void synchronizeStream(const c10::Stream& stream) const override { NPUStream(stream).synchronize(); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return NPUStream(stream).is_capturing(); }
  void synchronizeDevice(c10::DeviceIndex device) const override { SynchronizeDevice(device); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override {
    RecordRuntimeEvent(event, NPUStream(stream), device, flag);
  }
  void block(void* event, const c10::Stream& stream) const override { WaitRuntimeEvent(event, NPUStream(stream)); }
  bool queryEvent(void* event) const override { return QueryRuntimeEvent(event); }
  void synchronizeEvent(void* event) const override { SynchronizeRuntimeEvent(event); }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    float milliseconds = 0;
    Check(aclrtEventElapsedTime(&milliseconds, begin, end), "aclrtEventElapsedTime");
    return milliseconds;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { DestroyRuntimeEvent(event); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    DeviceMemory().recordStream(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace
}  // namespace torch_npu
