// SPDX-License-Identifier: Apache-2.0
//
// SpinLock: for critical sections of a few instructions that never call out. Anything longer takes a std::mutex.
#pragma once

#include <atomic>
#include <thread>

namespace reprise {

inline void CpuRelax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Test-and-test-and-set lock; usable with std::lock_guard.
class SpinLock {
 public:
  void lock() noexcept {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
      while (locked_.load(std::memory_order_relaxed)) {
        CpuRelax();
        // The holder may have been descheduled: with more threads than cores, spinning on would only delay it.
        if (++spins % 256 == 0) std::this_thread::yield();
      }
    }
  }
  bool try_lock() noexcept { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace reprise
