// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_store.h"

#include <fmt/format.h>

#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/env.h"
#include "runtime/stream.h"

namespace reprise::runtime {
namespace {

bool CanBeSlot(const ir::Node& node) {
  return node.type->kind == ir::TaskKind::kKernel || node.type->kind == ir::TaskKind::kRandom;
}

}  // namespace

size_t MaxStoredTasks() {
  static const int64_t limit = EnvInt(EnvVar::kMaxStreamTasks);
  return limit > 0 ? static_cast<size_t>(limit) : SIZE_MAX;
}

Status StreamIsFull(const Stream& stream) {
  return Error(kStreamTaskFull, fmt::format("{} has {} tasks already, as many as REPRISE_MAX_STREAM_TASKS allows",
                                            stream.Describe(), MaxStoredTasks()))
      .Hint("spread the work over more streams or graphs, or raise REPRISE_MAX_STREAM_TASKS");
}

StatusOr<ir::NodeId> TaskStore::Add(const ir::Task& task) {
  std::lock_guard lock(lock_);
  if (is_sealed_) {
    task.Destroy();
    return Error(kInvalidValue,
                 fmt::format("{} belongs to a model that is built: it takes no further tasks", stream_.Describe()))
        .Hint("submit all tasks before aclmdlRIBuildEnd");
  }
  if (graph_->nodes().size() >= MaxStoredTasks()) {
    task.Destroy();
    return StreamIsFull(stream_);
  }
  return graph_->Add(0, task);
}

void TaskStore::Seal() {
  std::lock_guard lock(lock_);
  is_sealed_ = true;
}

void TaskStore::Unseal() {
  std::lock_guard lock(lock_);
  is_sealed_ = false;
}

void TaskStore::MakeSlots() {
  std::lock_guard lock(lock_);
  for (ir::NodeId id = 0; id < graph_->nodes().size(); ++id) {
    if (CanBeSlot(graph_->node(id))) graph_->MakeSlot(id);
  }
}

void TaskStore::Clean() {
  auto empty = std::make_shared<ir::Graph>();
  empty->AddLane(stream_.id(), stream_.id(), ir::kNoNode);
  std::lock_guard lock(lock_);
  graph_.swap(empty);
}

StatusOr<ir::TaskSlot*> FindStoredSlot(const Stream& stream, uint32_t task_id) {
  size_t tasks = 0;
  std::string kind;
  if (TaskStore* const store = stream.store()) {
    std::lock_guard lock(store->lock_);
    tasks = store->graph_->nodes().size();
    if (task_id < tasks) {
      const ir::Node& node = store->graph_->node(task_id);
      if (CanBeSlot(node)) {
        ir::TaskSlot* slot = store->graph_->MakeSlot(task_id);
        slot->Retain();
        return slot;
      }
      kind = ir::SpokenName(*node.type);
    }
  }
  if (kind.empty()) {
    return Error(kInvalidValue,
                 fmt::format("{} has no stored task {}: it has {} of them", stream.Describe(), task_id, tasks))
        .Culprit("parameter taskId")
        .Hint("ask aclrtGetThreadLastTaskId right after the task was submitted");
  }
  return Error(kInvalidValue,
               fmt::format("task {} of {} is of type {}, which cannot be updated", task_id, stream.Describe(), kind))
      .Culprit("parameter taskId")
      .Hint("name the task of a kernel or of aclrtRandomNumAsync");
}

}  // namespace reprise::runtime
