// SPDX-License-Identifier: Apache-2.0
//
// torch's view of the core's caching device allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace torch_npu {

/// Never destroyed. Memory belongs to the calling thread's current stream.
c10::DeviceAllocator& DeviceMemory();

}  // namespace torch_npu
