// SPDX-License-Identifier: Apache-2.0
//
// TaskSlot: a task of a graph whose content can be replaced while the graph runs. A run uses either the old or the new
// content, never a mixture; the old content lives until its last run has ended.
//
// A run costs no atomic write: whoever runs steps of a graph says so once, for as long as it goes on (SlotUsers), and
// in between finds each content with one load. A content that was replaced meanwhile is destroyed when nobody runs
// steps of the graph any more. Its memory is kept for the next content, so that a steady flow of updates allocates
// nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "ir/task.h"

namespace reprise::ir {

class SlotUsers;
class TaskSlot;

/// A task that owns its payload, with a reference count.
class HeldTask {
 public:
  /// A failure (std::bad_alloc) leaves the task with the caller.
  static HeldTask* TakeOver(const Task& task);
  /// Ends this object and not its payload, which is the caller's again.
  void GiveBack() noexcept;
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }

  const TaskType& type() const { return *type_; }
  void* payload() { return payload_; }
  const void* payload() const { return payload_; }

  /// What the task comes down to when it is a single call of a kernel; else `function` is null.
  RepriseKernelFn function() const { return function_; }
  const void* args() const { return args_; }
  uint32_t args_bytes() const { return args_bytes_; }
  const char* kernel_name() const { return kernel_name_; }

 private:
  friend class SlotUsers;
  friend class TaskSlot;
  explicit HeldTask(uint32_t capacity) : capacity_(capacity) {}
  static HeldTask* Allocate(uint32_t bytes);
  void Fill(const Task& task) noexcept;
  /// As Fill, without a reference to the anchor, which is returned.
  Anchor* FillUnanchored(const Task& task) noexcept;
  /// Gives a reference up. True for the last one: then the payload is destroyed, and the memory is the caller's.
  bool Forget() noexcept;

  std::atomic<uint32_t> references_{1};
  const uint32_t capacity_;  // of the payload, in bytes
  const TaskType* type_ = nullptr;
  Anchor* anchor_ = nullptr;  // of the payload; holds a reference
  RepriseKernelFn function_ = nullptr;
  const void* args_ = nullptr;
  const char* kernel_name_ = nullptr;
  uint32_t args_bytes_ = 0;
  // Links of the list of contents that wait for their last run to end; guarded by SlotUsers::mutex_.
  uint32_t retired_ = 0;  // how many references wait
  TaskSlot* slot_ = nullptr;
  HeldTask* next_ = nullptr;
  alignas(16) std::byte payload_[];  // NOLINT: flexible array, one allocation
};
static_assert(sizeof(HeldTask) == 80);

/// The threads that run steps of one graph now, and the replaced contents that they may still use.
///
/// Threads: thread-safe. Reference counted: the graph and each of its slots hold one.
class SlotUsers {
 public:
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept;

  /// From here to Leave the caller may use what TaskSlot::Current returns.
  void Enter() noexcept { active_.fetch_add(1, std::memory_order_seq_cst); }
  void Leave() noexcept {
    if (active_.fetch_sub(1, std::memory_order_seq_cst) == 1) Settle();
  }
  /// Drops the replaced contents, unless a thread may use them: then the last user drops them when it leaves.
  void Settle() noexcept {
    if (has_retired_.load(std::memory_order_seq_cst)) Drain();
  }

 private:
  friend class TaskSlot;
  ~SlotUsers() = default;
  /// Gives up a reference to a content that is no longer in its slot, now or when nobody can use it any more.
  void Retire(TaskSlot& slot, HeldTask* task) noexcept;
  /// As Retire, but never destroys at once: the reference is given up by a later Settle or Leave.
  void Keep(TaskSlot& slot, HeldTask* task) noexcept;
  void Drain() noexcept;

  std::atomic<uint32_t> references_{1};
  // A thread that enters writes here before it loads a content; a thread that replaces a content reads here afterwards.
  // All of it is sequentially consistent, so that either the user finds the new content or the replacer finds the user.
  std::atomic<uint32_t> active_{0};
  std::atomic<bool> has_retired_{false};  // the list is not empty; written under mutex_
  SpinLock mutex_;
  HeldTask* retired_ = nullptr;
};

