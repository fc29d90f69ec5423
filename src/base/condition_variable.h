// SPDX-License-Identifier: Apache-2.0
//
// The condition variable of the standard library, for the locks of base/mutex.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace reprise {

/// The waiting functions open the lock while they wait; it is held when they return.
class ConditionVariable {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

  void wait(UniqueLock<Mutex>& lock) {
    Native native(lock);
    condition_.wait(native.lock);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(UniqueLock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& deadline) {
    Native native(lock);
    return condition_.wait_until(native.lock, deadline);
  }
  template <class Rep, class Period>
  std::cv_status wait_for(UniqueLock<Mutex>& lock, const std::chrono::duration<Rep, Period>& time) {
    Native native(lock);
    return condition_.wait_for(native.lock, time);
  }
  template <class Predicate>
  void wait(UniqueLock<Mutex>& lock, Predicate&& is_over) {
    Native native(lock);
    condition_.wait(native.lock, std::forward<Predicate>(is_over));
  }
  template <class Clock, class Duration, class Predicate>
  bool wait_until(UniqueLock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                  Predicate&& is_over) {
    Native native(lock);
    return condition_.wait_until(native.lock, deadline, std::forward<Predicate>(is_over));
  }

  template <class Rep, class Period, class Predicate>
  bool wait_for(UniqueLock<Mutex>& lock, const std::chrono::duration<Rep, Period>& time, Predicate&& is_over) {
    Native native(lock);
    return condition_.wait_for(native.lock, time, std::forward<Predicate>(is_over));
  }

 private:
  /// The held lock, as the standard library wants it.
  struct Native {
    explicit Native(UniqueLock<Mutex>& held) : lock(held.mutex_.mutex_, std::adopt_lock) {}
    Native(const Native&) = delete;
    Native& operator=(const Native&) = delete;
    ~Native() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition_;
};

}  // namespace reprise
