// SPDX-License-Identifier: Apache-2.0
//
// What scenarios are written with. Include gtest before this header and nothing of the standard library behind it.
//
// A new scenario is a function of a few lines that builds its objects, starts threads (std::thread), checks with
// INTERLEAVE_CHECK and ends when all threads have ended. Give it a mutant: the same with the mistake that it is there
// to find.
#pragma once

#include "explorer.h"
#include "shim.h"
// Behind the shim:
#include "base/futex.h"
#include "base/spin_lock.h"
#include "device/scheduler.h"

namespace interleave {

/// An object whose memory stays until the process ends, so that an operation on it after its end is found out.
template <class T>
class Kept {
 public:
  template <class... Arguments>
  explicit Kept(Arguments&&... arguments) : memory_(::operator new(sizeof(T), std::align_val_t(alignof(T)))) {
    object_ = new (memory_) T(std::forward<Arguments>(arguments)...);
    Graveyard().push_back(memory_);
  }
  ~Kept() { End(); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  /// Afterwards everybody else goes on, so that who still holds the object comes to touch it.
  void End() {
    T* object = std::exchange(object_, nullptr);
    if (object == nullptr) return;
    object->~T();
    Straight straight;
    Settle();
  }
  T& operator*() { return *static_cast<T*>(memory_); }
  T* operator->() { return static_cast<T*>(memory_); }

 private:
  static std::vector<void*>& Graveyard() {
    static std::vector<void*> graveyard;
    if (graveyard.size() > 100'000) {  // old schedules
      for (size_t i = 0; i < 50'000; ++i) ::operator delete(graveyard[i], std::align_val_t(alignof(T)));
      graveyard.erase(graveyard.begin(), graveyard.begin() + 50'000);
    }
    return graveyard;
  }
  void* memory_;
  T* object_;
};

/// A condition that threads wait for; sound by itself, so that nothing else is tested through it.
class Flag {
 public:
  void Set() {
    word_.store(1);
    reprise::FutexWake(word_, INT_MAX);
  }
  void Wait() {
    while (word_.load() == 0) reprise::FutexWait(word_, 0, std::nullopt);
  }
  bool IsSet() const { return word_.load() != 0; }

 private:
  std::atomic<uint32_t> word_{0};
};

/// Runs a function; the base has no virtual destructor, so it is final.
class Piece final : public reprise::device::Runnable {
 public:
  explicit Piece(std::function<Outcome(reprise::device::RunContext&)> run) : run_(std::move(run)) {}
  Outcome Run(reprise::device::RunContext& context) override { return run_(context); }

 private:
  std::function<Outcome(reprise::device::RunContext&)> run_;
};

/// A scheduler whose threads have started, with a last and a first breath that are not explored.
class Device {
 public:
  enum Start {
    kAsleep,  ///< the workers sleep, or spin until the clock has moved
    kBusy     ///< one is about to return from Run and to look for more
  };
  explicit Device(int workers, Start start = kAsleep)
      : scheduler_(std::make_unique<reprise::device::Scheduler>(workers)), first_([this, start](auto&) {
          ran_.Set();
          if (start == kBusy) std::this_thread::yield();
          return reprise::device::Runnable::Outcome::kIdle;
        }) {
    Straight straight;
    scheduler_->Wake(first_);
    ran_.Wait();
    if (start == kAsleep) Settle();
  }
  ~Device() {
    Straight straight;
    if (scheduler_ == nullptr) return;
    scheduler_->Retire(first_);
    scheduler_.reset();
  }
  /// As the destructor does, but explored.
  void Destroy() {
    scheduler_->Retire(first_);
    scheduler_.reset();
  }
  reprise::device::Scheduler* operator->() { return scheduler_.get(); }
  reprise::device::Scheduler& operator*() { return *scheduler_; }

 private:
  std::unique_ptr<reprise::device::Scheduler> scheduler_;
  Flag ran_;
  Piece first_;
};

}  // namespace interleave