/// Between its construction and destruction the thread runs steps of a graph; for null, one without slots.
class SlotUse {
 public:
  explicit SlotUse(SlotUsers* users) : users_(users) {
    if (users_ != nullptr) users_->Enter();
  }
  SlotUse(const SlotUse&) = delete;
  SlotUse& operator=(const SlotUse&) = delete;
  ~SlotUse() {
    if (users_ != nullptr) users_->Leave();
  }

 private:
  SlotUsers* const users_;
};

/// Threads: thread-safe. Reference counted: updates that are under way keep it alive past its graph.
class TaskSlot {
 public:
  /// Takes the reference to the task over.
  TaskSlot(HeldTask* task, SlotUsers& users) : task_(task), users_(users) {
    task->slot_ = this;
    users.Retain();
  }
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept;

  /// The current content, for users of the graph (SlotUsers).
  HeldTask* Current() const noexcept { return task_.load(std::memory_order_seq_cst); }
  /// The current content for everybody else, with a reference that Drop gives up.
  HeldTask* Acquire() noexcept;
  /// Shows the current content to `look`, which must be short and call nobody.
  template <class Look>
  auto Peek(Look look) noexcept {
    mutex_.lock();
    const auto seen = look(static_cast<const HeldTask&>(*task_.load(std::memory_order_relaxed)));
    mutex_.unlock();
    return seen;
  }

  /// A future content of this slot, with a reference for the caller. Takes the payload over; throws std::bad_alloc,
  /// then the task is destroyed.
  HeldTask* Make(const Task& task);
  /// Takes the reference over.
  void Replace(HeldTask* task) noexcept;
  /// Make and Replace with one turn of the slot's lock, in the simple case: there is memory of an earlier content, and
  /// `fits`, which must be short and call nobody, accepts the current one. False in any other case, then nothing has
  /// happened. The old content is dropped as ReplaceUnderLock does.
  template <class Fits>
  bool TryUpdate(const Task& task, Fits fits) noexcept {
    mutex_.lock();
    HeldTask* const current = task_.load(std::memory_order_relaxed);
    if (spare_ == nullptr || spare_->capacity_ < task.payload_bytes || current->type_->destroy != nullptr ||
        !fits(static_cast<const HeldTask&>(*current))) {
      mutex_.unlock();
      return false;
    }
    HeldTask* const kept = UpdateLocked(task, current);
    mutex_.unlock();
    if (kept != nullptr) [[unlikely]]
      users_.Keep(*this, kept);
    return true;
  }
  /// An update of this slot will follow soon.
  void PrepareUpdate() const noexcept {
    PrefetchForWrite(&task_);
    PrefetchForWrite(task_.load(std::memory_order_relaxed));
  }
  /// As Replace, for callers that hold a lock: the old content is destroyed when users() settle or leave. It is
  /// destroyed at once if that is `harmless` (it owns nothing of the program) and no thread uses it.
  void ReplaceUnderLock(HeldTask* task, bool harmless) noexcept;
  SlotUsers& users() const { return users_; }
  /// Gives up a reference to a content that was made for this slot.
  void Drop(HeldTask* task) noexcept;

  /// Whatever the slot was made for; for its owner.
  std::atomic<void*> owner{nullptr};

 private:
  ~TaskSlot();
  HeldTask* Exchange(HeldTask* task) noexcept;
  HeldTask* UpdateLocked(const Task& task, HeldTask* current) noexcept;
  std::atomic<HeldTask*> task_;  // changed under mutex_
  std::atomic<uint32_t> references_{1};
  SpinLock mutex_;
  HeldTask* spare_ = nullptr;  // memory without a content; guarded by mutex_
  SlotUsers& users_;
};

/// Task type of nodes that hold a TaskSlot.
struct SlotPayload {
  TaskSlot* slot;
};
extern const TaskType kSlotTask;
/// Task type of nodes that hold a TaskSlot with a draw of random numbers.
extern const TaskType kRandomSlotTask;
inline bool IsSlot(const TaskType* type) { return type == &kSlotTask || type == &kRandomSlotTask; }

}  // namespace reprise::ir
