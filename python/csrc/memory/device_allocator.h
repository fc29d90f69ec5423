// SPDX-License-Identifier: Apache-2.0
//
// torch's view of the core's caching device allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "device/stream.h"

namespace torch_npu {

/// Never destroyed. Memory belongs to the calling thread's current stream.
c10::DeviceAllocator& DeviceMemory();

/// On `stream` instead. 0 bytes: null.
void* AllocateOn(const NPUStream& stream, size_t bytes);
/// With or without the GIL; nothing happens after the runtime's end.
void FreeBlock(void* block);
/// Whether the data is ours, so that its context is the block.
bool IsOurs(const c10::DataPtr& data) noexcept;
/// Whether any memory was asked for yet.
bool WasAllocated() noexcept;

/// Throws ValueError when the settings of the environment are malformed. The runtime must be initialised.
void CheckMemorySettings();

}  // namespace torch_npu
