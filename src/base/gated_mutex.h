// SPDX-License-Identifier: Apache-2.0
//
// GatedMutex: a mutex for long critical sections beside very many short ones. The short ones (ShortLock) take one
// atomic instruction while nobody else is inside; a thread that finds another one inside sleeps, as with any mutex.
#pragma once

#include "base/mutex.h"
#include "base/spin_lock.h"

namespace reprise {

/// Works with MutexLock and UniqueLock. What it guards is said in words alone: a ShortLock may hold no mutex, or one
/// after the other, which clang cannot follow.
class GatedMutex {
 public:
  void lock() REPRISE_NOT_ANALYSED {
    mutex_.lock();
    gate_.lock();
  }
  void unlock() REPRISE_NOT_ANALYSED {
    gate_.unlock();
    mutex_.unlock();
  }
  void LockShortly() REPRISE_NOT_ANALYSED {
    if (gate_.try_lock()) [[likely]]
      return;
    // Only the holder of the mutex keeps the gate shut for long. So a thread that has got the mutex spins for one short
    // section at most.
    MutexLock lock(mutex_);
    gate_.lock();
  }
  void UnlockShortly() noexcept REPRISE_NOT_ANALYSED { gate_.unlock(); }

 private:
  Mutex mutex_;
  SpinLock gate_;
};

/// For sections of a few hundred instructions that never wait.
class ShortLock {
 public:
  ShortLock() = default;
  explicit ShortLock(GatedMutex& mutex) { Lock(mutex); }
  ShortLock(const ShortLock&) = delete;
  ShortLock& operator=(const ShortLock&) = delete;
  ~ShortLock() { Unlock(); }
  void Lock(GatedMutex& mutex) {
    mutex.LockShortly();
    mutex_ = &mutex;
  }
  void Unlock() noexcept {
    if (mutex_ != nullptr) mutex_->UnlockShortly();
    mutex_ = nullptr;
  }

 private:
  GatedMutex* mutex_ = nullptr;
};

}  // namespace reprise
