// SPDX-License-Identifier: Apache-2.0
//
// Inquiry: "why does nothing happen?" While one is open, everything that parks says what it waits for. Whoever opens it
// wakes what may be parked, so that it parks again and answers.
#pragma once

#include <atomic>
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

  /// The answers, after all have come that a moment brings. Empty when nothing that was woken is parked, which takes
  /// `patience` to find out.
  std::vector<std::string> Collect(Clock::duration patience);

 private:
  static std::atomic<bool> open_;
};

}  // namespace reprise::device
