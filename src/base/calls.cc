// SPDX-License-Identifier: Apache-2.0
#include "base/calls.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/call_trace.h"
#include "base/mutex.h"
#include "base/no_destroy.h"
#include "base/strict.h"

namespace reprise {

constinit thread_local internal::CallSlot* internal::t_calls = nullptr;
constinit std::atomic<uint64_t> internal::g_moment{1};

namespace {

using internal::CallSlot;
using internal::g_moment;
using internal::kRunning;
using internal::t_calls;

constexpr uint32_t kAskedToFree = 1;   // what is retired may be free to go
constexpr uint32_t kAskedToLeave = 2;  // the thread ends: its slot goes with the call

constinit std::atomic<int64_t> g_patience_ms{1000};
constexpr size_t kBatch = 64;

struct Retired {
  void* object;
  void (*free)(void*);
  uint64_t birth;
  uint64_t moment;        // nobody finds it since
  const CallSlot* owner;  // of the thread that retired it
};

struct Threads {
  Mutex mutex;  // rank: below everything
  CallSlot* first REPRISE_GUARDED_BY(mutex) = nullptr;
  uint32_t taken REPRISE_GUARDED_BY(mutex) = 0;
  std::vector<Retired> retired REPRISE_GUARDED_BY(mutex);
  size_t batch REPRISE_GUARDED_BY(mutex) = kBatch;  // so many are worth a look
  bool handles_forks REPRISE_GUARDED_BY(mutex) = false;
  bool refused_in_forks REPRISE_GUARDED_BY(mutex) = false;  // a fork's calls will be refused
  bool is_refused_fork = false;                             // set while the fork has one thread
};
constinit NoDestroy<Threads> g_threads;

// Once behind the other: functions of libraries that are loaded before the first call, and then those of later ones.
struct FirstCall {
  Mutex mutex;
  std::array<void (*)(), 8> functions REPRISE_GUARDED_BY(mutex){};
  size_t count REPRISE_GUARDED_BY(mutex) = 0;
  bool was REPRISE_GUARDED_BY(mutex) = false;
};
constinit NoDestroy<FirstCall> g_first_call;

constinit thread_local bool t_ended __attribute__((tls_model("initial-exec"))) = false;

void ReturnSlot(CallSlot& slot) noexcept {
  Threads& threads = g_threads.value;
  MutexLock lock(threads.mutex);
  slot.taken.store(false, std::memory_order_relaxed);
  --threads.taken;
}

struct SlotHolder {
  SlotHolder() = default;
  ~SlotHolder() {
    t_ended = true;
    if (t_calls == nullptr || t_calls->depth != 0) return;
    ReturnSlot(*t_calls);
    t_calls = nullptr;
  }
};

void HandleForks() {
  // Each of the three functions knows that the lock is held from the first of them on.
  pthread_atfork([]() REPRISE_NOT_ANALYSED { g_threads.value.mutex.lock(); },
                 []() REPRISE_NOT_ANALYSED { g_threads.value.mutex.unlock(); },
                 []() REPRISE_NOT_ANALYSED {
                   Threads& threads = g_threads.value;
                   // Only this thread is left. A call that it is in ends in its slot.
                   for (CallSlot* slot = threads.first; slot != nullptr; slot = slot->next) {
                     if (slot == t_calls) continue;
                     slot->since.store(0, std::memory_order_relaxed);
                     slot->until.store(kRunning, std::memory_order_relaxed);
                     slot->asked.store(0, std::memory_order_relaxed);
                     slot->depth = slot->waits = 0;
                     if (slot->taken.exchange(false)) --threads.taken;
                   }
                   if (threads.refused_in_forks) {
                     threads.is_refused_fork = true;
                     t_calls = nullptr;
                   }
                   threads.mutex.unlock();
                 });
}

void RunFirstCall() noexcept {
  FirstCall& first = g_first_call.value;
  MutexLock lock(first.mutex);
  if (first.was) return;
  first.was = true;
  ReadCallTrace();
  ReadStrict();
  for (size_t i = 0; i < first.count; ++i) first.functions[i]();
}

// Whether a call of the slot's thread may know an object of that time.
bool MayKnow(const CallSlot& slot, const Retired& retired) noexcept {
  const uint64_t since = slot.since.load(std::memory_order_acquire);
  return since != 0 && since <= retired.moment && slot.until.load(std::memory_order_acquire) >= retired.birth;
}

// The same, but a call that retires something does not use it any more; one around it may.
bool Keeps(const CallSlot& slot, const Retired& retired, const CallSlot* own) noexcept {
  if (&slot == own && retired.owner == own && own->depth <= 1) return false;
  return MayKnow(slot, retired);
}

// Frees what no call can know any more.
void FreeRetired(const CallSlot* own) noexcept {
  Threads& threads = g_threads.value;
  std::vector<Retired> free;
  {
    MutexLock lock(threads.mutex);
    if (threads.retired.empty()) return;
    g_moment.fetch_add(1, std::memory_order_acq_rel);
    const bool alone = threads.taken == 0 || (threads.taken == 1 && own != nullptr);
    // Until all that keep something have been asked to look again, and have been asked before they were looked at.
    for (bool asked = true; asked;) {
      asked = false;
      if (!alone) RareFence();
      for (CallSlot* slot = threads.first; slot != nullptr; slot = slot->next) {
        if ((slot->asked.load(std::memory_order_relaxed) & kAskedToFree) != 0) continue;
        for (const Retired& retired : threads.retired) {
          if (!Keeps(*slot, retired, own)) continue;
          slot->asked.fetch_or(kAskedToFree, std::memory_order_relaxed);
          asked = true;
          break;
        }
      }
    }
    const auto kept = std::partition(threads.retired.begin(), threads.retired.end(),
                                     [&](const Retired& retired) REPRISE_REQUIRES(threads.mutex) {
                                       for (const CallSlot* slot = threads.first; slot != nullptr; slot = slot->next) {
                                         if (Keeps(*slot, retired, own)) return true;
                                       }
                                       return false;
                                     });
    try {
      free.assign(kept, threads.retired.end());
    } catch (const std::bad_alloc&) {
      return;  // the next one does it
    }
    threads.retired.erase(kept, threads.retired.end());
    threads.batch = threads.retired.size() + kBatch;
  }
  for (const Retired& retired : free) retired.free(retired.object);
}

}  // namespace

CallSlot* internal::TakeCallSlot() noexcept {
  RunFirstCall();
  Threads& threads = g_threads.value;
  if (!t_ended) {
    [[maybe_unused]] static thread_local SlotHolder holder;  // its destructor gives the slot back
  }
  MutexLock lock(threads.mutex);
  if (threads.is_refused_fork) return nullptr;
  if (!threads.handles_forks) HandleForks();
  threads.handles_forks = true;
  CallSlot* slot = threads.first;
  while (slot != nullptr && slot->taken.load(std::memory_order_relaxed)) slot = slot->next;
  if (slot == nullptr) {
    slot = new (std::nothrow) CallSlot;
    if (slot == nullptr) return nullptr;
    slot->next = threads.first;
    threads.first = slot;
  }
  slot->taken.store(true, std::memory_order_relaxed);
  ++threads.taken;
  // Behind the holder's destructor, in those of other objects of the thread: nobody would give it back later.
  slot->asked.store(t_ended ? kAskedToLeave : 0, std::memory_order_relaxed);
  return t_calls = slot;
}

void internal::CallEnded(CallSlot& slot) noexcept {
  const uint32_t asked = slot.asked.exchange(0, std::memory_order_relaxed);
  if ((asked & kAskedToFree) != 0) FreeRetired(nullptr);
  if ((asked & kAskedToLeave) == 0) return;
  t_calls = nullptr;
  ReturnSlot(slot);
}

void CallGuard::Interrupt() noexcept {
  waits_ = std::exchange(slot_->waits, 0);
  slot_->until.store(kRunning, std::memory_order_relaxed);
  FrequentFence();
}

void CallGuard::Resume() noexcept {
  slot_->waits = waits_;
  slot_->until.store(g_moment.load(std::memory_order_relaxed), std::memory_order_release);
}

Status WhyNoCall() {
  if (!g_threads.value.is_refused_fork)
    return Error(kOutOfHostMemory, "the host has no memory left for another thread's calls")
        .Hint("free memory, or let fewer threads call the runtime");
  return Error(kFeatureNotSupported,
               "the process was forked from one that used a device, whose threads it does not have")
      .Culprit("fork after the first context was made")
      .Hint("fork before the program uses a device, or start the child with exec (Python: start method \"spawn\")");
}

WaitingCall::WaitingCall() noexcept : slot_(t_calls != nullptr && t_calls->depth != 0 ? t_calls : nullptr) {
  if (slot_ != nullptr && slot_->waits++ == 0) {
    slot_->until.store(g_moment.load(std::memory_order_relaxed), std::memory_order_release);
  }
}

WaitingCall::~WaitingCall() {
  if (slot_ != nullptr && --slot_->waits == 0) {
    slot_->until.store(kRunning, std::memory_order_relaxed);
    FrequentFence();  // as at the begin of a call
  }
}

NoCancel::NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
NoCancel::~NoCancel() { pthread_setcancelstate(state_, nullptr); }

std::atomic<int64_t>& PatienceWithCalls() noexcept { return g_patience_ms; }

bool AwaitCalls() noexcept {
  Threads& threads = g_threads.value;
  const CallSlot* const own = t_calls;
  const CallSlot* first;
  uint64_t moment;
  {
    MutexLock lock(threads.mutex);
    if (threads.taken == 0 || (threads.taken == 1 && own != nullptr)) return true;
    first = threads.first;
    moment = g_moment.fetch_add(1, std::memory_order_acq_rel);
  }
  RareFence();
  const NoCancel no_cancel;
  const WaitingCall waiting;  // two who destroy do not wait for each other
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(g_patience_ms.load(std::memory_order_relaxed));
  uint32_t looks = 0;
  for (const CallSlot* slot = first; slot != nullptr; slot = slot->next) {
    if (slot == own) continue;
    for (;;) {
      const uint64_t since = slot->since.load(std::memory_order_acquire);
      if (since == 0 || since > moment || slot->until.load(std::memory_order_acquire) != kRunning) break;
      if (std::chrono::steady_clock::now() >= end) return false;
      if (++looks < 1000) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  return true;
}

void Retire(void* object, void (*free)(void*), uint64_t birth, bool soon) noexcept {
  Threads& threads = g_threads.value;
  try {
    MutexLock lock(threads.mutex);
    threads.retired.push_back({object, free, birth, g_moment.load(std::memory_order_relaxed), t_calls});
    if (!soon && t_calls != nullptr && threads.retired.size() >= threads.batch) {
      t_calls->asked.fetch_or(kAskedToFree, std::memory_order_relaxed);  // at the end of the call
    }
  } catch (const std::bad_alloc&) {
    return;  // without memory to remember it, it stays
  }
  if (soon) FreeRetired(t_calls);
}

size_t RetiredObjects() noexcept {
  MutexLock lock(g_threads.value.mutex);
  return g_threads.value.retired.size();
}

void AtFirstCall(void (*function)()) {
  FirstCall& first = g_first_call.value;
  MutexLock lock(first.mutex);
  if (first.was) return function();
  if (first.count == first.functions.size()) std::abort();  // one place for each user of this function: make more
  first.functions[first.count++] = function;
}

void RefuseInForks() noexcept {
  Threads& threads = g_threads.value;
  MutexLock lock(threads.mutex);
  threads.refused_in_forks = true;
}

}  // namespace reprise
