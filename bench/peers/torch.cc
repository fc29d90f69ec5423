// SPDX-License-Identifier: Apache-2.0
#include "peers/torch.h"

#include <c10/core/CPUAllocator.h>

namespace peers {

void* TorchAllocate(size_t bytes) { return c10::GetCPUAllocator()->raw_allocate(bytes); }
void TorchFree(void* block) { c10::GetCPUAllocator()->raw_deallocate(block); }

}  // namespace peers
