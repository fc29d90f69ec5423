// SPDX-License-Identifier: Apache-2.0
#include "base/process_heap.h"

#include <new>

namespace reprise {

void* AllocateFromProcess(size_t bytes, size_t alignment) {
  return alignment == 0 ? ::operator new(bytes) : ::operator new (bytes, std::align_val_t{alignment});
}

void ReturnToProcess(void* block, size_t alignment) noexcept {
  if (alignment == 0) return ::operator delete(block);
  ::operator delete (block, std::align_val_t{alignment});
}

}  // namespace reprise
