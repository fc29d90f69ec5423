// SPDX-License-Identifier: Apache-2.0
//
// Inquiry: "why does nothing happen?" While one is open, everything that parks says what it waits for. Whoever opens it
// wakes what may be parked, so that it parks again and answers. What runs cannot answer: host functions leave a note
// before they run (Activity), which inquiries read.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/futex.h"

namespace reprise::device {

/// Threads: one inquiry at a time in the process; the constructor waits for its turn.
class Inquiry {
 public:
  Inquiry();
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  /// One relaxed load: for every place that parks.
  static bool IsOpen() { return open_.load(std::memory_order_relaxed); }
  /// A waiter's answer, for example "stream 3, task 5: NOTIFY_WAIT of notify 4".
  static void Answer(std::string line);

  /// The answers that come within a short while. Empty when none of the woken runnables parks again within `patience`.
  std::vector<std::string> Collect(Clock::duration patience);

 private:
  static std::atomic<bool> open_;
};

class Runnable;

/// Stands for a host function while it runs. Costs a few stores to memory that only its thread writes.
class Activity {
 public:
  /// `function` may be null; `whole` is the stream that it holds up; for `stream` and `task` as RunContext has them.
  Activity(const void* function, const Runnable* whole, int32_t device, int32_t stream, uint32_t task) noexcept;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  /// The stream that is held up by the host function of this thread; null when the thread runs none.
  static const Runnable* Mine() noexcept {
    return t_slot != nullptr ? t_slot->whole.load(std::memory_order_relaxed) : nullptr;
  }
  /// Notes that the host function of this thread waits for `stream` now; null: it waits no longer.
  static void WaitFor(const Runnable* stream, int32_t id) noexcept;

  /// Whether a host function runs that holds up the stream.
  static bool HoldsUp(const Runnable* whole) noexcept;
  /// "stream 3, task 5: host function f runs on thread 4711 and waits for stream 4", for each of a device.
  static std::vector<std::string> Describe(int device);

 private:
  // One for each thread that has run host functions; other threads read it at any time.
  struct Slot {
    std::atomic<uint64_t> serial{0};  // odd while a host function runs, which the members below describe
    std::atomic<const void*> function{nullptr};
    std::atomic<const Runnable*> whole{nullptr};
    std::atomic<const Runnable*> awaited{nullptr};
    std::atomic<int32_t> awaited_id{0};
    std::atomic<int32_t> device{0};
    std::atomic<int32_t> stream{0};
    std::atomic<uint32_t> task{0};
    std::atomic<int32_t> thread{0};
    std::atomic<bool> is_taken{true};
    Slot* next = nullptr;
  };
  struct Owner;
  static Slot* TakeSlot() noexcept;
  static std::atomic<Slot*>& Slots() noexcept;

  // In the static block, as runtime::ThreadState: reached in one instruction.
  static constinit thread_local Slot* t_slot __attribute__((tls_model("initial-exec")));
};

}  // namespace reprise::device
