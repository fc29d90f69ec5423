// SPDX-License-Identifier: Apache-2.0
//
// Kernels that the tests launch wrongly, built as misuse_kernels.so.
#include <reprise/kernel.h>

#include <atomic>
#include <cstdint>

namespace {

REPRISE_KERNEL(add, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t n)) {
  if (ctx.block_index == 0) std::atomic_ref<uint64_t>(*cell).fetch_add(n);
}

REPRISE_KERNEL(touch, REPRISE_KERNEL_CUBE, (uint64_t * cell)) {
  if (ctx.block_index == 0) std::atomic_ref<uint64_t>(*cell).fetch_add(1);
}

// One that does not tell the sizes of its parameters.
constexpr RepriseKernelDesc opaque_desc = {"opaque",
                                           0,
                                           [](const RepriseKernelContext*, const void*, size_t) -> int32_t { return 0; },
                                           REPRISE_KERNEL_AICORE,
                                           0,
                                           0,
                                           nullptr,
                                           0};

}  // namespace

REPRISE_KERNEL_TABLE(add, touch, opaque)
