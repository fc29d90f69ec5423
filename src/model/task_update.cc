// SPDX-License-Identifier: Apache-2.0
#include "model/task_update.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

#include "ir/slot.h"
#include "ir/task.h"
#include "ir/task_info.h"
#include "runtime/submission.h"
#include "runtime/task_store.h"

namespace reprise::model {
namespace {

using device::RunContext;
using ir::RunResult;
using runtime::Stream;

constexpr const char* kApi = "aclrtTaskUpdateAsync";

// A slot with the reference that the update holds.
template <class IsRight>
StatusOr<ir::TaskSlot*> FindSlot(Stream& stored, uint32_t task_id, Stream& stream, const char* wanted,
                                 IsRight is_right) {
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stored, kApi));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, kApi));
  if (stored.bound_model.load() == nullptr) {
    return Error(kStreamModel, fmt::format("{} is not bound to a model", stored.Describe()))
        .Culprit("parameter taskStream")
        .Hint("bind it with aclmdlRIBindStream; tasks of captured graphs have aclmdlRITaskSetParams");
  }
  REPRISE_ASSIGN_OR_RETURN(ir::TaskSlot * slot, runtime::FindStoredSlot(stored, task_id));
  if (slot->Peek([&](const ir::HeldTask& content) { return is_right(content.type()); })) return slot;
  slot->Release();
  return Error(kInvalidValue, fmt::format("task {} of {} is not {}", task_id, stored.Describe(), wanted))
      .Culprit("parameters taskId and info->id")
      .Hint("name a task of that sort, or pass the other id");
}

// Puts what `change` makes of the old payload into the slot.
template <class Change>
void Rewrite(RunContext& context, ir::TaskSlot& slot, Change change) noexcept {
  ir::HeldTask* old = slot.Acquire();
  try {
    Status status = change(old->payload(), [&](const ir::Task& task) -> Status {
      slot.Replace(slot.Make(task));
      return {};
    });
    if (!status.ok()) context.Fail(std::move(status));
  } catch (const std::bad_alloc&) {
    context.Fail(
        Error(kResourceExhausted, "no memory for the new content of a stored task").Hint("free memory of the host"));
  }
  slot.Drop(old);
}

struct KernelPayload {
  ir::TaskSlot* slot;
  KernelUpdate update;
};

RunResult RunKernelUpdate(RunContext& context, void* payload) {
  const auto* p = static_cast<const KernelPayload*>(payload);
  Rewrite(context, *p->slot, [&](const void* old, auto take) -> Status {
    runtime::KernelFunction* function = nullptr;
    uint32_t blocks = 0;
    if (p->update.entry != nullptr) {
      uint64_t entry;
      std::memcpy(&entry, p->update.entry, sizeof entry);
      REPRISE_ASSIGN_OR_RETURN(function, p->update.binary->FindByEntry(entry));
    }
    if (p->update.blocks != nullptr) {
      std::memcpy(&blocks, p->update.blocks, sizeof blocks);
      if (blocks == 0) {
        return Error(kRuntimeCannot,
                     fmt::format("the new number of blocks, read from {}, is 0", fmt::ptr(p->update.blocks)))
            .Culprit("parameter info, field blockDimAddr")
            .Hint("write the number of blocks into the cell before the update runs");
      }
    }
    return runtime::WithChangedKernel(old, function, blocks, take);
  });
  return RunResult::kDone;
}

constexpr ir::TaskType kKernelUpdate = {.kind = ir::TaskKind::kNop,
                                        .name = "NOP",
                                        .run = RunKernelUpdate,
                                        .destroy =
                                            [](void* payload) noexcept {
                                              auto* p = static_cast<KernelPayload*>(payload);
                                              if (p->update.binary != nullptr) p->update.binary->Release();
                                              p->slot->Release();
                                            },
                                        .describe = [](const void*, ir::TaskInfo& info) { info.name = "TaskUpdate"; },
                                        .operands =
                                            [](const void* payload, ir::OperandSink& sink) {
                                              const KernelUpdate& update =
                                                  static_cast<const KernelPayload*>(payload)->update;
                                              if (update.entry != nullptr)
                                                sink.Take({update.entry, 8, ir::Access::kRead});
                                              if (update.blocks != nullptr)
                                                sink.Take({update.blocks, 4, ir::Access::kRead});
                                            }};

struct RandomPayload {
  ir::TaskSlot* slot;
  RandomUpdate update;
};

RunResult RunRandomUpdate(RunContext& context, void* payload) {
  const auto* p = static_cast<const RandomPayload*>(payload);
  Rewrite(context, *p->slot, [&](const void* old, auto take) -> Status {
    runtime::RandomRequest request = runtime::RequestOf(old);
    Status status = p->update.read(p->update.source, p->update.bytes, &request);
    if (status.ok()) return runtime::WithRandomTask(request, take);
    return Error(kRuntimeCannot,
                 fmt::format("the new parameters of a draw of random numbers, read from {}, are wrong: {}",
                             fmt::ptr(p->update.source), status.detail().what))
        .Culprit("parameter info, field srcAddr")
        .Hint("write complete parameters there before the update runs");
  });
  return RunResult::kDone;
}

constexpr ir::TaskType kRandomUpdate = {
    .kind = ir::TaskKind::kNop,
    .name = "NOP",
    .run = RunRandomUpdate,
    .destroy = [](void* payload) noexcept { static_cast<RandomPayload*>(payload)->slot->Release(); },
    .describe = [](const void*, ir::TaskInfo& info) { info.name = "TaskUpdate"; },
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          const RandomUpdate& update = static_cast<const RandomPayload*>(payload)->update;
          sink.Take({update.source, update.bytes, ir::Access::kRead});
        }};

}  // namespace

Status UpdateKernel(Stream& stored, uint32_t task_id, const KernelUpdate& update, Stream& stream) {
  REPRISE_ASSIGN_OR_RETURN(ir::TaskSlot * slot,
                           FindSlot(stored, task_id, stream, "a launch of a loaded kernel",
                                    [](const ir::TaskType& type) { return runtime::IsLoadedKernel(type); }));
  if (update.binary != nullptr) update.binary->Retain();
  KernelPayload payload{slot, update};
  return runtime::SubmitNow(stream, ir::MakeTask(kKernelUpdate, payload));
}

Status UpdateRandom(Stream& stored, uint32_t task_id, const RandomUpdate& update, Stream& stream) {
  REPRISE_ASSIGN_OR_RETURN(ir::TaskSlot * slot,
                           FindSlot(stored, task_id, stream, "a draw of random numbers",
                                    [](const ir::TaskType& type) { return type.kind == ir::TaskKind::kRandom; }));
  RandomPayload payload{slot, update};
  return runtime::SubmitNow(stream, ir::MakeTask(kRandomUpdate, payload));
}

}  // namespace reprise::model
