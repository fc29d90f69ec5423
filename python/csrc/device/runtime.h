// SPDX-License-Identifier: Apache-2.0
//
// The devices and their life: initialised at first use, shut down before the interpreter ends.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace torch_npu {

/// As many devices as a process can be told to have.
inline constexpr int kMaxDevices = 64;

/// Visible devices; 0 when there are none. Neither initialises nor throws.
c10::DeviceIndex DeviceCount() noexcept;

/// Whether there is such a device. Cheap once the process has settled on its devices.
bool IsDevice(c10::DeviceIndex device) noexcept;
/// For messages: how many there are, and how to have this one, too.
std::string WhyNoDevice(int64_t device);

/// -1 (the current device) and numbers that can name a device; throws for others.
c10::DeviceIndex ToDeviceIndex(int64_t device);

/// Initialises the runtime, once. Refused in a forked child of an initialised process.
void LazyInit();
/// As LazyInit, without the calls that Python has queued for the first use: LazyInit makes them after this one.
void InitRuntime();
bool IsInitialized() noexcept;

/// False once Shutdown has begun: whoever frees something afterwards leaves it alone.
bool IsAlive() noexcept;
/// Waits for every device, then ends the runtime's use. Idempotent.
void Shutdown() noexcept;

/// The calling thread's device; 0 before it has chosen one.
c10::DeviceIndex CurrentDevice() noexcept;
/// Makes `device` current in the calling thread; initialises. Throws when there is no such device.
void SetDevice(c10::DeviceIndex device);
/// As SetDevice; returns the device that was current.
c10::DeviceIndex ExchangeDevice(c10::DeviceIndex device);
/// Whether the device has been used by this process.
bool HasContext(c10::DeviceIndex device) noexcept;
/// Before any call that needs a context: gives the calling thread one of its current device.
void EnsureContext();

/// Another current device until the end of the scope. -1: the same.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex before_;
};

/// Waits for all work of the device, without the GIL. Errors of its work are reported here.
void SynchronizeDevice(c10::DeviceIndex device);

}  // namespace torch_npu
