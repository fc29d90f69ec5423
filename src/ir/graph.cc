// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/fault.h"

namespace reprise::ir {
namespace {

constexpr size_t kUnit = 16;  // of the arena
constexpr uint16_t kLarge = UINT16_MAX;

void DescribeEdge(const void* payload, TaskInfo& info) {
  info.event_id = static_cast<const EdgePayload*>(payload)->event_id;
}

}  // namespace

const TaskType kEdgeRecord = {TaskKind::kEventRecord, "EVENT_RECORD", nullptr, nullptr, nullptr, DescribeEdge};
const TaskType kEdgeWait = {TaskKind::kEventWait, "EVENT_WAIT", nullptr, nullptr, nullptr, DescribeEdge};
const TaskType kEdgeReset = {TaskKind::kEventReset, "EVENT_RESET", nullptr, nullptr, nullptr, DescribeEdge};

Graph::~Graph() {
  for (const Node& node : nodes_) {
    if (node.type->destroy != nullptr) node.type->destroy(node.payload);
  }
  if (slot_users_ != nullptr) slot_users_->Release();
  for (Anchor* anchor : anchors_) anchor->Release();
}

// Throws std::bad_alloc, then nothing has changed.
void Graph::Hold(const Task& task) {
  Anchor* const anchor = task.type->anchor != nullptr ? task.type->anchor(task.payload) : nullptr;
  if (anchor == last_anchor_ || anchor == nullptr) return;
  if (anchors_.insert(anchor).second) anchor->Retain();
  last_anchor_ = anchor;
}

LaneId Graph::AddLane(int32_t stream_id, int32_t user_stream_id, NodeId forked_by) {
  lanes_.push_back({stream_id, user_stream_id, forked_by, {}});
  return static_cast<LaneId>(lanes_.size() - 1);
}

NodeId Graph::Add(LaneId lane, const Task& task) {
  try {
    if (FaultPoint("graph.node")) throw std::bad_alloc();
    Hold(task);
    void* payload = arena_.Allocate(task.payload_bytes);
    Lane& target = lanes_[lane];
    // Both vectors get their room first, so that nothing can fail once one of them has changed.
    const auto id = static_cast<NodeId>(nodes_.size());
    if (id == nodes_.capacity()) nodes_.reserve(nodes_.empty() ? 16 : 2 * nodes_.size());
    if (id == payload_units_.capacity()) payload_units_.reserve(nodes_.capacity());
    payload_units_.resize(id);  // an earlier failure may have left one more
    payload_units_.push_back(0);
    SetPayloadBytes(id, task.payload_bytes);
    target.nodes.push_back(id);
    std::memcpy(payload, task.payload, task.payload_bytes);
    nodes_.push_back({task.type, payload, static_cast<uint32_t>(target.nodes.size() - 1), lane, 0, 0});
    return id;
  } catch (...) {
    task.Destroy();
    throw;
  }
}

TaskSlot* Graph::MakeSlot(NodeId id) {
  Node& node = nodes_[id];
  if (IsSlot(node.type)) return static_cast<SlotPayload*>(node.payload)->slot;
  if (slot_users_ == nullptr) slot_users_ = new SlotUsers;
  auto* place = static_cast<SlotPayload*>(arena_.Allocate(sizeof(SlotPayload)));
  HeldTask* held = HeldTask::TakeOver({node.type, node.payload, static_cast<uint32_t>(PayloadBytes(id))});
  try {
    place->slot = new TaskSlot(held, *slot_users_);
  } catch (...) {
    held->GiveBack();
    throw;
  }
  node.type = node.type->kind == TaskKind::kRandom ? &kRandomSlotTask : &kSlotTask;
  node.payload = place;
  SetPayloadBytes(id, sizeof(SlotPayload));
  return place->slot;
}

void Graph::Replace(NodeId id, const Task& task) {
  if (nodes_[id].type == &kSlotTask && task.type->kind == TaskKind::kKernel) {
    // A kernel of a task group stays in its group, whose updates replace it as before.
    TaskSlot* slot = static_cast<SlotPayload*>(nodes_[id].payload)->slot;
    slot->Replace(slot->Make(task));
    return;
  }
  // In the same place if there is room, so that a graph does not grow with the number of its changes.
  void* payload = nodes_[id].payload;
  try {
    Hold(task);
    if (task.payload_bytes > PayloadBytes(id)) {
      payload = arena_.Allocate(task.payload_bytes);
      SetPayloadBytes(id, task.payload_bytes);
    }
  } catch (...) {
    task.Destroy();
    throw;
  }
  Node& node = nodes_[id];
  if (node.type->destroy != nullptr) node.type->destroy(node.payload);
  std::memcpy(payload, task.payload, task.payload_bytes);
  node.type = task.type;
  node.payload = payload;
  NoteChange(id);
}

void Graph::NoteChange(NodeId id) noexcept {
  if (nodes_[id].changed) return;
  try {
    changes_.push_back(id);
    nodes_[id].changed = true;
  } catch (const std::bad_alloc&) {
    changes_lost_ = true;
  }
}

void Graph::ForgetChanges() noexcept {
  for (const NodeId id : changes_) nodes_[id].changed = false;
  changes_.clear();
  changes_lost_ = false;
}

size_t Graph::PayloadBytes(NodeId id) const {
  return payload_units_[id] != kLarge ? payload_units_[id] * kUnit : large_payloads_.at(id);
}

void Graph::SetPayloadBytes(NodeId id, size_t bytes) {
  const size_t units = (bytes + kUnit - 1) / kUnit;
  if (units >= kLarge) large_payloads_[id] = bytes;
  payload_units_[id] = static_cast<uint16_t>(std::min<size_t>(units, kLarge));
}

void Graph::ShrinkToFit() {
  try {
    nodes_.shrink_to_fit();
    payload_units_.shrink_to_fit();
    for (Lane& lane : lanes_) lane.nodes.shrink_to_fit();
  } catch (const std::bad_alloc&) {
    // It stays as large as it is.
  }
}

size_t Graph::memory_bytes() const {
  size_t bytes = arena_.used_bytes() + nodes_.capacity() * sizeof(Node) + payload_units_.capacity() * sizeof(uint16_t) +
                 lanes_.capacity() * sizeof(Lane);
  for (const Lane& lane : lanes_) bytes += lane.nodes.capacity() * sizeof(NodeId);
  return bytes;
}

TaskInfo Describe(const Node& node) {
  TaskInfo info;
  info.type_name = node.type->name;
  if (node.type->describe != nullptr) node.type->describe(node.payload, info);
  if (info.name.empty()) info.name = info.type_name;
  return info;
}

std::string DescribeWaiting(const TaskType& type, const void* payload) {
  TaskInfo info;
  info.type_name = type.name;
  if (type.describe != nullptr) type.describe(payload, info);
  std::string text = info.type_name;
  if (info.event_id >= 0) text += fmt::format(" of event {}", info.event_id);
  if (info.notify_id >= 0) text += fmt::format(" of notify {}", info.notify_id);
  if (type.kind == TaskKind::kValueWait) {
    static constexpr const char* kCompare[] = {">=", "==", "any bit of", "no bit of"};
    text +=
        fmt::format(" at {:#x} for {} {}", info.address, info.compare < 4 ? kCompare[info.compare] : "?", info.value);
  }
  if (!info.name.empty()) text += fmt::format(" ({})", info.name);
  return text;
}

}  // namespace reprise::ir
