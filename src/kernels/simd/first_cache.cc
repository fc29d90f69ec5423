// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/first_cache.h"

#include <unistd.h>

#include <atomic>

namespace reprise::kernels::simd {
namespace {

constexpr int64_t kUsual = 48 << 10;

std::atomic<int64_t> g_bytes{0};  // 0: not asked for yet

int64_t Ask() {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  if (const int64_t bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE); bytes > 0) return bytes;
#endif
  return kUsual;
}

}  // namespace

int64_t FirstCacheBytes() {
  int64_t bytes = g_bytes.load(std::memory_order_relaxed);
  if (bytes == 0) {
    bytes = Ask();
    g_bytes.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

void PretendFirstCache(int64_t bytes) { g_bytes.store(bytes, std::memory_order_relaxed); }

}  // namespace reprise::kernels::simd
