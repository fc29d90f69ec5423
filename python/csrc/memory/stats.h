// SPDX-License-Identifier: Apache-2.0
//
// Statistics of the core in torch's form.
#pragma once

#include <c10/core/Allocator.h>
#include <reprise/memory_types.h>

namespace torch_npu {

inline void Fill(c10::CachingAllocator::Stat& to, const reprise::Stat& from) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

}  // namespace torch_npu
