// SPDX-License-Identifier: Apache-2.0
//
// operator new and operator delete of this library, and of protobuf below it: those of the process. See process_heap.h.
#include <cstddef>
#include <new>

#include "base/process_heap.h"

using reprise::AllocateFromProcess;
using reprise::ReturnToProcess;

void* operator new(size_t bytes) { return AllocateFromProcess(bytes, 0); }
void* operator new[](size_t bytes) { return AllocateFromProcess(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateFromProcess(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return AllocateFromProcess(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return AllocateFromProcess(bytes, 0);
  } catch (...) {
    return nullptr;
  }
}
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }

void operator delete(void* block) noexcept { ReturnToProcess(block, 0); }
void operator delete[](void* block) noexcept { ReturnToProcess(block, 0); }
void operator delete(void* block, size_t) noexcept { ReturnToProcess(block, 0); }
void operator delete[](void* block, size_t) noexcept { ReturnToProcess(block, 0); }
void operator delete(void* block, const std::nothrow_t&) noexcept { ReturnToProcess(block, 0); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { ReturnToProcess(block, 0); }
void operator delete(void* block, std::align_val_t alignment) noexcept {
  ReturnToProcess(block, static_cast<size_t>(alignment));
}
void operator delete[](void* block, std::align_val_t alignment) noexcept {
  ReturnToProcess(block, static_cast<size_t>(alignment));
}
void operator delete(void* block, size_t, std::align_val_t alignment) noexcept {
  ReturnToProcess(block, static_cast<size_t>(alignment));
}
void operator delete[](void* block, size_t, std::align_val_t alignment) noexcept {
  ReturnToProcess(block, static_cast<size_t>(alignment));
}
