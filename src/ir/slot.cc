// SPDX-License-Identifier: Apache-2.0
#include "ir/slot.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/fault.h"
#include "ir/operand.h"
#include "ir/task_info.h"

namespace reprise::ir {
namespace {

TaskSlot& SlotOf(const void* payload) { return *static_cast<const SlotPayload*>(payload)->slot; }

RunResult RunSlot(device::RunContext& context, void* payload) {
  HeldTask* task = SlotOf(payload).Current();
  return task->type().run(context, task->payload());
}

void DescribeSlot(const void* payload, TaskInfo& info) {
  TaskSlot& slot = SlotOf(payload);
  HeldTask* task = slot.Acquire();
  info.type_name = task->type().name;
  if (task->type().describe != nullptr) task->type().describe(task->payload(), info);
  slot.Drop(task);
}

void OperandsOfSlot(const void* payload, OperandSink& sink) {
  TaskSlot& slot = SlotOf(payload);
  HeldTask* task = slot.Acquire();
  VisitOperands(task->type(), task->payload(), sink);
  slot.Drop(task);
}

constexpr TaskType SlotType(TaskKind kind, const char* name) {
  return {.kind = kind,
          .name = name,
          .run = RunSlot,
          .destroy = [](void* payload) noexcept { SlotOf(payload).Release(); },
          .describe = DescribeSlot,
          .operands = OperandsOfSlot};
}

}  // namespace

const TaskType kSlotTask = SlotType(TaskKind::kKernel, "KERNEL_AICORE");
const TaskType kRandomSlotTask = SlotType(TaskKind::kRandom, "KERNEL_AICPU");

// ---- HeldTask ----

HeldTask* HeldTask::Allocate(uint32_t bytes) {
  void* at = FaultPoint("graph.slot") ? nullptr : std::malloc(sizeof(HeldTask) + bytes);
  if (at == nullptr) throw std::bad_alloc();
  return new (at) HeldTask(bytes);
}

void HeldTask::Fill(const Task& task) noexcept {
  anchor_ = FillUnanchored(task);
  if (anchor_ != nullptr) anchor_->Retain();
}

Anchor* HeldTask::FillUnanchored(const Task& task) noexcept {
  type_ = task.type;
  std::memcpy(payload_, task.payload, task.payload_bytes);
  DirectCall call;
  if (type_->direct != nullptr && type_->direct(payload_, call)) {
    function_ = call.function;
    args_ = call.args;
    kernel_name_ = call.name;
    args_bytes_ = call.args_bytes;
  } else {
    function_ = nullptr;
  }
  return type_->anchor != nullptr ? type_->anchor(payload_) : nullptr;
}

HeldTask* HeldTask::TakeOver(const Task& task) {
  HeldTask* held = Allocate(task.payload_bytes);
  held->Fill(task);
  return held;
}

void HeldTask::GiveBack() noexcept {
  if (anchor_ != nullptr) anchor_->Release();
  std::free(this);
}

bool HeldTask::Forget() noexcept {
  // Who holds the only reference needs no atomic write: only holders make new ones.
  if (references_.load(std::memory_order_acquire) != 1 && references_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return false;
  }
  if (type_->destroy != nullptr) type_->destroy(payload_);
  if (anchor_ != nullptr) std::exchange(anchor_, nullptr)->Release();
  return true;
}

// ---- SlotUsers ----

void SlotUsers::Release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void SlotUsers::Retire(TaskSlot& slot, HeldTask* task) noexcept {
  if (active_.load(std::memory_order_seq_cst) == 0) {
    slot.Drop(task);
    return;
  }
  Keep(slot, task);
  // The last user may have left before it could see the list.
  if (active_.load(std::memory_order_seq_cst) == 0) Drain();
}

void SlotUsers::Keep(TaskSlot& slot, HeldTask* task) noexcept {
  slot.Retain();
  std::lock_guard lock(mutex_);
  if (task->retired_++ == 0) {
    task->next_ = std::exchange(retired_, task);
    has_retired_.store(true, std::memory_order_seq_cst);
  }
}

// Drops what was replaced, as long as there are no users: those who come later find the new contents.
void SlotUsers::Drain() noexcept {
  // What is dropped holds slots, and these hold us.
  Retain();
  for (;;) {
    HeldTask* task;
    uint32_t references;
    {
      std::lock_guard lock(mutex_);
      if (retired_ == nullptr || active_.load(std::memory_order_seq_cst) != 0) break;
      task = std::exchange(retired_, retired_->next_);
      references = std::exchange(task->retired_, 0);
      if (retired_ == nullptr) has_retired_.store(false, std::memory_order_seq_cst);
    }
    TaskSlot* slot = task->slot_;
    for (; references != 0; --references) {
      slot->Drop(task);
      slot->Release();
    }
  }
  Release();
}

// ---- TaskSlot ----

TaskSlot::~TaskSlot() {
  HeldTask* task = task_.load(std::memory_order_relaxed);
  if (task->Forget()) std::free(task);
  std::free(spare_);
  users_.Release();
}

void TaskSlot::Release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

HeldTask* TaskSlot::Acquire() noexcept {
  std::lock_guard lock(mutex_);
  HeldTask* task = task_.load(std::memory_order_relaxed);
  task->Retain();
  return task;
}

HeldTask* TaskSlot::Make(const Task& task) {
  HeldTask* held;
  {
    std::lock_guard lock(mutex_);
    held = spare_ != nullptr && spare_->capacity_ >= task.payload_bytes ? std::exchange(spare_, nullptr) : nullptr;
  }
  if (held == nullptr) {
    try {
      held = HeldTask::Allocate(task.payload_bytes);
    } catch (...) {
      task.Destroy();
      throw;
    }
    held->slot_ = this;
  } else {
    held->references_.store(1, std::memory_order_relaxed);
  }
  held->Fill(task);
  return held;
}

HeldTask* TaskSlot::Exchange(HeldTask* task) noexcept {
  std::lock_guard lock(mutex_);  // for Acquire and Peek
  return task_.exchange(task, std::memory_order_seq_cst);
}

void TaskSlot::Replace(HeldTask* task) noexcept { users_.Retire(*this, Exchange(task)); }

void TaskSlot::ReplaceUnderLock(HeldTask* task, bool harmless) noexcept {
  HeldTask* previous = Exchange(task);
  if (harmless && users_.active_.load(std::memory_order_seq_cst) == 0) {
    Drop(previous);
  } else {
    users_.Keep(*this, previous);
  }
}

// With mutex_ held and memory for the new content in spare_. Returns the old content when somebody may use it still.
HeldTask* TaskSlot::UpdateLocked(const Task& task, HeldTask* current) noexcept {
  HeldTask* const next = spare_;
  next->references_.store(1, std::memory_order_relaxed);
  next->slot_ = this;
  Anchor* const anchor = next->FillUnanchored(task);
  task_.exchange(next, std::memory_order_seq_cst);
  // Nobody can take a reference before mutex_ is free. So who has the only one, and sees no users, is alone with it:
  // nothing of a user's hangs on the content (it has no destroy function), and its anchor can change hands.
  const bool is_alone = users_.active_.load(std::memory_order_seq_cst) == 0 &&
                        current->references_.load(std::memory_order_acquire) == 1 && current->anchor_ == anchor;
  next->anchor_ = anchor;
  if (is_alone) {
    current->anchor_ = nullptr;
    spare_ = current;
    return nullptr;
  }
  if (anchor != nullptr) anchor->Retain();
  spare_ = nullptr;
  return current;
}

void TaskSlot::Drop(HeldTask* task) noexcept {
  if (!task->Forget()) return;
  {
    std::lock_guard lock(mutex_);
    if (spare_ == nullptr || spare_->capacity_ < task->capacity_) std::swap(spare_, task);
  }
  std::free(task);  // outside of the lock
}

}  // namespace reprise::ir
