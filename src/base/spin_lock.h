// SPDX-License-Identifier: Apache-2.0
//
// SpinLock: for critical sections of a few instructions that never call out. Anything longer takes a Mutex.
#pragma once

#include <atomic>
#include <thread>

#include "base/thread_annotations.h"

namespace reprise {

inline void CpuRelax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Asks for the cache line to write to. Lines that another core has written come one after the other when atomic writes
/// ask for them, and all at once when they are asked for before.
inline void PrefetchForWrite(const void* address) noexcept {
#if defined(__x86_64__)
  // The builtin asks for the right to write only where the compiler may assume the instruction; older processors take
  // it for a no-op.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

/// Test-and-test-and-set lock; for MutexLock.
class REPRISE_LOCK SpinLock {
 public:
  void lock() noexcept REPRISE_ACQUIRES() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
      while (locked_.load(std::memory_order_relaxed)) {
        CpuRelax();
        // The holder may have been descheduled: with more threads than cores, spinning on would only delay it.
        if (++spins % 256 == 0) std::this_thread::yield();
      }
    }
  }
  bool try_lock() noexcept REPRISE_TRIES(true) { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept REPRISE_RELEASES() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace reprise
