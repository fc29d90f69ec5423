// SPDX-License-Identifier: Apache-2.0
//
// TaskSlot: a task of a graph whose content can be replaced while the graph runs. A run uses either the old or the new
// content, never a mixture; the old content lives until its last run has ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "ir/task.h"

namespace reprise::ir {

/// A task that owns its payload, with a reference count.
class HeldTask {
 public:
  /// Takes the payload over; throws std::bad_alloc, then the task is destroyed.
  static HeldTask* Create(const Task& task);
  /// The same, but a failure leaves the task with the caller.
  static HeldTask* TakeOver(const Task& task);
  /// Ends the object alone: the payload is the caller's again.
  void GiveBack() noexcept;
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept;

  const TaskType& type() const { return *type_; }
  void* payload() { return payload_; }
  const void* payload() const { return payload_; }

 private:
  explicit HeldTask(const TaskType* type) : type_(type) {}
  std::atomic<uint32_t> references_{1};
  const TaskType* type_;
  Anchor* anchor_ = nullptr;
  alignas(16) std::byte payload_[];  // NOLINT: flexible array, one allocation
};

/// Threads: thread-safe. Reference counted: updates that are under way keep it alive past its graph.
class TaskSlot {
 public:
  /// Takes the reference over.
  explicit TaskSlot(HeldTask* task) : task_(task) {}
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept;

  /// The current content, with a reference for the caller.
  HeldTask* Acquire() noexcept;
  /// Takes the reference over.
  void Replace(HeldTask* task) noexcept;

 private:
  ~TaskSlot() { task_->Release(); }
  std::atomic<uint32_t> references_{1};
  SpinLock mutex_;
  HeldTask* task_;
};

/// Task type of nodes that hold a TaskSlot.
struct SlotPayload {
  TaskSlot* slot;
};
extern const TaskType kSlotTask;
/// The same for random numbers.
extern const TaskType kRandomSlotTask;
inline bool IsSlot(const TaskType* type) { return type == &kSlotTask || type == &kRandomSlotTask; }

}  // namespace reprise::ir
