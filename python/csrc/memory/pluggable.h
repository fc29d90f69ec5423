// SPDX-License-Identifier: Apache-2.0
//
// Allocators of the user: two C functions, of a library or of Python.
#pragma once

#include <acl/acl.h>
#include <c10/core/Allocator.h>
#include <sys/types.h>

#include <memory>

#include "device/stream.h"

namespace torch_npu {

/// Called without the GIL's help: whoever needs it takes it. The functions live as long as the process.
struct PluggableAllocator {
  using Allocate = void* (*)(ssize_t bytes, int device, aclrtStream stream);
  using Free = void (*)(void* block, ssize_t bytes, int device, aclrtStream stream);

  Allocate allocate = nullptr;
  Free free = nullptr;
};

/// All device memory comes from it from now on, past the caches. Once, and before the first allocation.
void ChangeCurrentAllocator(std::shared_ptr<const PluggableAllocator> allocator);
/// Null: the caching allocator.
std::shared_ptr<const PluggableAllocator> CurrentAllocator();
/// Whether CurrentAllocator is one of the user's; costs nothing.
bool HasPluggableAllocator() noexcept;

/// Memory of the current allocator, which must be one of the user's.
void* PluggableAllocate(size_t bytes, const NPUStream& stream);
/// False: the block is not of the user's allocator.
bool PluggableFree(void* block);

/// Throws: what `what` asks for only the caching allocator has.
void RefusePluggable(const char* what);

}  // namespace torch_npu
