// SPDX-License-Identifier: Apache-2.0
//
// A mutex whose uncontended way is two inlined instructions that matter; Mutex takes a quarter of an allocation.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "base/thread_annotations.h"

namespace reprise::memory {

/// For UniqueLock. Not recursive; sleeps when it has to wait for long.
class REPRISE_LOCK CacheMutex {
 public:
  void lock() noexcept REPRISE_ACQUIRES() {
    uint32_t seen = kOpen;
    if (!state_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire)) LockSlowly();
  }
  bool try_lock() noexcept REPRISE_TRIES(true) {
    uint32_t seen = kOpen;
    return state_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire);
  }
  void unlock() noexcept REPRISE_RELEASES() {
    if (state_.exchange(kOpen, std::memory_order_release) == kAwaited) FutexWake(state_, 1);
  }

 private:
  enum State : uint32_t { kOpen, kHeld, kAwaited };

  void LockSlowly() noexcept {
    // An allocation from the cache is over in less time than a sleep takes to begin.
    for (int spins = 0; spins < 100; ++spins) {
      uint32_t seen = kOpen;
      if (state_.load(std::memory_order_relaxed) == kOpen &&
          state_.compare_exchange_weak(seen, kHeld, std::memory_order_acquire)) {
        return;
      }
      CpuRelax();
    }
    // The thread that wakes cannot know whether others wait, too, so the lock stays marked as awaited.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kOpen) FutexWait(state_, kAwaited, std::nullopt);
  }

  std::atomic<uint32_t> state_{kOpen};
};

}  // namespace reprise::memory
