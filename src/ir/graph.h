// SPDX-License-Identifier: Apache-2.0
//
// Graph: tasks in submission order, spread over lanes (one per captured stream). Inside a lane order is the dependency;
// between lanes only record/wait pairs order anything. A graph is edited while it is captured and never executed:
// exec::Plan is what runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "ir/arena.h"
#include "ir/slot.h"
#include "ir/task.h"

namespace reprise::ir {

using NodeId = uint32_t;
using LaneId = uint32_t;
constexpr NodeId kNoNode = UINT32_MAX;

/// Payload of the three types below: an edge source (record), an edge target (wait) or its reset. The graph keeps one
/// payload for a record and all waits and resets that refer to it.
struct EdgePayload {
  NodeId record;      ///< the record that a wait or reset refers to; its own id for a record
  uint32_t event_id;  ///< graph-internal event, shown in dumps
  uint32_t event_flag;
};

/// Order inside a graph; they have no run function, exec::Plan turns them into lane positions.
extern const TaskType kEdgeRecord;
extern const TaskType kEdgeWait;
extern const TaskType kEdgeReset;

/// A task and its place in a graph: put together from what the graph keeps at each access.
struct Node {
  const TaskType* type;
  void* payload;      ///< in the graph's arena
  uint32_t position;  ///< in its lane
  LaneId lane : 30;
  uint32_t changed : 1;   ///< replaced or disabled since the last ForgetChanges
  uint32_t disabled : 1;  ///< skipped at execution
};

/// Of a node that is a record, a wait or a reset.
inline const EdgePayload& EdgeOf(const Node& node) { return *static_cast<const EdgePayload*>(node.payload); }
static_assert(sizeof(Node) == 24);

/// Nodes of one lane that were added one after another: their ids and their positions count up together.
struct Run {
  NodeId first;
  LaneId lane;
  uint32_t position;  ///< of the first
};

/// The nodes of a lane in order, with the part of the interface of a std::vector<NodeId> that readers need. Iterating
/// is cheap; an index takes a search.
class LaneNodes {
 public:
  explicit LaneNodes(const GrowingArray<Run>& all) : all_(&all) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  NodeId operator[](size_t position) const;
  NodeId back() const { return (*this)[size_ - 1]; }

  class Iterator {
   public:
    using value_type = NodeId;
    using difference_type = std::ptrdiff_t;
    NodeId operator*() const { return id_; }
    Iterator& operator++() {
      ++id_;
      if (++position_ == run_end_ && position_ != nodes_->size_) Enter(run_ + 1);
      return *this;
    }
    bool operator==(const Iterator& other) const { return position_ == other.position_; }
    uint32_t position() const { return position_; }

   private:
    friend class LaneNodes;
    Iterator(const LaneNodes& nodes, uint32_t position) : nodes_(&nodes), position_(position) {
      if (position != nodes.size_) Enter(0);
    }
    void Enter(size_t run);
    const LaneNodes* nodes_;
    uint32_t position_;
    NodeId id_ = 0;
    size_t run_ = 0;
    uint32_t run_end_ = 0;  // position behind the run
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }

 private:
  friend class Graph;
  const GrowingArray<Run>* all_;
  GrowingArray<uint32_t> runs_;  // of this lane, in order: indices into `all_`
  uint32_t size_ = 0;
};

struct Lane {
  int32_t stream_id;       ///< of the graph-internal stream
  int32_t user_stream_id;  ///< of the stream that was captured; for messages
  NodeId forked_by;        ///< record that pulled the stream in; kNoNode for the origin
  LaneNodes nodes;
};

/// A block of memory that the program got while it captured the tasks from `first` on, and had given back when it came
/// to the task `behind`; and that could have been given out anew, in part at least, before the capture ended. So once
/// the graph has run, nobody reads what these tasks have left in it: the program has no object there.
struct ReusedBlock {
  uintptr_t begin, end;
  uint32_t first, behind;
};

class Graph;

/// All nodes in the order of submission, with the part of the interface of a std::vector<Node> that readers need.
/// Iterating is cheap; an index takes a search.
class NodeRange {
 public:
  explicit NodeRange(const Graph& graph) : graph_(&graph) {}
  size_t size() const;
  bool empty() const { return size() == 0; }
  Node operator[](NodeId id) const;

