// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/fault.h"
#include "ir/task_info.h"

namespace reprise::ir {
namespace {

constexpr size_t kUnit = 16;  // of the arena
constexpr uint16_t kLarge = UINT16_MAX;

size_t UnitsOf(size_t bytes) { return (bytes + kUnit - 1) / kUnit; }

void DescribeEdge(const void* payload, TaskInfo& info) {
  info.event_id = static_cast<const EdgePayload*>(payload)->event_id;
}

}  // namespace

const TaskType kEdgeRecord = {.kind = TaskKind::kEventRecord,
                              .name = "EVENT_RECORD",
                              .run = nullptr,
                              .describe = DescribeEdge,
                              .operands = NoOperands};
const TaskType kEdgeWait = {.kind = TaskKind::kEventWait,
                            .name = "EVENT_WAIT",
                            .run = nullptr,
                            .describe = DescribeEdge,
                            .operands = NoOperands};
const TaskType kEdgeReset = {.kind = TaskKind::kEventReset,
                             .name = "EVENT_RESET",
                             .run = nullptr,
                             .describe = DescribeEdge,
                             .operands = NoOperands};

NodeId LaneNodes::operator[](size_t position) const {
  size_t low = 0, high = runs_.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    ((*all_)[runs_[middle]].position <= position ? low : high) = middle;
  }
  const Run& run = (*all_)[runs_[low]];
  return run.first + static_cast<NodeId>(position - run.position);
}

Graph::~Graph() {
  if (owns_) {
    for (const Stored& task : tasks_) {
      if (task.type->destroy != nullptr) task.type->destroy(task.at());
    }
  }
  if (slot_users_ != nullptr) slot_users_->Release();
  for (Anchor* anchor : anchors_) anchor->Release();
}

const Run& Graph::FindRun(NodeId id) const {
  if (IsRecord(id)) return runs_[static_cast<const StoredRecord*>(tasks_[entries_[id].index].at())->run];
  size_t low = 0, high = runs_.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (runs_[middle].first <= id ? low : high) = middle;
  }
  return runs_[low];
}

void* Graph::RecordedAs(NodeId id) const {
  if (IsRecord(id)) [[likely]]
    return tasks_[entries_[id].index].at();
  return replaced_.at(id);
}

// Throws std::bad_alloc, then nothing has changed.
void Graph::Hold(const Task& task) {
  Anchor* const anchor = task.type->anchor != nullptr ? task.type->anchor(task.payload) : nullptr;
  if (anchor == last_anchor_ || anchor == nullptr) return;
  if (anchors_.insert(anchor).second) anchor->Retain();
  last_anchor_ = anchor;
}

LaneId Graph::AddLane(int32_t stream_id, int32_t user_stream_id, NodeId forked_by) {
  lanes_.push_back({stream_id, user_stream_id, forked_by, LaneNodes(runs_)});
  return static_cast<LaneId>(lanes_.size() - 1);
}

// Whether all there is to the task is the record that it refers to.
bool Graph::IsOtherEnd(const Task& task) const {
  if (task.payload_bytes < sizeof(EdgePayload)) return false;
  EdgePayload edge;
  std::memcpy(&edge, task.payload, sizeof edge);
  return IsRecord(edge.record) && std::memcmp(RecordedAs(edge.record), &edge, sizeof edge) == 0;
}

// Room for a node, so that nothing can fail once something has changed.
void Graph::MakeRoom(Lane& lane, bool starts_run) {
  if (entries_.size() == kMostNodes) [[unlikely]]
    throw std::bad_alloc();
  entries_.MakeRoom();
  tasks_.MakeRoom();
  if (starts_run) {
    runs_.MakeRoom();
    lane.nodes.runs_.MakeRoom();
  }
}

NodeId Graph::Add(LaneId lane, const Task& task) {
  try {
    if (FaultPoint("graph.node")) throw std::bad_alloc();
    Lane& target = lanes_[lane];
    const auto id = static_cast<NodeId>(entries_.size());
    const bool starts_run = runs_.empty() || runs_.back().lane != lane;
    const bool is_edge = task.type->run == nullptr;
    Entry entry{static_cast<uint32_t>(tasks_.size()) & kMostNodes, kTask, 0, 0, 0};
    void* payload = nullptr;
    if (is_edge && (task.type == &kEdgeWait || task.type == &kEdgeReset) && IsOtherEnd(task)) {
      MakeRoom(target, starts_run);
      entry.index = static_cast<const EdgePayload*>(task.payload)->record & kMostNodes;
      entry.kind = task.type == &kEdgeWait ? kWait : kReset;
    } else {
      Hold(task);
      const size_t bytes =
          task.type == &kEdgeRecord ? std::max<size_t>(sizeof(StoredRecord), task.payload_bytes) : task.payload_bytes;
      payload = arena_.Allocate(bytes);
      MakeRoom(target, starts_run);
      if (UnitsOf(bytes) >= kLarge) [[unlikely]]
        large_payloads_[entry.index] = bytes;
      if (task.payload_bytes != 0) std::memcpy(payload, task.payload, task.payload_bytes);
      tasks_.Append(Store(*task.type, payload, bytes));
      owns_ |= task.type->destroy != nullptr;
    }
    if (starts_run) {
      target.nodes.runs_.Append(static_cast<uint32_t>(runs_.size()));
      runs_.Append({id, lane, target.nodes.size_});
    }
    if (is_edge && task.type == &kEdgeRecord) {
      static_cast<StoredRecord*>(payload)->run = static_cast<uint32_t>(runs_.size() - 1);
    }
    ++target.nodes.size_;
    entries_.Append(entry);
    return id;
  } catch (...) {
    task.Destroy();
    throw;
  }
}

