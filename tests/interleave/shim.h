// SPDX-License-Identifier: Apache-2.0
//
// Comes before everything else in each source that the explorer runs (-include): the same names as the standard library
// has, with types that ask the explorer before each operation. Macros do it, so the sources need not know.
#pragma once

#include <bits/stdc++.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "points.h"

namespace interleave::model {

using Location = std::source_location;

template <class T>
uint64_t Bits(const T& value) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), std::min(sizeof bits, sizeof value));
  return bits;
}

// Operations on a value at `object`. Equal values written again change nothing for those that spin.
template <class T>
class Operations {
 public:
  static T Load(const T& value, const volatile void* object, const Location& at) {
    Point("load", object, at);
    Saw(Bits(value));
    return value;
  }
  static T Exchange(const char* name, T& value, T desired, const volatile void* object, const Location& at) {
    Point(name, object, at);
    const T before = value;
    value = desired;
    Saw(Bits(desired));
    if (std::memcmp(&before, &desired, sizeof(T)) != 0) Changed();
    return before;
  }
  static bool CompareExchange(T& value, T& expected, T desired, const volatile void* object, const Location& at) {
    Point("cas", object, at);
    const bool equal = std::memcmp(&value, &expected, sizeof(T)) == 0;
    Saw(Bits(value));
    if (!equal) {
      expected = value;
    } else if (std::memcmp(&value, &desired, sizeof(T)) != 0) {
      value = desired;
      Changed();
    }
    return equal;
  }
  template <class Change>
  static T Update(const char* name, T& value, Change change, const volatile void* object, const Location& at) {
    Point(name, object, at);
    const T before = value;
    value = static_cast<T>(change(before));
    Saw(Bits(value));
    if (std::memcmp(&before, &value, sizeof(T)) != 0) Changed();
    return before;
  }
};

template <class T>
class Atomic {
 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  constexpr Atomic() noexcept : value_() {}
  constexpr Atomic(T value) noexcept : value_(value) {}  // NOLINT: as the standard's
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  constexpr ~Atomic() {
    if (!std::is_constant_evaluated()) *const_cast<volatile uint32_t*>(&alive_) = 0;
  }

  bool is_lock_free() const noexcept { return true; }
  T load(std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) const noexcept {
    Alive(at);
    return Operations<T>::Load(value_, this, at);
  }
  operator T() const noexcept { return load(); }  // NOLINT: as the standard's
  void store(T desired, std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) noexcept {
    Alive(at);
    Operations<T>::Exchange("store", value_, desired, this, at);
  }
  T operator=(T desired) noexcept {  // NOLINT: as the standard's
    store(desired);
    return desired;
  }
  T exchange(T desired, std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) noexcept {
    Alive(at);
    return Operations<T>::Exchange("exchange", value_, desired, this, at);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst,
                               Location at = Location::current()) noexcept {
    Alive(at);
    return Operations<T>::CompareExchange(value_, expected, desired, this, at);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success = std::memory_order_seq_cst,
                             std::memory_order failure = std::memory_order_seq_cst,
                             Location at = Location::current()) noexcept {
    return compare_exchange_strong(expected, desired, success, failure, at);
  }

#define INTERLEAVE_FETCH(name, expression)                                 \
  template <class Argument>                                                \
  T name(Argument argument, std::memory_order = std::memory_order_seq_cst, \
         Location at = Location::current()) noexcept {                     \
    Alive(at);                                                             \
    return Operations<T>::Update(                                          \
        #name, value_, [&](T value) { return (expression); }, this, at);   \
  }
  INTERLEAVE_FETCH(fetch_add, value + argument)
  INTERLEAVE_FETCH(fetch_sub, value - argument)
  INTERLEAVE_FETCH(fetch_or, value | argument)
  INTERLEAVE_FETCH(fetch_and, value& argument)
  INTERLEAVE_FETCH(fetch_xor, value ^ argument)
#undef INTERLEAVE_FETCH
  T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) noexcept { return fetch_add(1); }
  T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) noexcept { return fetch_sub(1); }
  template <class Argument>
  T operator+=(Argument argument) noexcept {
    return static_cast<T>(fetch_add(argument) + argument);
  }
  template <class Argument>
  T operator-=(Argument argument) noexcept {
    return static_cast<T>(fetch_sub(argument) - argument);
  }

  void wait(T old, std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) const noexcept {
    for (;;) {
      Alive(at);
      if (Operations<T>::Load(value_, this, at) != old) return;
      Sleep("wait", this, 0, at);
    }
  }
  void notify_one() noexcept { Notify(1); }
  void notify_all() noexcept { Notify(INT_MAX); }

  /// For the futex: the value without a step.
  T Peek(const Location& at) const {
    Alive(at);
    return value_;
  }

 private:
  static constexpr uint32_t kAlive = 0xa11fe;

  void Notify(int count, Location at = Location::current()) noexcept {
    Alive(at);
    Point("notify", this, at);
    Wake(this, count);
  }
  void Alive(const Location& at) const {
    if (*const_cast<const volatile uint32_t*>(&alive_) != kAlive) [[unlikely]]
      Fail("an operation on an atomic that is gone", at);
  }

  T value_;
  uint32_t alive_ = kAlive;
};
template <class T>
Atomic(T) -> Atomic<T>;