  class Iterator {
   public:
    using value_type = Node;
    using difference_type = std::ptrdiff_t;
    Node operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return id_ == other.id_; }

   private:
    friend class NodeRange;
    Iterator(const Graph& graph, NodeId id) : graph_(&graph), id_(id) {}
    const Graph* graph_;
    NodeId id_;
    size_t run_ = 0;
  };
  Iterator begin() const { return {*graph_, 0}; }
  Iterator end() const { return {*graph_, static_cast<NodeId>(size())}; }

 private:
  const Graph* graph_;
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
  /// Replaces the task of the node; the new one is no record. Throws std::bad_alloc, then the graph is as before. Not
  /// while the graph runs.
  void Replace(NodeId id, const Task& task);
  void Disable(NodeId id) {
    entries_[id].disabled = 1;
    NoteChange(id);
  }

  /// Nodes that were replaced or disabled since the last ForgetChanges, each once: a plan has to be brought up to date
  /// with them. A kernel that went into a slot is not among them, because plans refer to the slot.
  const std::vector<NodeId>& changes() const { return changes_; }
  /// The caller writes other arguments into the payload of the node, in place: no plan needs to know, because the call
  /// stays as it is. Not while the graph runs.
  void NoteNewArguments(NodeId id) noexcept {
    if (entries_[id].has_new_arguments == 0) Note(id, new_arguments_, true);
  }
  /// The nodes that NoteNewArguments was called for, each once.
  const std::vector<NodeId>& new_arguments() const { return new_arguments_; }
  /// Whether changes are missing in the lists, because there was no memory for them.
  bool changes_lost() const { return changes_lost_; }
  void ForgetChanges() noexcept;

  /// The threads that run the contents of the graph's slots; null when the graph has no slots.
  SlotUsers* slot_users() const { return slot_users_; }

  NodeRange nodes() const { return NodeRange(*this); }
  /// How many nodes are tasks of their own, not the wait or reset of a record.
  size_t tasks() const { return tasks_.size(); }
  const std::vector<Lane>& lanes() const { return lanes_; }
  /// The node with the id: a search when the graph has several lanes, none for records.
  Node node(NodeId id) const { return NodeAt(id, RunOf(id)); }
  /// The node, for a caller that knows its lane and position: no search.
  Node node(NodeId id, LaneId lane, uint32_t position) const { return NodeAt(id, {id, lane, position}); }

  /// Free text attached to a node (shown as ExtendInfo).
  void SetExtendInfo(NodeId id, std::string text) { extend_info_[id] = std::move(text); }
  const std::map<NodeId, std::string>& extend_info() const { return extend_info_; }

  /// Bytes that the user attached to a kernel node.
  void SetOpInfo(NodeId id, std::string bytes) { op_info_[id] = std::move(bytes); }
  const std::string* op_info(NodeId id) const {
    const auto it = op_info_.find(id);
    return it != op_info_.end() ? &it->second : nullptr;
  }

  /// Of a graph of one lane. Empty once a task has changed: then it may write into memory that has become somebody
  /// else's since.
  void SetReusedBlocks(std::vector<ReusedBlock> blocks) { reused_ = std::move(blocks); }
  const std::vector<ReusedBlock>& reused_blocks() const { return reused_; }

  /// Bytes held by nodes and payloads.
  size_t memory_bytes() const;
  /// Gives back what was reserved for more nodes.
  void ShrinkToFit();

 private:
  friend class NodeRange;

