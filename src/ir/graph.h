// SPDX-License-Identifier: Apache-2.0
//
// Graph: tasks in submission order, spread over lanes (one per captured stream). Inside a lane order is the dependency;
// between lanes only record/wait pairs order anything. A graph is edited while it is captured and never executed:
// exec::Plan is what runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/arena.h"
#include "ir/slot.h"
#include "ir/task.h"

namespace reprise::ir {

using NodeId = uint32_t;
using LaneId = uint32_t;
constexpr NodeId kNoNode = UINT32_MAX;

/// Payload of the three types below: an edge source (record), an edge target (wait) or its reset.
struct EdgePayload {
  NodeId record;      ///< the record that a wait or reset refers to; its own id for a record
  uint32_t event_id;  ///< graph-internal event, shown in dumps
  uint32_t event_flag;
};

/// Order inside a graph; they have no run function, exec::Plan turns them into lane positions.
extern const TaskType kEdgeRecord;
extern const TaskType kEdgeWait;
extern const TaskType kEdgeReset;

struct Node {
  const TaskType* type;
  void* payload;      ///< in the graph's arena
  uint32_t position;  ///< in its lane
  LaneId lane : 30;
  uint32_t changed : 1;   ///< replaced or disabled since the last ForgetChanges
  uint32_t disabled : 1;  ///< skipped at execution
};
static_assert(sizeof(Node) == 24);

struct Lane {
  int32_t stream_id;           ///< of the graph-internal stream
  int32_t user_stream_id;      ///< of the stream that was captured; for messages
  NodeId forked_by = kNoNode;  ///< record that pulled the stream in; kNoNode for the origin
  std::vector<NodeId> nodes;
};

/// Threads: thread-compatible; the capture session's lock guards it while it grows.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Lane 0 is the origin.
  LaneId AddLane(int32_t stream_id, int32_t user_stream_id, NodeId forked_by);

  /// Moves the task's payload into the graph. Throws std::bad_alloc, then the task is destroyed and the graph is as
  /// before.
  NodeId Add(LaneId lane, const Task& task);

  /// Makes the node's task replaceable while the graph runs, and returns its slot; for kernels and random numbers.
  /// Throws std::bad_alloc, then the node is as before.
  TaskSlot* MakeSlot(NodeId id);
  /// Puts another task in the node's place. Throws std::bad_alloc, then the graph is as before. Not while it runs.
  void Replace(NodeId id, const Task& task);
  void Disable(NodeId id) {
    nodes_[id].disabled = true;
    NoteChange(id);
  }

  /// Nodes that were replaced or disabled since the last ForgetChanges, each once: what a plan has to catch up with. A
  /// kernel that went into a slot is not among them, because plans refer to the slot.
  const std::vector<NodeId>& changes() const { return changes_; }
  /// There were changes that are not in the list, for want of memory.
  bool changes_lost() const { return changes_lost_; }
  void ForgetChanges() noexcept;

  /// Who runs the contents of slots; null when the graph has none.
  SlotUsers* slot_users() const { return slot_users_; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  const Node& node(NodeId id) const { return nodes_[id]; }

  /// Free text attached to a node (shown as ExtendInfo).
  void SetExtendInfo(NodeId id, std::string text) { extend_info_[id] = std::move(text); }
  const std::map<NodeId, std::string>& extend_info() const { return extend_info_; }

  /// Bytes that the user attached to a kernel node.
  void SetOpInfo(NodeId id, std::string bytes) { op_info_[id] = std::move(bytes); }
  const std::string* op_info(NodeId id) const {
    const auto it = op_info_.find(id);
    return it != op_info_.end() ? &it->second : nullptr;
  }

  /// Bytes held by nodes and payloads.
  size_t memory_bytes() const;
  /// Gives back what was reserved for more nodes.
  void ShrinkToFit();

 private:
  void Hold(const Task& task);
  size_t PayloadBytes(NodeId id) const;
  void SetPayloadBytes(NodeId id, size_t bytes);
  void NoteChange(NodeId id) noexcept;

  Arena arena_;
  std::vector<Node> nodes_;
  // Room of payloads, apart from the nodes because only replacing asks for it: in units of the arena, or kLarge.
  std::vector<uint16_t> payload_units_;
  std::map<NodeId, size_t> large_payloads_;
  std::vector<Lane> lanes_;
  std::set<Anchor*> anchors_;
  Anchor* last_anchor_ = nullptr;  // most tasks need what the one before needed
  std::map<NodeId, std::string> extend_info_;
  std::map<NodeId, std::string> op_info_;
  std::vector<NodeId> changes_;
  bool changes_lost_ = false;
  SlotUsers* slot_users_ = nullptr;  // one reference
};

/// What a dump shows of the node; fills name and type name from the type where the payload says nothing.
TaskInfo Describe(const Node& node);

/// "NOTIFY_WAIT of notify 4", "MEM_WAIT_VALUE at 0x… for == 3 (it holds 1)": a task that waits.
std::string DescribeWaiting(const TaskType& type, const void* payload);

}  // namespace reprise::ir