template <class T>
class AtomicRef {
 public:
  explicit AtomicRef(T& value) : value_(value) {}
  T load(std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) const noexcept {
    return Operations<T>::Load(value_, &value_, at);
  }
  void store(T desired, std::memory_order = std::memory_order_seq_cst,
             Location at = Location::current()) const noexcept {
    Operations<T>::Exchange("store", value_, desired, &value_, at);
  }
  T exchange(T desired, std::memory_order = std::memory_order_seq_cst,
             Location at = Location::current()) const noexcept {
    return Operations<T>::Exchange("exchange", value_, desired, &value_, at);
  }
  template <class Argument>
  T fetch_add(Argument argument, std::memory_order = std::memory_order_seq_cst,
              Location at = Location::current()) const noexcept {
    return Operations<T>::Update(
        "fetch_add", value_, [&](T value) { return value + argument; }, &value_, at);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst,
                               Location at = Location::current()) const noexcept {
    return Operations<T>::CompareExchange(value_, expected, desired, &value_, at);
  }

 private:
  T& value_;
};

class AtomicFlag {
 public:
  bool test(std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) const noexcept {
    return value_.load(std::memory_order_seq_cst, at);
  }
  bool test_and_set(std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) noexcept {
    return value_.exchange(true, std::memory_order_seq_cst, at);
  }
  void clear(std::memory_order = std::memory_order_seq_cst, Location at = Location::current()) noexcept {
    value_.store(false, std::memory_order_seq_cst, at);
  }

 private:
  Atomic<bool> value_{false};
};

// The order of operations is one for all threads here, so a fence is only a place to stop at.
inline void Fence(Location at = Location::current()) { Point("fence", nullptr, at); }

class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock(Location at = Location::current()) {
    Point("lock", this, at);
    while (locked_) Sleep("mutex", this, 0, at);
    locked_ = true;
    Changed();
  }
  bool try_lock(Location at = Location::current()) {
    Point("try_lock", this, at);
    if (locked_) return false;
    locked_ = true;
    Changed();
    return true;
  }
  void unlock(Location at = Location::current()) {
    Point("unlock", this, at);
    if (!locked_) Fail("a mutex is unlocked that is not locked", at);
    locked_ = false;
    Changed();
    Wake(this, INT_MAX);
  }

 private:
  bool locked_ = false;
};

class ConditionVariable {
 public:
  template <class Lock>
  void wait(Lock& lock, Location at = Location::current()) {
    lock.unlock();
    Sleep("condition", this, 0, at);
    lock.lock();
  }
  template <class Lock, class Done>
  void wait(Lock& lock, Done done) {
    while (!done()) wait(lock);
  }
  void notify_one(Location at = Location::current()) noexcept {
    Point("notify", this, at);
    Wake(this, 1);
  }
  void notify_all(Location at = Location::current()) noexcept {
    Point("notify", this, at);
    Wake(this, INT_MAX);
  }
};

