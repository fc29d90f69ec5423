// SPDX-License-Identifier: Apache-2.0
#include "ir/dag.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

namespace reprise::ir {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// How far lanes know each other to be, for pairs of lanes that met: a table as large as their number, not as that of
// all possible ones.
class LanePairs {
 public:
  struct Knowledge {
    uint32_t known = 0;  // node of the other lane, plus 1
    uint32_t since = 0;  // nodes of this lane from this one on come after it
  };
  /// Room for about as many pairs: moving the table costs more than filling it.
  explicit LanePairs(size_t pairs) : slots_(std::bit_ceil(2 * pairs + 64)) {}
  /// For writing.
  Knowledge& At(uint32_t lane, uint32_t other) {
    if (2 * (used_ + 1) > slots_.size()) Grow();
    Slot& slot = slots_[Find(Key(lane, other))];
    used_ += slot.key == 0 ? 1 : 0;
    slot.key = Key(lane, other);
    return slot.value;
  }
  Knowledge Get(uint32_t lane, uint32_t other) const { return slots_[Find(Key(lane, other))].value; }

 private:
  struct Slot {
    uint64_t key = 0;
    Knowledge value;
  };
  static uint64_t Key(uint32_t lane, uint32_t other) { return (uint64_t{lane} << 32 | other) + 1; }
  // The slot of the key, or the empty one where it belongs.
  size_t Find(uint64_t key) const {
    size_t at = (key * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[at].key != key && slots_[at].key != 0) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    shift_ -= 1;
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[Find(slot.key)] = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
  int shift_ = 64 - std::countr_zero(slots_.size());
};

class DagBuilder {
 public:
  explicit DagBuilder(const Graph& graph)
      : graph_(graph),
        lanes_(graph.lanes().size()),
        pairs_(std::min(graph.nodes().size() / 2, graph.lanes().size() * (graph.lanes().size() - 1))) {}

  Dag Build() {
    FindWanted();
    const NodeRange nodes = graph_.nodes();
    dag_.task.reserve(nodes.size());
    dag_.pred_begin.reserve(nodes.size() + 1);
    lane_of_.reserve(nodes.size());
    if (goes_back_) {
      VisitInOrder();
    } else {
      NodeId id = 0;
      for (auto at = nodes.begin(); at != nodes.end(); ++at, ++id) Visit(id, *at);
    }
    dag_.pred_begin.push_back(static_cast<uint32_t>(dag_.preds.size()));
    AddSuccessors();
    return std::move(dag_);
  }

 private:
  // A record that stands behind more waits than this becomes a junction; with fewer, each wait for it takes them over.
  static constexpr size_t kMostSources = 8;
  // How many predecessors of a predecessor are looked at for edges that others imply.
  static constexpr size_t kLookBack = 8;

  struct LaneState {
    uint32_t last = kNone;          // node
    std::vector<uint32_t> pending;  // nodes waited for since
    bool last_implied = false;      // by one of those
    // Scratch of Add, valid for the node with this stamp: the newest node of this lane that is a predecessor, and the
    // newest that another predecessor implies.
    uint32_t stamp = kNone;
    uint32_t newest;
    uint32_t implied;  // plus 1
  };
  struct Sources {
    uint32_t begin;
    uint32_t end;
  };

  // In sources_of_: of a record that some wait needs, before it has come.
  static constexpr uint32_t kWanted = kNone - 1;

  void FindWanted() {
    const NodeRange nodes = graph_.nodes();
    sources_of_.assign(nodes.size(), kNone);
    NodeId id = 0;
    for (auto at = nodes.begin(); at != nodes.end(); ++at, ++id) {
      const NodeId record = RecordBefore(graph_, *at);
      if (record == kNoNode) continue;
      sources_of_[record] = kWanted;
      goes_back_ |= record > id;
    }
  }

  void Visit(NodeId id, const Node& node) {
    if (node.type == &kEdgeRecord) {
      if (sources_of_[id] == kWanted) Record(id, node.lane);
    } else if (const NodeId record = RecordBefore(graph_, node); record != kNoNode) {
      Wait(node.lane, sources_[sources_of_[record]]);
    } else if (IsActive(node)) {
      Add(id, node.lane, false);
    }
  }

  // Of each lane the next node, the oldest first; a lane that comes to a wait stands still until the record has come.
  void VisitInOrder() {
    const std::vector<Lane>& lanes = graph_.lanes();
    std::vector<uint32_t> next(lanes.size(), 0);
    std::vector<uint8_t> has_come(graph_.nodes().size(), 0);
    std::unordered_map<NodeId, std::vector<LaneId>> stopped;  // by record
    using Next = std::pair<NodeId, LaneId>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> open;
    const auto go_on = [&](LaneId lane) {
      if (next[lane] != lanes[lane].nodes.size()) open.push({lanes[lane].nodes[next[lane]], lane});
    };
    for (LaneId lane = 0; lane < lanes.size(); ++lane) go_on(lane);
    while (!open.empty()) {
      const auto [id, lane] = open.top();
      open.pop();
      const Node node = graph_.node(id, lane, next[lane]);
      const NodeId record = RecordBefore(graph_, node);
      if (record != kNoNode && has_come[record] == 0) {
        stopped[record].push_back(lane);
        continue;
      }
      Visit(id, node);
      has_come[id] = 1;
      ++next[lane];
      go_on(lane);
      const auto waiting = stopped.find(id);
      if (waiting == stopped.end()) continue;
      for (const LaneId other : waiting->second) go_on(other);
      stopped.erase(waiting);
    }
    FindCircle(next);
  }

