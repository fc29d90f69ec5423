// SPDX-License-Identifier: Apache-2.0
//
// The allocators of the process, over the runtime.
#pragma once

#include "base/status.h"
#include "memory/device_allocator.h"
#include "memory/host_allocator.h"

namespace reprise::api {

/// Made at the first use, with the settings of the environment. 107000 when those are wrong, at each use.
StatusOr<memory::DeviceAllocator*> DeviceMemory();
StatusOr<memory::HostAllocator*> HostMemory();
/// Null until they are made.
memory::DeviceAllocator* DeviceMemoryOrNull() noexcept;
memory::HostAllocator* HostMemoryOrNull() noexcept;

/// Around each wait for a device, without a lock of the allocators; both null: nothing. See reprise/memory.h.
struct WaitScope {
  void* (*leave)() = nullptr;
  void (*enter)(void* left) = nullptr;
};
void SetWaitScope(WaitScope scope);

}  // namespace reprise::api