struct OnceFlag {
  Mutex busy;
  bool done = false;
};
template <class Function, class... Arguments>
void CallOnce(OnceFlag& flag, Function&& function, Arguments&&... arguments) {
  const std::lock_guard<Mutex> lock(flag.busy);
  if (flag.done) return;
  std::invoke(std::forward<Function>(function), std::forward<Arguments>(arguments)...);
  flag.done = true;
}

class Thread {
 public:
  using id = int;
  Thread() noexcept = default;
  template <class Function, class... Arguments>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, Thread>) explicit Thread(Function&& function,
                                                                                   Arguments&&... arguments) {
    Point("thread", nullptr, Location::current());
    auto call = std::bind_front(std::forward<Function>(function), std::forward<Arguments>(arguments)...);
    number_ = Spawn([call = std::make_shared<decltype(call)>(std::move(call))] { (*call)(); });
  }
  Thread(Thread&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Thread& operator=(Thread&& other) noexcept {
    number_ = std::exchange(other.number_, -1);
    return *this;
  }
  bool joinable() const noexcept { return number_ >= 0; }
  void join() { Join(std::exchange(number_, -1)); }
  void detach() { number_ = -1; }
  id get_id() const noexcept { return number_; }
  pthread_t native_handle() { return pthread_self(); }
  static unsigned hardware_concurrency() noexcept { return static_cast<unsigned>(Cores()); }

 private:
  int number_ = -1;
};

struct SteadyClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SteadyClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept { return time_point(duration(Now())); }
};

inline int GetAffinity(cpu_set_t* set) {
  CPU_ZERO(set);
  for (int i = 0; i < Cores(); ++i) CPU_SET(i, set);
  return 0;
}

}  // namespace interleave::model

// NOLINTBEGIN: names that the macros below lead to
namespace std {
template <class T>
using interleave_atomic = ::interleave::model::Atomic<T>;
template <class T>
using interleave_atomic_ref = ::interleave::model::AtomicRef<T>;
using interleave_atomic_flag = ::interleave::model::AtomicFlag;
using interleave_mutex = ::interleave::model::Mutex;
using interleave_condition_variable = ::interleave::model::ConditionVariable;
using interleave_once_flag = ::interleave::model::OnceFlag;
using interleave_thread = ::interleave::model::Thread;
template <class Function, class... Arguments>
void interleave_call_once(interleave_once_flag& flag, Function&& function, Arguments&&... arguments) {
  ::interleave::model::CallOnce(flag, std::forward<Function>(function), std::forward<Arguments>(arguments)...);
}
inline void interleave_atomic_thread_fence(std::memory_order,
                                           std::source_location at = std::source_location::current()) {
  ::interleave::model::Fence(at);
}
namespace chrono {
using interleave_steady_clock = ::interleave::model::SteadyClock;
}
namespace interleave_this_thread {
inline void yield(std::source_location at = std::source_location::current()) { ::interleave::Yield(at); }
inline int get_id() { return ::interleave::Self(); }
}  // namespace interleave_this_thread
}  // namespace std
// NOLINTEND

#define atomic interleave_atomic
#define atomic_ref interleave_atomic_ref
#define atomic_flag interleave_atomic_flag
#define atomic_thread_fence interleave_atomic_thread_fence
#define mutex interleave_mutex
#define condition_variable interleave_condition_variable
#define once_flag interleave_once_flag
#define call_once interleave_call_once
#define thread interleave_thread
#define this_thread interleave_this_thread
#define steady_clock interleave_steady_clock
#define __builtin_ia32_pause() ::interleave::Yield(::std::source_location::current())
#define sched_getaffinity(process, bytes, set) ::interleave::model::GetAffinity(set)
#define pthread_setname_np(of, name) ((void)0)
