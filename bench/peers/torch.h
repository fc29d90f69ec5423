// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's allocator of CPU memory, when the benchmarks are built with it.
#pragma once

#include <cstddef>

namespace peers {

#ifdef REPRISE_BENCH_HAVE_TORCH
constexpr bool HasTorch() { return true; }
void* TorchAllocate(size_t bytes);
void TorchFree(void* block);
#else
constexpr bool HasTorch() { return false; }
inline void* TorchAllocate(size_t) { return nullptr; }
inline void TorchFree(void*) {}
#endif

}  // namespace peers
