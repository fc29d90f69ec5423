// SPDX-License-Identifier: Apache-2.0
//
// The mutexes and guards of the standard library, with types that clang's analysis of locks knows
// (base/thread_annotations.h). They add no instruction to what they wrap. base/condition_variable.h has what waits.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "base/thread_annotations.h"

namespace reprise {

class REPRISE_LOCK Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() REPRISE_ACQUIRES() { mutex_.lock(); }
  bool try_lock() REPRISE_TRIES(true) { return mutex_.try_lock(); }
  void unlock() REPRISE_RELEASES() { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

class REPRISE_LOCK SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() REPRISE_ACQUIRES() { mutex_.lock(); }
  void unlock() REPRISE_RELEASES() { mutex_.unlock(); }
  void lock_shared() REPRISE_ACQUIRES_SHARED() { mutex_.lock_shared(); }
  bool try_lock_shared() REPRISE_TRIES_SHARED(true) { return mutex_.try_lock_shared(); }
  void unlock_shared() REPRISE_RELEASES_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

/// Holds a lock of any type from here to the end of its scope.
template <class M>
class REPRISE_SCOPED_LOCK MutexLock {
 public:
  explicit MutexLock(M& mutex) REPRISE_ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() REPRISE_RELEASES() { mutex_.unlock(); }

 private:
  M& mutex_;
};

/// As MutexLock, shared with other readers.
template <class M>
class REPRISE_SCOPED_LOCK ReaderLock {
 public:
  explicit ReaderLock(M& mutex) REPRISE_ACQUIRES_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
  /// Of a mutex that the caller has locked so already.
  ReaderLock(M& mutex, std::adopt_lock_t) REPRISE_REQUIRES_SHARED(mutex) : mutex_(mutex) {}
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;
  ~ReaderLock() REPRISE_RELEASES_ANY() { mutex_.unlock_shared(); }

 private:
  M& mutex_;
};

/// As MutexLock, and may be opened and closed again in between.
template <class M>
class REPRISE_SCOPED_LOCK UniqueLock {
 public:
  explicit UniqueLock(M& mutex) REPRISE_ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// Of a mutex that the caller has locked already.
  UniqueLock(M& mutex, std::adopt_lock_t) REPRISE_REQUIRES(mutex) : mutex_(mutex) {}
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;
  ~UniqueLock() REPRISE_RELEASES() {
    if (is_held_) mutex_.unlock();
  }

  void lock() REPRISE_ACQUIRES() {
    mutex_.lock();
    is_held_ = true;
  }
  void unlock() REPRISE_RELEASES() {
    is_held_ = false;
    mutex_.unlock();
  }
  bool owns_lock() const { return is_held_; }

 private:
  friend class ConditionVariable;
  M& mutex_;
  bool is_held_ = true;
};

}  // namespace reprise