  // The graph keeps four bytes of each node, and 16 bytes and the payload of each node that is no wait or reset of a
  // record. Lane and position of a node follow from its run.
  struct Entry {
    uint32_t index : 27;  // kTask: into tasks_; else the record
    uint32_t kind : 2;
    uint32_t disabled : 1;
    uint32_t changed : 1;
    uint32_t has_new_arguments : 1;
  };
  static_assert(sizeof(Entry) == 4);
  enum EntryKind : uint32_t { kTask, kWait, kReset };
  static constexpr uint32_t kMostNodes = (1u << 27) - 1;
  struct Stored {
    const TaskType* type;
    uint64_t payload : 48;
    uint64_t room : 16;  // of the payload, in units of the arena, or kLarge; only replacing asks for it
    void* at() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(payload)); }
  };
  static_assert(sizeof(Stored) == 16);
  static Stored Store(const TaskType& type, const void* payload, size_t bytes);
  /// Payload of a record. The waits and resets that refer to the record have no payload of their own.
  struct StoredRecord {
    EdgePayload edge;
    uint32_t run;
  };
  static_assert(sizeof(StoredRecord) == 16);

  Node NodeAt(NodeId id, const Run& run) const {
    const Entry entry = entries_[id];
    const uint32_t position = run.position + (id - run.first);
    if (entry.kind == kTask) [[likely]] {
      const Stored& task = tasks_[entry.index];
      return {task.type, task.at(), position, run.lane, entry.changed, entry.disabled};
    }
    return {entry.kind == kWait ? &kEdgeWait : &kEdgeReset,
            RecordedAs(entry.index),
            position,
            run.lane,
            entry.changed,
            entry.disabled};
  }
  const Run& RunOf(NodeId id) const { return runs_.size() == 1 ? runs_[0] : FindRun(id); }
  const Run& FindRun(NodeId id) const;
  /// The payload that the node had as a record.
  void* RecordedAs(NodeId id) const;
  bool IsRecord(NodeId id) const {
    return id < entries_.size() && entries_[id].kind == kTask && tasks_[entries_[id].index].type == &kEdgeRecord;
  }
  bool IsOtherEnd(const Task& task) const;
  void MakeRoom(Lane& lane, bool starts_run);

  void Hold(const Task& task);
  size_t PayloadBytes(NodeId id) const;
  void SetTask(NodeId id, const TaskType& type, void* payload, size_t bytes);
  void NoteChange(NodeId id) noexcept {
    if (entries_[id].changed == 0) Note(id, changes_, false);
  }
  void Note(NodeId id, std::vector<NodeId>& list, bool is_arguments) noexcept;

  Arena arena_;
  GrowingArray<Entry> entries_;
  GrowingArray<Stored> tasks_;
  GrowingArray<Run> runs_;
  bool owns_ = false;                        // some task has something to release
  std::map<NodeId, EdgePayload*> replaced_;  // records that have become other tasks
  std::map<NodeId, size_t> large_payloads_;
  std::vector<Lane> lanes_;
  std::set<Anchor*> anchors_;
  Anchor* last_anchor_ = nullptr;  // most tasks need what the one before needed
  std::map<NodeId, std::string> extend_info_;
  std::map<NodeId, std::string> op_info_;
  std::vector<ReusedBlock> reused_;
  std::vector<NodeId> changes_;
  std::vector<NodeId> new_arguments_;
  bool changes_lost_ = false;
  SlotUsers* slot_users_ = nullptr;  // one reference
};

inline size_t NodeRange::size() const { return graph_->entries_.size(); }
inline Node NodeRange::operator[](NodeId id) const { return graph_->node(id); }
inline Node NodeRange::Iterator::operator*() const { return graph_->NodeAt(id_, graph_->runs_[run_]); }
inline NodeRange::Iterator& NodeRange::Iterator::operator++() {
  ++id_;
  if (run_ + 1 != graph_->runs_.size() && graph_->runs_[run_ + 1].first == id_) ++run_;
  return *this;
}
inline void LaneNodes::Iterator::Enter(size_t run) {
  run_ = run;
  id_ = (*nodes_->all_)[nodes_->runs_[run]].first;
  run_end_ = run + 1 != nodes_->runs_.size() ? (*nodes_->all_)[nodes_->runs_[run + 1]].position : nodes_->size_;
}

}  // namespace reprise::ir