TaskSlot* Graph::MakeSlot(NodeId id) {
  const Stored& node = tasks_[entries_[id].index];
  if (IsSlot(node.type)) return static_cast<SlotPayload*>(node.at())->slot;
  if (slot_users_ == nullptr) slot_users_ = new SlotUsers;
  auto* place = static_cast<SlotPayload*>(arena_.Allocate(sizeof(SlotPayload)));
  HeldTask* held = HeldTask::TakeOver({node.type, node.at(), static_cast<uint32_t>(PayloadBytes(id))});
  try {
    place->slot = new TaskSlot(held, *slot_users_);
  } catch (...) {
    held->GiveBack();
    throw;
  }
  SetTask(id, node.type->kind == TaskKind::kRandom ? kRandomSlotTask : kSlotTask, place, sizeof(SlotPayload));
  return place->slot;
}

void Graph::Replace(NodeId id, const Task& task) {
  const bool has_task = entries_[id].kind == kTask;
  const Stored old = has_task ? tasks_[entries_[id].index] : Stored{};
  if (old.type == &kSlotTask && task.type->kind == TaskKind::kKernel) {
    // A kernel of a task group stays in its group, whose updates replace it as before.
    TaskSlot* slot = static_cast<SlotPayload*>(old.at())->slot;
    slot->Replace(slot->Make(task));
    return;
  }
  const bool was_record = has_task && old.type == &kEdgeRecord;
  void* payload = old.at();
  size_t room = has_task && !was_record ? PayloadBytes(id) : 0;
  try {
    Hold(task);
    if (!has_task) tasks_.MakeRoom();
    // In the same place if there is room, so that a graph does not grow with the number of its changes.
    if (task.payload_bytes > room || room == 0) {
      payload = arena_.Allocate(task.payload_bytes);
      room = task.payload_bytes;
      if (UnitsOf(room) >= kLarge) large_payloads_[has_task ? entries_[id].index : tasks_.size()] = room;
    }
    if (was_record) replaced_[id] = static_cast<EdgePayload*>(old.at());  // waits refer to it
  } catch (...) {
    task.Destroy();
    throw;
  }
  if (has_task && old.type->destroy != nullptr) old.type->destroy(old.at());
  if (task.payload_bytes != 0) std::memcpy(payload, task.payload, task.payload_bytes);
  if (!has_task) {
    entries_[id].index = static_cast<uint32_t>(tasks_.size()) & kMostNodes;
    entries_[id].kind = kTask;
    tasks_.Append({});
  }
  SetTask(id, *task.type, payload, room);
  NoteChange(id);
}

void Graph::Note(NodeId id, std::vector<NodeId>& list, bool is_arguments) noexcept {
  reused_.clear();
  try {
    list.push_back(id);
    if (is_arguments) {
      entries_[id].has_new_arguments = 1;
    } else {
      entries_[id].changed = 1;
    }
  } catch (const std::bad_alloc&) {
    changes_lost_ = true;
  }
}

void Graph::ForgetChanges() noexcept {
  for (const NodeId id : changes_) entries_[id].changed = 0;
  for (const NodeId id : new_arguments_) entries_[id].has_new_arguments = 0;
  changes_.clear();
  new_arguments_.clear();
  changes_lost_ = false;
}

Graph::Stored Graph::Store(const TaskType& type, const void* payload, size_t bytes) {
  constexpr uint64_t kMask = (uint64_t{1} << 48) - 1;  // user space ends below on every processor that runs this
  return {&type, reinterpret_cast<uintptr_t>(payload) & kMask,
          static_cast<uint16_t>(std::min<size_t>(UnitsOf(bytes), kLarge))};
}

size_t Graph::PayloadBytes(NodeId id) const {
  const Stored& task = tasks_[entries_[id].index];
  return task.room != kLarge ? task.room * kUnit : large_payloads_.at(entries_[id].index);
}

// Of a task. A large one is in large_payloads_ already.
void Graph::SetTask(NodeId id, const TaskType& type, void* payload, size_t bytes) {
  tasks_[entries_[id].index] = Store(type, payload, bytes);
  owns_ |= type.destroy != nullptr;
}

void Graph::ShrinkToFit() {
  entries_.Trim();
  tasks_.Trim();
  runs_.Trim();
  for (Lane& lane : lanes_) lane.nodes.runs_.Trim();
}

size_t Graph::memory_bytes() const {
  size_t bytes = arena_.used_bytes() + entries_.memory_bytes() + tasks_.memory_bytes() + runs_.memory_bytes() +
                 lanes_.capacity() * sizeof(Lane) + reused_.capacity() * sizeof(ReusedBlock);
  for (const Lane& lane : lanes_) bytes += lane.nodes.runs_.memory_bytes();
  return bytes;
}

}  // namespace reprise::ir