  // Every lane that stands still does so at a wait, for a record in a lane that stands still.
  void FindCircle(const std::vector<uint32_t>& next) {
    const std::vector<Lane>& lanes = graph_.lanes();
    const auto stands = [&](LaneId lane) { return next[lane] != lanes[lane].nodes.size(); };
    LaneId lane = 0;
    while (lane < lanes.size() && !stands(lane)) ++lane;
    if (lane == lanes.size()) return;
    std::vector<NodeId> way;
    std::vector<size_t> place(lanes.size(), SIZE_MAX);
    while (place[lane] == SIZE_MAX) {
      place[lane] = way.size();
      way.push_back(lanes[lane].nodes[next[lane]]);
      lane = graph_.node(RecordBefore(graph_, graph_.node(way.back()))).lane;
    }
    dag_.circle.assign(way.begin() + static_cast<ptrdiff_t>(place[lane]), way.end());
  }

  void Record(NodeId id, LaneId own) {
    LaneState& lane = lanes_[own];
    if (lane.pending.size() > kMostSources) Add(id, own, true);
    sources_of_[id] = static_cast<uint32_t>(sources_.size());
    sources_.push_back({static_cast<uint32_t>(source_pool_.size()), 0});
    if (lane.last != kNone && !lane.last_implied) source_pool_.push_back(lane.last);
    source_pool_.insert(source_pool_.end(), lane.pending.begin(), lane.pending.end());
    sources_.back().end = static_cast<uint32_t>(source_pool_.size());
  }

  void Wait(LaneId id, Sources sources) {
    LaneState& lane = lanes_[id];
    for (uint32_t i = sources.begin; i < sources.end; ++i) {
      const uint32_t source = source_pool_[i];
      const uint32_t other = lane_of_[source];
      if (other == id) continue;  // the way led back to where it came from
      LanePairs::Knowledge& knowledge = pairs_.At(id, other);
      if (knowledge.known > source) continue;
      knowledge = {source + 1, dag_.size()};
      lane.pending.push_back(source);
      if (lane.last == kNone || lane.last_implied) continue;
      // A join of many lanes that fork again: each has nothing of its own to add.
      const LanePairs::Knowledge back = pairs_.Get(other, id);
      lane.last_implied = back.known > lane.last && back.since <= source;
    }
  }

  LaneState& Scratch(uint32_t lane, uint32_t node) {
    LaneState& state = lanes_[lane];
    if (state.stamp != node) {
      state.stamp = node;
      state.newest = kNone;
      state.implied = 0;
    }
    return state;
  }

  // Of each lane only the newest node counts, and none that another predecessor had waited for.
  void DropImplied(std::vector<uint32_t>& pending, uint32_t node) {
    for (const uint32_t source : pending) {
      LaneState& at = Scratch(lane_of_[source], node);
      at.newest = at.newest == kNone ? source : std::max(at.newest, source);
      const auto begin = dag_.preds.begin() + dag_.pred_begin[source];
      const auto end = source + 1 < node ? dag_.preds.begin() + dag_.pred_begin[source + 1] : dag_.preds.end();
      for (auto p = begin; p != end && static_cast<size_t>(p - begin) < kLookBack; ++p) {
        LaneState& behind = Scratch(lane_of_[*p], node);
        behind.implied = std::max(behind.implied, *p + 1);
      }
    }
    std::erase_if(pending, [&](uint32_t source) {
      const LaneState& at = lanes_[lane_of_[source]];
      return source != at.newest || source < at.implied;
    });
    std::sort(pending.begin(), pending.end());
  }

  void Add(NodeId id, LaneId own, bool is_junction) {
    const auto node = static_cast<uint32_t>(dag_.task.size());
    LaneState& lane = lanes_[own];
    if (lane.last != kNone && !lane.last_implied) lane.pending.push_back(lane.last);
    if (lane.pending.size() > 1) DropImplied(lane.pending, node);
    dag_.task.push_back(id);
    dag_.is_junction.push_back(is_junction ? 1 : 0);
    dag_.pred_begin.push_back(static_cast<uint32_t>(dag_.preds.size()));
    dag_.preds.insert(dag_.preds.end(), lane.pending.begin(), lane.pending.end());
    lane_of_.push_back(own);
    lane.pending.clear();
    lane.last = node;
    lane.last_implied = false;
  }

  void AddSuccessors() {
    const uint32_t count = dag_.size();
    dag_.succ_begin.assign(size_t{count} + 1, 0);
    for (const uint32_t pred : dag_.preds) ++dag_.succ_begin[pred + 1];
    std::partial_sum(dag_.succ_begin.begin(), dag_.succ_begin.end(), dag_.succ_begin.begin());
    dag_.succs.resize(dag_.preds.size());
    std::vector<uint32_t> next(dag_.succ_begin.begin(), dag_.succ_begin.end() - 1);
    for (uint32_t node = 0; node < count; ++node) {
      for (const uint32_t pred : dag_.preds_of(node)) dag_.succs[next[pred]++] = node;
    }
  }

  const Graph& graph_;
  Dag dag_;
  bool goes_back_ = false;            // some wait comes before its record
  std::vector<uint32_t> sources_of_;  // of records: an index into sources_, kWanted or kNone
  std::vector<LaneState> lanes_;
  std::vector<uint32_t> lane_of_;  // captured lane, by node
  std::vector<Sources> sources_;
  std::vector<uint32_t> source_pool_;
  LanePairs pairs_;
};

}  // namespace

NodeId RecordBefore(const Graph& graph, const Node& node) {
  if (node.type != &kEdgeWait) return kNoNode;
  const NodeId id = EdgeOf(node).record;
  if (id >= graph.nodes().size()) return kNoNode;
  const Node record = graph.node(id);
  return record.lane != node.lane && record.type == &kEdgeRecord ? id : kNoNode;
}

Dag BuildDag(const Graph& graph) { return DagBuilder(graph).Build(); }

}  // namespace reprise::ir
