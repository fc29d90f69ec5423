// SPDX-License-Identifier: Apache-2.0
//
// Which threads are inside of a call, so that what one thread destroys stays where it is while calls of others may
// still use it.
//
//   a call      notes the moment at which it began, and that it has ended: a store each, on a line of the thread's own
//   destroying  takes the handle away, so that nobody finds the object any more; waits for the calls that may have
//               found it before (AwaitCalls), where more than memory depends on them; then gives the memory to Retire,
//               which frees it when the last of these calls has ended
//   giving up   calls that do not end within a second, as those of a thread in a debugger, are waited for no longer.
//               They are still in the midst of the object, so whatever they may touch there is left to Retire, too
//   waiting     a call that waits for others (Waiting) is not waited for; of the memory that is retired meanwhile it
//               keeps only what was there when it began to wait
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/asymmetric_fence.h"
#include "base/status.h"

namespace reprise {

namespace internal {

constexpr uint64_t kRunning = UINT64_MAX;

/// The call of one thread, on cache lines of its own. Never freed; another thread uses it when this one has ended.
struct alignas(128) CallSlot {
  std::atomic<uint64_t> since{0};         ///< the moment at which the call began; 0: the thread is in none
  std::atomic<uint64_t> until{kRunning};  ///< the moment at which it began to wait
  std::atomic<uint32_t> asked{0};         ///< kAsked…: what the end of the call has to see to
  uint32_t depth = 0;                     ///< calls within calls; only its thread reads this and the members below
  uint32_t waits = 0;
  std::atomic<bool> taken{false};
  CallSlot* next = nullptr;
};

// Reached in one instruction, also from a library that was loaded late.
extern constinit thread_local CallSlot* t_calls __attribute__((tls_model("initial-exec")));
extern constinit std::atomic<uint64_t> g_moment;

/// The slot of a thread that has none yet; null when its calls cannot be served, see WhyNoCall.
CallSlot* TakeCallSlot() noexcept;
/// Called at the end of a call whose slot has `asked` set.
void CallEnded(CallSlot& slot) noexcept;

}  // namespace internal

/// For the time of a call, on its thread.
class CallGuard {
 public:
  CallGuard() noexcept {
    internal::CallSlot* slot = internal::t_calls;
    if (slot == nullptr) [[unlikely]] {
      slot = internal::TakeCallSlot();
      if (slot == nullptr) return;
    }
    slot_ = slot;
    if (slot->depth++ != 0) {
      if (slot->waits != 0) [[unlikely]]
        Interrupt();
      return;
    }
    slot->since.store(internal::g_moment.load(std::memory_order_acquire), std::memory_order_relaxed);
    // Written first, looked up second: who takes a handle away either sees this call or is seen by it.
    FrequentFence();
  }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  ~CallGuard() {
    if (slot_ == nullptr) return;
    if (--slot_->depth != 0) {
      if (waits_ != 0) [[unlikely]]
        Resume();
      return;
    }
    slot_->since.store(0, std::memory_order_release);
    FrequentFence();
    if (slot_->asked.load(std::memory_order_relaxed) != 0) [[unlikely]]
      internal::CallEnded(*slot_);
  }
  /// Whether the call can be served; else WhyNoCall says what to return.
  bool admitted() const noexcept { return slot_ != nullptr; }

 private:
  // A call that user code makes while the call around it waits.
  void Interrupt() noexcept;
  void Resume() noexcept;

  internal::CallSlot* slot_ = nullptr;
  uint32_t waits_ = 0;
};

/// 207000 in a process that was forked from one that used a device, 200000 without memory.
[[gnu::cold]] Status WhyNoCall();

/// For the time that a call waits for other threads, or runs code of the user.
class WaitingCall {
 public:
  WaitingCall() noexcept;
  WaitingCall(const WaitingCall&) = delete;
  WaitingCall& operator=(const WaitingCall&) = delete;
  ~WaitingCall();

 private:
  internal::CallSlot* const slot_;
};

/// For the time of something that may end a cancelled thread (pthread_cancel), as writing and sleeping do: calls are no
/// place to end at, and the thread ends behind them.
class NoCancel {
 public:
  NoCancel() noexcept;
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;
  ~NoCancel();

 private:
  int state_ = 0;
};

/// The moment at which an object comes to be; for Retire.
inline uint64_t BirthMoment() noexcept { return internal::g_moment.load(std::memory_order_relaxed); }

/// Waits for the calls of other threads that are under way and may have found an object whose handle is gone, until
/// each has ended or waits itself (WaitingCall). The caller holds no lock that a call may take.
///
/// False: some calls have not ended within a second (PatienceWithCalls), because they take long or their threads are
/// held up. They may still use every object that they have found, and pass it on: such an object must refuse, under its
/// own lock, what is closed now, and the rest of it stays until `Retire` finds that these calls have ended.
[[nodiscard]] bool AwaitCalls() noexcept;
/// How long AwaitCalls waits, in milliseconds; for tests.
std::atomic<int64_t>& PatienceWithCalls() noexcept;

/// Calls free(object) once no call can know the object, which was made at `birth` and whose handle is gone: at once if
/// no other thread is in such a call. `soon` false: later, together with other objects; for small memory that is
/// retired often, and for callers that hold a lock. `free` runs on any thread, without locks, and must not wait for
/// long.
void Retire(void* object, void (*free)(void*), uint64_t birth, bool soon) noexcept;
template <class T>
void RetireObject(T* object, uint64_t birth, bool soon = false) noexcept {
  Retire(
      object, [](void* retired) { delete static_cast<T*>(retired); }, birth, soon);
}

/// Objects that are retired and not freed; for tests.
size_t RetiredObjects() noexcept;

/// Runs `function` before the process's first call; at once when the first call has been made already. For what the
/// environment switches on: a program may set variables until its first call.
void AtFirstCall(void (*function)());

/// From now on, calls in processes that are forked from this one are refused: what they would use has no threads there.
void RefuseInForks() noexcept;

}  // namespace reprise
