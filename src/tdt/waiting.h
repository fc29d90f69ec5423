// SPDX-License-Identifier: Apache-2.0
//
// Blocking with a timeout, and the memory that messages are made of.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/calls.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "base/status.h"

namespace reprise::tdt {

/// What sleeps under a mutex until somebody rings. Unlike a condition variable it takes a deadline that may be absent.
///
/// Threads: every call with the mutex held that belongs to the bell.
class Bell {
 public:
  /// Lets the lock go while it sleeps. False when the deadline has passed; wake-ups may be spurious.
  bool Wait(UniqueLock<Mutex>& lock, const Deadline& deadline) REPRISE_NOT_ANALYSED {
    if (deadline && Clock::now() >= *deadline) return false;
    ++sleepers_;
    const uint32_t seen = rings_.load();
    lock.unlock();
    const WaitingCall waiting;
    const bool in_time = FutexWait(rings_, seen, deadline);
    lock.lock();
    --sleepers_;
    return in_time;
  }
  void Ring() noexcept {
    if (sleepers_ == 0) return;
    rings_.fetch_add(1);
    FutexWake(rings_, INT_MAX);
  }

 private:
  std::atomic<uint32_t> rings_{0};
  int sleepers_ = 0;
};

/// Milliseconds as the interface counts them: -1 for ever, 0 do not wait.
inline StatusOr<Deadline> DeadlineAfter(int32_t timeout_ms) {
  if (timeout_ms < -1) {
    return Error(kInvalidArgument,
                 fmt::format("timeout is {}, must be -1 (for ever), 0 (do not wait) or milliseconds", timeout_ms))
        .Culprit("parameter timeout")
        .Hint("pass -1 to wait for ever");
  }
  if (timeout_ms == -1) return Deadline();
  return Deadline(Clock::now() + std::chrono::milliseconds(timeout_ms));
}

inline std::string AfterWaiting(int32_t timeout_ms) {
  return timeout_ms == 0 ? std::string("now") : fmt::format("after {} ms", timeout_ms);
}

struct FreeBytes {
  void operator()(std::byte* bytes) const noexcept { std::free(bytes); }
};
/// Not initialised, aligned for vector loads.
using Bytes = std::unique_ptr<std::byte[], FreeBytes>;

/// Null when the host has not that much.
inline Bytes NewBytes(size_t size) noexcept {
  void* memory = nullptr;
  if (::posix_memalign(&memory, 64, size == 0 ? 1 : size) != 0) return nullptr;
  return Bytes(static_cast<std::byte*>(memory));
}

/// Names are C strings of 1 to 127 characters; 100000 otherwise. Reads no further than that.
inline StatusOr<std::string> ReadName(const char* name, const char* parameter) {
  constexpr size_t kMost = 127;
  size_t length = 0;
  while (length <= kMost && name[length] != '\0') ++length;
  if (length >= 1 && length <= kMost) return std::string(name, length);
  return Error(kInvalidArgument, fmt::format("{} {}, must have 1 to {} characters", parameter,
                                             length == 0 ? "is empty" : "does not end after 127 characters", kMost))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass a short name that ends with a null character");
}

}  // namespace reprise::tdt
