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
  /// How often somebody has found it held. For who holds it.
  uint32_t times_awaited() const noexcept { return times_awaited_; }

 private:
  enum State : uint32_t { kOpen, kHeld, kAwaited };
  static constexpr int kFirstPause = 4;
  static constexpr int kLastPause = 256;

  void LockSlowly() noexcept {
    // An allocation from the cache is over in less time than a sleep takes to begin. Looks become rarer, so that who
    // holds the lock can come again some times with the cache lines that it has: to move them all to another core costs
    // more than a few allocations.
    for (int pause = kFirstPause; pause <= kLastPause; pause *= 2) {
      for (int i = 0; i < pause; ++i) CpuRelax();
      uint32_t seen = kOpen;
      if (state_.load(std::memory_order_relaxed) == kOpen &&
          state_.compare_exchange_weak(seen, kHeld, std::memory_order_acquire)) {
        ++times_awaited_;
        return;
      }
    }
    // The thread that wakes cannot know whether others wait, too, so the lock stays marked as awaited.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kOpen) FutexWait(state_, kAwaited, std::nullopt);
    ++times_awaited_;
  }

  std::atomic<uint32_t> state_{kOpen};
  uint32_t times_awaited_ = 0;  // under the lock itself
};

}  // namespace reprise::memory
