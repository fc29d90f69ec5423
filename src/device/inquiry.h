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
#include "device/run_place.h"

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

/// What a thread does, for those who look from outside and for handlers of signals: which run of a stream or a lane it
/// is in (Turn), and which host function it runs. Costs a few stores to memory of the thread's own.
class Activity {
 public:
  /// How a host function came to this thread.
  enum class Kind : uint8_t {
    kHostFunction,  ///< as a task, on a worker
    kCallback,      ///< by aclrtProcessReport; its stream waits for it
    kFreeCallback   ///< the same, without a stream that waits
  };

  /// `function` may be null; `whole` is the stream that it holds up; for `stream` and `task` as RunContext has them.
  Activity(const void* function, const Runnable* whole, int32_t device, int32_t stream, uint32_t task,
           Kind kind = Kind::kHostFunction) noexcept;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  /// The stream that is held up by the host function of this thread; null when the thread runs none.
  static const Runnable* Mine() noexcept {
    return t_slot != nullptr ? t_slot->whole.load(std::memory_order_relaxed) : nullptr;
  }

  /// As Mine, where the stream's queue cannot move until the function returns: not for callbacks, whose stream is
  /// parked, and may be aborted meanwhile.
  static const Runnable* HeldUp() noexcept {
    return t_slot != nullptr && t_slot->kind.load(std::memory_order_relaxed) == Kind::kHostFunction ? Mine() : nullptr;
  }

  /// The thread waits in one of our calls, for the time of a scope: for a stream, or for what `what` names.
  class Wait {
   public:
    Wait(const char* what, int64_t id, const Runnable* stream = nullptr) noexcept;
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait();

   private:
    bool is_set_ = false;
    const char* what_before_ = nullptr;
    int64_t id_before_ = 0;
    const Runnable* stream_before_ = nullptr;
  };

  /// The thread runs what is ready, for the time of a scope.
  class Turn {
   public:
    explicit Turn(const RunPlace* place) noexcept {
      if (t_slot == nullptr) [[unlikely]]
        t_slot = TakeSlot();
      before_ = t_slot->place;
      __atomic_store_n(&t_slot->place, place, __ATOMIC_RELAXED);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { __atomic_store_n(&t_slot->place, before_, __ATOMIC_RELAXED); }

   private:
    const RunPlace* before_;
  };
  /// Where this thread is; null when it runs nothing.
  static const RunPlace* Place() noexcept { return t_slot != nullptr ? t_slot->place : nullptr; }

  /// A thread that waits for a stream may run the work itself, and then cannot say that it makes no progress: whoever
  /// looks for that finds it by this note, for the time of a scope.
  class Help {
   public:
    explicit Help(const Runnable* stream) noexcept {
      if (t_slot == nullptr) [[unlikely]]
        t_slot = TakeSlot();
      __atomic_store_n(&t_slot->helps, stream, __ATOMIC_RELAXED);
    }
    Help(const Help&) = delete;
    Help& operator=(const Help&) = delete;
    ~Help() { __atomic_store_n(&t_slot->helps, nullptr, __ATOMIC_RELAXED); }
  };
  struct Helper {
    const Runnable* stream;
    int32_t thread;
  };
  static std::vector<Helper> Helpers();

  /// The host function that this thread runs; false when it runs none. For handlers of signals.
  struct Function {
    const void* function;
    Kind kind;
    int32_t device;
    int32_t stream;
    uint32_t task;
  };
  static bool MyFunction(Function& function) noexcept;

  /// Whether a host function runs that holds up the stream.
  static bool HoldsUp(const Runnable* whole) noexcept;
  /// "stream 3, task 5: host function f runs on thread 4711 since 12 s and waits for stream 4", for each of a device.
  static std::vector<std::string> Describe(int device);

  /// A thread in the midst of a run; what it runs may have ended by now.
  struct Run {
    RunPlace place;
    int32_t thread;
    std::string kernel;  ///< its name; empty where none is known
  };
  static std::vector<Run> Runs(int device);

 private:
  // One for each thread that has run something, on cache lines of its own; other threads read it at any time. What
  // every run writes is plain memory, which is written and read with the compiler's own atomic accesses.
  struct alignas(64) Slot {
    const RunPlace* place = nullptr;
    const Runnable* helps = nullptr;
    std::atomic<uint64_t> serial{0};  // odd while a host function runs, which the members below describe
    std::atomic<const void*> function{nullptr};
    std::atomic<const Runnable*> whole{nullptr};
    std::atomic<const char*> awaited_what{nullptr};
    std::atomic<const Runnable*> awaited{nullptr};
    std::atomic<int64_t> awaited_id{0};
    std::atomic<int64_t> since_ns{0};
    std::atomic<int32_t> device{0};
    std::atomic<int32_t> stream{0};
    std::atomic<uint32_t> task{0};
    std::atomic<Kind> kind{Kind::kHostFunction};
    int32_t thread = 0;
    bool is_taken = true;
    Slot* next = nullptr;
  };
  struct Owner;
  static Slot* TakeSlot() noexcept;
  static Slot* Slots() noexcept;
  static Slot* g_first;
  static Slot g_nobody;

  // In the static block, as runtime::ThreadState: reached in one instruction.
  static constinit thread_local Slot* t_slot __attribute__((tls_model("initial-exec")));

  bool is_set_ = false;
};

}  // namespace reprise::device
