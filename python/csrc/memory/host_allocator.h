// SPDX-License-Identifier: Apache-2.0
//
// torch's view of the core's caching allocator of pinned host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torch_npu {

/// Never destroyed.
at::HostAllocator& HostMemory();

/// Whether the runtime knows the address as pinned: ours, or registered by others. Initialises nothing.
bool IsPinned(const void* address);

}  // namespace torch_npu
