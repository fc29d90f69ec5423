// SPDX-License-Identifier: Apache-2.0
#include "model/group.h"

#include <fmt/format.h>

#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "device/timeline.h"
#include "ir/task_info.h"
#include "runtime/kernel.h"
#include "runtime/submission.h"

namespace reprise::model {
namespace {

using runtime::Stream;

// Takes the place of the stream's queue while an update is open.
class Update final : public runtime::TaskSink {
 public:
  Update(TaskGroup& group, const Stream& stream)
      : group_(group.shared_from_this()),
        description_(fmt::format("update of a task group on {}", stream.Describe())) {}
  /// Without a lock: what was replaced may belong to a user.
  ~Update() {
    if (!group_->slots.empty()) group_->slots[0]->users().Settle();
  }
  uint64_t capture_id() const override { return 0; }
  TaskGroup& group() const { return *group_; }
  size_t replaced() const { return next_; }
  size_t size() const { return group_->slots.size(); }

  Status Record(Stream& stream, const ir::Task& task, bool& taken) override;
  void Forget(Stream& stream) override;
  const std::string& Describe() const override { return description_; }
  void Refused(const Status&) override {}

 private:
  const std::shared_ptr<TaskGroup> group_;
  const std::string description_;
  size_t next_ = 0;
};

// Takes an update along to where no lock is held.
struct UpdatePayload {
  Update* update;
};
constexpr ir::TaskType kDropUpdate = {
    .kind = ir::TaskKind::kNop,
    .name = "NOP",
    .run = [](device::RunContext&, void*) { return ir::RunResult::kDone; },
    .destroy = [](void* payload) noexcept { delete static_cast<UpdatePayload*>(payload)->update; },
    .operands = ir::NoOperands};

// With the context's capture_mutex held, hence the way through the stream.
void Update::Forget(Stream& stream) {
  stream.set_sink(nullptr);
  group_->updater.store(nullptr);
  UpdatePayload payload{this};
  (void)runtime::QueueNow(stream, ir::MakeTask(kDropUpdate, payload));  // which owns the payload, also when it fails
}

// A stream that has nothing to do is not asked: nothing is left to be in order with.
bool MayReplaceNow(const Stream& stream) {
  return stream.IsIdle() && !stream.is_persistent() && stream.attributes.failure_mode.load() == 0 &&
         !device::Timeline::on();
}

// The replacement, in order with the other work of the update stream.
struct ReplacePayload {
  ir::TaskSlot* slot;  // one reference
  ir::HeldTask* task;  // one reference; null once it has gone into the slot
  bool again;          // a persistent stream stores the replacement and may run it many times
};

constexpr ir::TaskType kReplace = {.kind = ir::TaskKind::kNop,
                                   .name = "TASK_UPDATE",
                                   .run =
                                       [](device::RunContext&, void* payload) {
                                         auto* p = static_cast<ReplacePayload*>(payload);
                                         if (p->again) p->task->Retain();
                                         p->slot->Replace(p->again ? p->task : std::exchange(p->task, nullptr));
                                         return ir::RunResult::kDone;
                                       },
                                   .destroy =
                                       [](void* payload) noexcept {
                                         auto* p = static_cast<ReplacePayload*>(payload);
                                         if (p->task != nullptr) p->slot->Drop(p->task);
                                         p->slot->Release();
                                       },
                                   .operands = ir::NoOperands};

// Engine and mix: what a replacement must share with the kernel it replaces.
struct Engine {
  std::string_view name;
  uint32_t mix_ration;
  bool operator==(const Engine&) const = default;
};

Engine EngineOf(const ir::TaskType& type, const void* payload) {
  ir::TaskInfo info;
  info.names_only = true;
  info.type_name = type.name;
  if (type.describe != nullptr) type.describe(payload, info);
  return {info.type_name, info.mix_ration};
}

// How near the task is to the one that it replaces.
struct Likeness {
  bool engine = false;
  bool binary = false;
};

// 507000 unless the task may take the place of the slot's content.
StatusOr<Likeness> Compare(ir::TaskSlot& slot, const ir::Task& task, size_t index) {
  // Nearly always both are launches of loaded kernels, which tell their engines without being described.
  const auto likeness = [&](const ir::HeldTask& current) -> Likeness {
    if (!runtime::IsLoadedKernel(current.type())) return {};
    return {runtime::SameEngine(current.payload(), task.payload), runtime::SameBinary(current.payload(), task.payload)};
  };
  if (runtime::IsLoadedKernel(*task.type)) [[likely]] {
    const Likeness found = slot.Peek(likeness);
    if (found.engine) [[likely]]
      return found;
  }
  ir::HeldTask* current = slot.Acquire();
  const Engine wanted = EngineOf(current->type(), current->payload());
  const bool is_alike = &current->type() == task.type;
  if (is_alike && task.type->inherit != nullptr) task.type->inherit(current->payload(), task.payload);
  slot.Drop(current);
  if (!is_alike && task.type->inherit != nullptr) {
    return Error(kRuntimeCannot,
                 fmt::format("kernel {} of the task group is not a random draw, the replacement is", index))
        .Culprit("the generator's offset: what a replay moves it on by was settled when the capture ended")
        .Hint("launch the same kinds of kernels as were captured in the group");
  }
  const Engine given = EngineOf(*task.type, task.payload);
  if (given == wanted) return Likeness{true, false};
  return Error(kRuntimeCannot,
               fmt::format("kernel {} of the task group is a {} kernel (mix ration {}), the replacement "
                           "a {} kernel (mix ration {})",
                           index, wanted.name, wanted.mix_ration, given.name, given.mix_ration))
      .Hint("launch the same kinds of kernels as were captured in the group");
}

Status Update::Record(Stream& stream, const ir::Task& task, bool& taken) {
  if (task.type->kind != ir::TaskKind::kKernel && task.type->kind != ir::TaskKind::kClosure) {
    return Error(kTaskTypeNotSupported, fmt::format("{} is updating a task group and takes kernels only, not {}",
                                                    stream.Describe(), ir::SpokenName(*task.type)))
        .Hint("end the update with aclmdlRICaptureTaskUpdateEnd first");
  }
  if (next_ == group_->slots.size()) {
    return Error(kRuntimeCannot, fmt::format("the task group has {} kernels, and all of them are replaced", next_))
        .Hint("launch as many kernels as were captured in the group");
  }
  ir::TaskSlot* slot = group_->slots[next_];
  if (MayReplaceNow(stream) && runtime::IsLoadedKernel(*task.type)) [[likely]] {
    if (next_ + 1 != group_->slots.size()) group_->slots[next_ + 1]->PrepareUpdate();
    const auto fits = [&](const ir::HeldTask& current) {
      return runtime::IsLoadedKernel(current.type()) && runtime::SameFunction(current.payload(), task.payload);
    };
    if (slot->TryUpdate(task, fits)) {
      taken = true;
      ++next_;
      return {};
    }
  }
  REPRISE_ASSIGN_OR_RETURN(const Likeness likeness, Compare(*slot, task, next_));
  ReplacePayload payload{slot, nullptr, stream.is_persistent()};
  taken = true;
  try {
    payload.task = slot->Make(task);
  } catch (const std::bad_alloc&) {
    return Error(kResourceExhausted, "no memory for the replacement of a kernel")
        .Hint("free memory of the host, end the update and begin it anew");
  }
  if (MayReplaceNow(stream)) {
    slot->ReplaceUnderLock(payload.task, likeness.binary);
    ++next_;
    return {};
  }
  slot->Retain();
  REPRISE_RETURN_IF_ERROR(runtime::QueueNow(stream, ir::MakeTask(kReplace, payload)));
  ++next_;
  return {};
}

Update* UpdateOf(const Stream& stream) { return stream.is_updating() ? static_cast<Update*>(stream.sink()) : nullptr; }

}  // namespace

Status BeginUpdate(Stream& stream, TaskGroup& group) {
  MutexLock lock(stream.context().capture_mutex);
  REPRISE_RETURN_IF_ERROR(stream.CheckNotLeaving());
  if (UpdateOf(stream) != nullptr) {
    return Error(kTaskGroupStatus, fmt::format("{} is updating a task group already", stream.Describe()))
        .Hint("end that update with aclmdlRICaptureTaskUpdateEnd first");
  }
  if (stream.is_capturing()) {  // begun since the caller looked
    return Error(kStreamCaptured, fmt::format("{} is being captured", stream.Describe()))
        .Culprit(stream.sink()->Describe())
        .Hint("update the group on a stream outside of captures");
  }
  Stream* nobody = nullptr;
  if (!group.updater.compare_exchange_strong(nobody, &stream)) {
    return Error(kTaskGroupStatus, fmt::format("the task group is being updated on {}", nobody->Describe()))
        .Hint(fmt::format("end that update with aclmdlRICaptureTaskUpdateEnd on {} first", nobody->Describe()));
  }
  try {
    stream.set_sink(new Update(group, stream));
  } catch (const std::bad_alloc&) {
    group.updater.store(nullptr);
    throw;
  }
  return {};
}

Status EndUpdate(Stream& stream) {
  std::unique_ptr<Update> update;  // goes without the lock
  MutexLock lock(stream.context().capture_mutex);
  update.reset(UpdateOf(stream));
  if (update == nullptr) {
    return Error(kTaskGroupStatus, fmt::format("{} is not updating a task group", stream.Describe()))
        .Hint("begin the update with aclmdlRICaptureTaskUpdateBegin first");
  }
  stream.set_sink(nullptr);
  update->group().updater.store(nullptr);
  if (update->replaced() == update->size()) return {};
  return Error(kRuntimeCannot,
               fmt::format("{} of the {} kernels of the task group were replaced", update->replaced(), update->size()))
      .Hint("launch as many kernels between UpdateBegin and UpdateEnd as were captured in the group");
}

}  // namespace reprise::model
