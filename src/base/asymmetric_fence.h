// SPDX-License-Identifier: Apache-2.0
//
// A pair of fences for two threads of which each writes one thing and then reads what the other writes, so that at
// least one of them sees the other: one side comes often and pays nothing, the other comes rarely and pays for both.
#pragma once

#include <atomic>

namespace reprise {

namespace internal {
// Set when the library is loaded, before there are threads that it concerns.
extern const bool g_frequent_is_free;
}  // namespace internal

/// The frequent side calls this between its write and its read: keeps the compiler from exchanging them. A full fence
/// where the kernel has no membarrier.
inline void FrequentFence() noexcept {
  if (internal::g_frequent_is_free) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

/// The rare side calls this between its write and its read: every running thread of the process passes a fence. A
/// system call that interrupts the other cores: microseconds.
void RareFence() noexcept;

}  // namespace reprise
