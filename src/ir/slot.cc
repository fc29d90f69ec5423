// SPDX-License-Identifier: Apache-2.0
#include "ir/slot.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/fault.h"

namespace reprise::ir {
namespace {

TaskSlot& SlotOf(const void* payload) { return *static_cast<const SlotPayload*>(payload)->slot; }

RunResult RunSlot(device::RunContext& context, void* payload) {
  HeldTask* task = SlotOf(payload).Acquire();
  const RunResult result = task->type().run(context, task->payload());
  task->Release();
  return result;
}

void DescribeSlot(const void* payload, TaskInfo& info) {
  HeldTask* task = SlotOf(payload).Acquire();
  info.type_name = task->type().name;
  if (task->type().describe != nullptr) task->type().describe(task->payload(), info);
  task->Release();
}

}  // namespace

const TaskType kSlotTask = {TaskKind::kKernel, "KERNEL_AICORE",
                            RunSlot,           [](void* payload) noexcept { SlotOf(payload).Release(); },
                            nullptr,           DescribeSlot};

const TaskType kRandomSlotTask = {TaskKind::kRandom, "KERNEL_AICPU",
                                  RunSlot,           [](void* payload) noexcept { SlotOf(payload).Release(); },
                                  nullptr,           DescribeSlot};

HeldTask* HeldTask::Create(const Task& task) {
  try {
    return TakeOver(task);
  } catch (...) {
    task.Destroy();
    throw;
  }
}

HeldTask* HeldTask::TakeOver(const Task& task) {
  void* at = FaultPoint("graph.slot") ? nullptr : std::malloc(sizeof(HeldTask) + task.payload_bytes);
  if (at == nullptr) throw std::bad_alloc();
  auto* held = new (at) HeldTask(task.type);
  held->anchor_ = task.type->anchor != nullptr ? task.type->anchor(task.payload) : nullptr;
  if (held->anchor_ != nullptr) held->anchor_->Retain();
  std::memcpy(held->payload_, task.payload, task.payload_bytes);
  return held;
}

void HeldTask::GiveBack() noexcept {
  if (anchor_ != nullptr) anchor_->Release();
  std::free(this);
}

void HeldTask::Release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (type_->destroy != nullptr) type_->destroy(payload_);
  GiveBack();
}

void TaskSlot::Release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

HeldTask* TaskSlot::Acquire() noexcept {
  std::lock_guard lock(mutex_);
  task_->Retain();
  return task_;
}

void TaskSlot::Replace(HeldTask* task) noexcept {
  HeldTask* previous;
  {
    std::lock_guard lock(mutex_);
    previous = task_;
    task_ = task;
  }
  previous->Release();  // outside of the lock: it may free much
}

}  // namespace reprise::ir
