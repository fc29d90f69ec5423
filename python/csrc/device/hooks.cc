// SPDX-License-Identifier: Apache-2.0
//
// What torch's device-generic code asks of the backend besides the guard.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <acl/acl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/device_allocator.h"
#include "memory/host_allocator.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return DeviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return HasContext(device); }
  void init() const override {
    LazyInit();
    EnsureContext();
  }

  c10::DeviceIndex deviceCount() const override { return DeviceCount(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { SetDevice(device); }
  c10::DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return ExchangeDevice(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return HasContext(device) ? ExchangeDevice(device) : CurrentDevice();
  }

  bool isPinnedPtr(const void* address) const override { return IsPinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &HostMemory(); }
  c10::Device getDeviceFromPtr(void* address) const override {
    aclrtPtrAttributes attributes{};
    Check(aclrtPointerGetAttributes(address, &attributes), "aclrtPointerGetAttributes");
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(attributes.location.id)};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return DefaultGenerator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return NewGenerator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr data = DeviceMemory().allocate(bytes);
    if (const size_t kept = std::min(bytes, storage.nbytes()); kept != 0) {
      DeviceMemory().copy_data(data.get(), storage.data(), kept);
    }
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool g_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // never destroyed
  return true;
}();

}  // namespace
}  // namespace torch_npu
