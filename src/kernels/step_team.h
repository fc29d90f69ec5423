// SPDX-License-Identifier: Apache-2.0
//
// StepTeam: threads that go through steps of equal parts together, each step behind the one before.
//
//   StepTeam team(members, parts);            // one for all threads
//   for (int64_t s = 0; s < steps; ++s) {     // each thread that comes, whenever it comes
//     team.Step(member, s, [&](int64_t part) { ... });
//   }
//
// A member has parts of its own, the same in all steps, so that what they read stays in the caches of its core. Members
// that have not come yet, or are held up, lose parts to the others: one thread alone gets through all steps, and nobody
// waits but for parts that a thread has begun. What the parts compute must not depend on who computes them.
//
// Order: all of a step happens before all of the next one, and all steps before the return of the last Step.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace reprise::kernels {

class StepTeam {
 public:
  static constexpr int64_t kMostMembers = 16;

  /// \pre 1 <= members <= kMostMembers; parts < 2^31, and less than 2^31 steps
  StepTeam(int64_t members, int64_t parts) : members_(members), parts_(parts) {}
  StepTeam(const StepTeam&) = delete;
  StepTeam& operator=(const StepTeam&) = delete;

  int64_t parts() const { return parts_; }

  /// Calls fn(part) for the parts of `step` that this thread gets. All parts have run when it returns. Each thread
  /// takes the steps 0, 1, 2 .. one after the other, under a number of its own, or one that another thread is through
  /// with.
  template <class Fn>
  void Step(int64_t member, int64_t step, Fn&& fn) {
    const int64_t target = (step + 1) * parts_;
    if (done_.load(std::memory_order_acquire) >= target) return;
    Take(member, step, fn);
    for (int64_t patience = kPatience; done_.load(std::memory_order_acquire) < target; --patience) {
      Relax();
      if (patience > 0 && !IsAnyoneMissing()) continue;
      // Somebody has not come, or does not come to his parts.
      for (int64_t other = 0; other < members_; ++other) Take(other, step, fn);
      if (patience < 0 && -patience % kTurns == 0) std::this_thread::yield();
    }
  }

  /// Says that the thread of this number is there, so that the others leave its parts to it for a while.
  void Join() { joined_.fetch_add(1, std::memory_order_relaxed); }

 private:
  static constexpr int64_t kPatience = 500;  // looks before parts of somebody who is there are taken from him
  static constexpr int64_t kTurns = 256;     // looks between two offers to let another thread run

  // The next part of a member, and the step that it belongs to.
  struct alignas(64) Cursor {
    std::atomic<uint64_t> at{0};
  };

  static void Relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  bool IsAnyoneMissing() const { return joined_.load(std::memory_order_relaxed) < members_; }

  // Runs parts of a member until there is none left in this step.
  template <class Fn>
  void Take(int64_t member, int64_t step, Fn& fn) {
    const int64_t begin = parts_ * member / members_, end = parts_ * (member + 1) / members_;
    std::atomic<uint64_t>& cursor = cursors_[member].at;
    int64_t ran = 0;
    // Steps count from 1 here, so that a cursor that was never moved is of an older one.
    const uint64_t now = static_cast<uint64_t>(step + 1) << 32;
    for (uint64_t seen = cursor.load(std::memory_order_relaxed);;) {
      // Of an older step all parts have been taken: this one would not have begun.
      const uint64_t taken = seen >= now ? seen - now : 0;
      if (taken >= static_cast<uint64_t>(end - begin)) break;  // also where the cursor is of a later step
      if (!cursor.compare_exchange_weak(seen, now + taken + 1, std::memory_order_relaxed)) continue;
      seen = now + taken + 1;
      fn(begin + static_cast<int64_t>(taken));
      ++ran;
    }
    if (ran != 0) done_.fetch_add(ran, std::memory_order_acq_rel);
  }

  const int64_t members_;
  const int64_t parts_;
  alignas(64) std::atomic<int64_t> done_{0};  // parts of all steps
  alignas(64) std::atomic<int64_t> joined_{0};
  Cursor cursors_[kMostMembers];
};

}  // namespace reprise::kernels
