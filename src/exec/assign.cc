// SPDX-License-Identifier: Apache-2.0
#include "exec/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace reprise::exec {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint64_t kUnitNs = 1000;  // of a task whose cost is not known

bool IsEdge(const ir::Node& node) { return node.type == &ir::kEdgeRecord || node.type == &ir::kEdgeWait; }

uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
  return x ^ x >> 32;
}

struct LayoutOptions {
  uint32_t lanes;
  uint64_t handoff_ns;
  std::span<const uint64_t> cost_ns;  // by node
};

// Where and when each node runs.
struct Layout {
  std::vector<uint32_t> order;  // nodes as they were placed: topological
  std::vector<uint32_t> lane;   // by node
  std::vector<uint64_t> finish_ns;
  uint64_t makespan_ns = 0;
};

// A set of small numbers that knows its least: a tree of bits, 64 to a node.
class RankSet {
 public:
  explicit RankSet(uint32_t bound) {
    size_t bits = bound;
    do {
      bits = (bits + 63) / 64;
      levels_.emplace_back(bits);
    } while (bits > 1);
  }
  bool empty() const { return levels_.back()[0] == 0; }
  /// kNone when empty.
  uint32_t least() const {
    if (empty()) return kNone;
    size_t at = 0;
    for (size_t level = levels_.size(); level-- != 0;) {
      at = at * 64 + static_cast<size_t>(std::countr_zero(levels_[level][at]));
    }
    return static_cast<uint32_t>(at);
  }
  void Insert(uint32_t number) {
    size_t at = number;
    for (auto& level : levels_) {
      const uint64_t before = level[at / 64];
      level[at / 64] = before | uint64_t{1} << at % 64;
      if (before != 0) return;
      at /= 64;
    }
  }
  void Erase(uint32_t number) {
    size_t at = number;
    for (auto& level : levels_) {
      level[at / 64] &= ~(uint64_t{1} << at % 64);
      if (level[at / 64] != 0) return;
      at /= 64;
    }
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

// List scheduling. Of all nodes and lanes the pair that can start soonest is next; among those the node with the
// highest priority, on a lane where its newest input is. Siblings are ready as one entry; each lane takes them from its
// own part of the group, and the rest from others when that is used up. Where one of them weighs much, the most
// expensive go first instead.
class ListScheduler {
 public:
  ListScheduler(const ir::Dag& dag, const Siblings& siblings, const LayoutOptions& options)
      : dag_(dag), siblings_(siblings), options_(options), count_(dag.size()), shared_{RankSet(count_), {}} {}

  /// Higher priority first; ties in the order of capture.
  Layout Run(std::span<const uint64_t> priority) {
    Rank(priority);
    Layout layout;
    layout.order.reserve(count_);
    layout.lane.resize(count_);
    layout.finish_ns.resize(count_);
    lanes_.assign(options_.lanes, {0, {RankSet(count_), {}}});
    groups_.resize(siblings_.count());
    members_ = siblings_.members;
    left_.resize(count_);
    home_.resize(count_);
    for (uint32_t node = 0; node < count_; ++node) {
      left_[node] = static_cast<uint32_t>(dag_.preds_of(node).size());
      if (left_[node] == 0 && IsLeader(node)) Release(node, layout);
    }
    while (layout.order.size() != count_) {
      const uint32_t lane = Choose();
      const uint32_t node = Take(lane);
      const uint64_t finish = now_ + options_.cost_ns[node];
      layout.order.push_back(node);
      layout.lane[node] = lane;
      layout.finish_ns[node] = finish;
      layout.makespan_ns = std::max(layout.makespan_ns, finish);
      lanes_[lane].free_at = finish;
      for (const uint32_t succ : dag_.succs_of(node)) {
        if (IsLeader(succ) && --left_[succ] == 0) Release(succ, layout);  // and its siblings with it
      }
    }
    return layout;
  }

 private:
  struct Arrival {
    uint64_t at;
    uint32_t rank;
    bool operator<(const Arrival& other) const {  // for heaps: the soonest on top
      return at != other.at ? at > other.at : rank > other.rank;
    }
  };
  // What has arrived, by rank, and what is under way.
  struct Waiting {
    RankSet ready;
    std::vector<Arrival> coming;  // heap; may hold what another lane has taken

    void Add(uint64_t at, uint32_t rank, uint64_t now) {
      if (at <= now) {
        ready.Insert(rank);
      } else {
        coming.push_back({at, rank});
        std::push_heap(coming.begin(), coming.end());
      }
    }
    void PopComing() {
      std::pop_heap(coming.begin(), coming.end());
      coming.pop_back();
    }
  };
  struct Lane {
    uint64_t free_at;
    Waiting home;  // whose newest input is here: they may start without a hand-off
  };
  struct Group {
    uint32_t left;
    bool by_cost;
    std::vector<std::pair<uint32_t, uint32_t>> parts;  // by lane: members not taken yet
  };

  bool IsLeader(uint32_t node) const {
    const uint32_t group = siblings_.group_of[node];
    return group == Siblings::kAlone || siblings_.members[siblings_.begin[group]] == node;
  }

  void Rank(std::span<const uint64_t> priority) {
    by_rank_.resize(count_);
    std::iota(by_rank_.begin(), by_rank_.end(), 0);
    std::sort(by_rank_.begin(), by_rank_.end(),
              [&](uint32_t a, uint32_t b) { return priority[a] != priority[b] ? priority[a] > priority[b] : a < b; });
    rank_.resize(count_);
    for (uint32_t i = 0; i < count_; ++i) rank_[by_rank_[i]] = i;
  }

  bool IsTaken(uint32_t rank) const {
    const uint32_t node = by_rank_[rank];
    const uint32_t group = siblings_.group_of[node];
    return group == Siblings::kAlone ? left_[node] == kNone : groups_[group].left == 0;
  }

  // All inputs of the node are placed.
  void Release(uint32_t node, const Layout& layout) {
    uint64_t newest = 0;
    uint64_t elsewhere = 0;  // the newest on another lane than the newest of all, and its hand-off
    uint32_t home = kNone;
    for (const uint32_t pred : dag_.preds_of(node)) {
      const uint64_t finish = layout.finish_ns[pred];
      const uint32_t lane = layout.lane[pred];
      if (home == kNone || finish > newest) {
        if (home != kNone && lane != home) elsewhere = newest + options_.handoff_ns;
        newest = finish;
        home = lane;
      } else if (lane != home) {
        elsewhere = std::max(elsewhere, finish + options_.handoff_ns);
      }
    }
    const uint64_t at_others = home == kNone ? 0 : newest + options_.handoff_ns;
    const uint64_t at_home = std::max(newest, elsewhere);
    uint32_t rank = rank_[node];
    const uint32_t group = siblings_.group_of[node];
    if (group != Siblings::kAlone) {
      const std::span<uint32_t> members = MembersOf(group);
      const auto size = static_cast<uint32_t>(members.size());
      Group& state = groups_[group];
      state.left = size;
      state.by_cost = IsUneven(members);
      if (state.by_cost) {  // they share everything but the cost, which therefore decides their ranks
        std::sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) { return rank_[a] < rank_[b]; });
      }
      state.parts.resize(options_.lanes);
      for (uint32_t lane = 0; lane < options_.lanes; ++lane) {
        state.parts[lane] = {static_cast<uint32_t>(uint64_t{size} * lane / options_.lanes),
                             static_cast<uint32_t>(uint64_t{size} * (lane + 1) / options_.lanes)};
      }
      for (const uint32_t member : members) rank = std::min(rank, rank_[member]);
    }
    shared_.Add(at_others, rank, now_);
    if (at_home < at_others) lanes_[home].home.Add(at_home, rank, now_);
    home_[node] = home;
  }

  // What has arrived by now becomes ready.
  void Arrive(Waiting& waiting) {
    while (!waiting.coming.empty() && (waiting.coming.front().at <= now_ || IsTaken(waiting.coming.front().rank))) {
      if (!IsTaken(waiting.coming.front().rank)) waiting.ready.Insert(waiting.coming.front().rank);
      waiting.PopComing();
    }
  }

  // The lane that takes next; moves the clock on to the start of what it takes.
  uint32_t Choose() {
    Arrive(shared_);
    uint64_t soonest = UINT64_MAX;
    for (Lane& lane : lanes_) {
      Arrive(lane.home);
      uint64_t start = UINT64_MAX;
      if (!shared_.ready.empty() || !lane.home.ready.empty()) {
        start = 0;
      } else {
        if (!shared_.coming.empty()) start = shared_.coming.front().at;
        if (!lane.home.coming.empty()) start = std::min(start, lane.home.coming.front().at);
      }
      soonest = std::min(soonest, std::max(start, lane.free_at));
    }
    now_ = std::max(now_, soonest);
    Arrive(shared_);
    uint32_t best = kNone;
    uint32_t best_rank = kNone;
    bool best_at_home = false;
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.free_at > now_) continue;
      Arrive(lane.home);
      const uint32_t at_home = lane.home.ready.least();
      const uint32_t anywhere = shared_.ready.least();
      const uint32_t rank = std::min(at_home, anywhere);
      if (rank < best_rank || (rank == best_rank && rank != kNone && at_home == rank && !best_at_home)) {
        best = i;
        best_rank = rank;
        best_at_home = at_home == rank;
      }
    }
    chosen_ = best_rank;
    return best;
  }

  uint32_t Take(uint32_t lane) {
    const uint32_t node = by_rank_[chosen_];
    const uint32_t group = siblings_.group_of[node];
    if (group == Siblings::kAlone) {
      left_[node] = kNone;
      Forget(home_[node]);
      return node;
    }
    Group& state = groups_[group];
    const std::span<uint32_t> members = MembersOf(group);
    if (--state.left == 0) Forget(home_[siblings_.members_of(group)[0]]);
    if (state.by_cost) return members[members.size() - 1 - state.left];
    auto& own = state.parts[lane];
    if (own.first != own.second) return members[own.first++];
    auto largest = std::max_element(state.parts.begin(), state.parts.end(), [](const auto& a, const auto& b) {
      return a.second - a.first < b.second - b.first;
    });
    return members[--largest->second];
  }

  std::span<uint32_t> MembersOf(uint32_t group) {
    return {members_.data() + siblings_.begin[group], siblings_.begin[group + 1] - siblings_.begin[group]};
  }

  // Whether ranges of the members could end far apart.
  bool IsUneven(std::span<const uint32_t> members) const {
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    uint64_t total = 0;
    for (const uint32_t member : members) {
      least = std::min(least, options_.cost_ns[member]);
      most = std::max(most, options_.cost_ns[member]);
      total += options_.cost_ns[member];
    }
    return 4 * most > 5 * least && 32 * most * options_.lanes > total;
  }

  // The chosen one is no longer ready anywhere.
  void Forget(uint32_t home) {
    shared_.ready.Erase(chosen_);
    if (home != kNone) lanes_[home].home.ready.Erase(chosen_);
  }

  const ir::Dag& dag_;
  const Siblings& siblings_;
  const LayoutOptions& options_;
  const uint32_t count_;

  std::vector<uint32_t> by_rank_;
  std::vector<uint32_t> rank_;
  std::vector<uint32_t> left_;  // inputs that are not placed; kNone once the node itself is
  std::vector<uint32_t> home_;  // lane of the newest input, by node
  std::vector<Group> groups_;
  std::vector<uint32_t> members_;  // of groups, in the order in which they are taken
  std::vector<Lane> lanes_;
  Waiting shared_;
  uint64_t now_ = 0;
  uint32_t chosen_ = kNone;  // rank
};

// The longest way from the start of a node to the end of everything.
std::vector<uint64_t> LongestTails(const ir::Dag& dag, std::span<const uint64_t> cost_ns) {
  std::vector<uint64_t> tail(dag.size());
  for (uint32_t node = dag.size(); node-- != 0;) {
    uint64_t longest = 0;
    for (const uint32_t succ : dag.succs_of(node)) longest = std::max(longest, tail[succ]);
    tail[node] = longest + cost_ns[node];
  }
  return tail;
}

// With waits that an earlier one implies left out.
Assignment Assign(const ir::Dag& dag, const Layout& layout, uint32_t lanes) {
  const uint32_t count = dag.size();
  Assignment result;
  result.lane_begin.assign(size_t{lanes} + 1, 0);
  for (const uint32_t lane : layout.lane) ++result.lane_begin[lane + 1];
  std::partial_sum(result.lane_begin.begin(), result.lane_begin.end(), result.lane_begin.begin());
  std::vector<uint32_t> place(count);
  std::vector<uint32_t> next(result.lane_begin.begin(), result.lane_begin.end() - 1);
  result.nodes.resize(count);
  for (const uint32_t node : layout.order) {
    place[node] = next[layout.lane[node]]++;
    result.nodes[place[node]] = node;
  }
  result.published.assign(count, 0);
  // What each lane knows of the others after its newest wait, and where that stands in `snapshots`, so that a wait for
  // a lane brings along what that lane knew. Positions are compared with the place of the node.
  std::vector<uint32_t> snapshots(size_t{lanes} * lanes, 0);
  std::vector<uint32_t> newest(lanes);
  std::iota(newest.begin(), newest.end(), 0);
  std::vector<uint32_t> knows(count);  // snapshot, by node
  std::vector<uint32_t> need(lanes);
  std::vector<uint32_t> waits_at(size_t{count} + 1, 0);
  struct Kept {
    uint32_t place;
    Assignment::Wait wait;
  };
  std::vector<Kept> kept;
  for (const uint32_t node : layout.order) {
    const uint32_t lane = layout.lane[node];
    const uint32_t* known = &snapshots[size_t{newest[lane]} * lanes];
    bool waits = false;
    for (const uint32_t pred : dag.preds_of(node)) {
      const uint32_t other = layout.lane[pred];
      const uint32_t position = place[pred] - result.lane_begin[other] + 1;
      if (other == lane || known[other] >= position) continue;
      need[other] = std::max(need[other], position);
      waits = true;
    }
    if (waits) {
      const auto fresh = static_cast<uint32_t>(snapshots.size() / lanes);
      snapshots.resize(snapshots.size() + lanes);
      uint32_t* now = &snapshots[size_t{fresh} * lanes];
      std::copy_n(&snapshots[size_t{newest[lane]} * lanes], lanes, now);
      for (uint32_t other = 0; other < lanes; ++other) {
        if (need[other] == 0) continue;
        const uint32_t source = result.nodes[result.lane_begin[other] + need[other] - 1];
        const uint32_t* brought = &snapshots[size_t{knows[source]} * lanes];
        for (uint32_t i = 0; i < lanes; ++i) now[i] = std::max(now[i], brought[i]);
      }
      for (uint32_t other = 0; other < lanes; ++other) {
        if (now[other] < need[other]) {
          kept.push_back({place[node], {other, need[other]}});
          ++waits_at[place[node] + 1];
          result.published[result.lane_begin[other] + need[other] - 1] = 1;
          now[other] = need[other];
        }
        need[other] = 0;
      }
      newest[lane] = fresh;
    }
    knows[node] = newest[lane];
  }
  std::partial_sum(waits_at.begin(), waits_at.end(), waits_at.begin());
  result.wait_begin = waits_at;
  result.waits.resize(kept.size());
  for (const Kept& one : kept) result.waits[waits_at[one.place]++] = one.wait;
  return result;
}

}  // namespace

Siblings FindSiblings(const ir::Dag& dag) {
  const uint32_t count = dag.size();
  Siblings result;
  result.group_of.assign(count, Siblings::kAlone);
  // The first node with these neighbours, by a hash of them.
  size_t slots = 16;
  while (slots < 2 * size_t{count}) slots *= 2;
  std::vector<uint32_t> first(slots, kNone);
  std::vector<uint32_t> leader(count);
  for (uint32_t node = 0; node < count; ++node) {
    leader[node] = node;
    if (dag.is_junction[node] != 0) continue;
    const auto preds = dag.preds_of(node);
    const auto succs = dag.succs_of(node);
    uint64_t hash = preds.size();
    for (const uint32_t pred : preds) hash = Mix(hash + pred);
    hash = Mix(hash + succs.size());
    for (const uint32_t succ : succs) hash = Mix(hash + succ);
    for (size_t at = hash & (slots - 1);; at = (at + 1) & (slots - 1)) {
      if (first[at] == kNone) {
        first[at] = node;
        break;
      }
      const auto same_preds = dag.preds_of(first[at]);
      const auto same_succs = dag.succs_of(first[at]);
      if (std::equal(preds.begin(), preds.end(), same_preds.begin(), same_preds.end()) &&
          std::equal(succs.begin(), succs.end(), same_succs.begin(), same_succs.end())) {
        leader[node] = first[at];
        break;
      }
    }
  }
  std::vector<uint32_t> size(count, 0);
  for (uint32_t node = 0; node < count; ++node) ++size[leader[node]];
  result.begin.push_back(0);
  for (uint32_t node = 0; node < count; ++node) {
    if (leader[node] != node) {
      result.group_of[node] = result.group_of[leader[node]];
    } else if (size[node] > 1) {
      result.group_of[node] = static_cast<uint32_t>(result.begin.size() - 1);
      result.begin.push_back(result.begin.back() + size[node]);
    }
  }
  result.members.resize(result.begin.back());
  std::vector<uint32_t> next(result.begin.begin(), result.begin.end() - 1);
  for (uint32_t node = 0; node < count; ++node) {
    if (result.group_of[node] != Siblings::kAlone) result.members[next[result.group_of[node]]++] = node;
  }
  return result;
}

bool CanSchedule(const ir::Graph& graph) {
  if (graph.lanes().size() > kMaxScheduledLanes) return false;
  const ir::NodeRange nodes = graph.nodes();
  ir::NodeId id = 0;
  for (auto at = nodes.begin(); at != nodes.end(); ++at, ++id) {
    const ir::Node node = *at;
    if (IsEdge(node)) {
      // Capture writes a record before its waits; the order of capture is topological for no other reason.
      if (ir::EdgeOf(node).record > id) return false;
    } else if (ir::IsActive(node) && !node.type->never_waits) {
      return false;
    }
  }
  return true;
}

std::string WhyNotScheduled(const ir::Graph& graph) {
  if (graph.lanes().size() > kMaxScheduledLanes) {
    return fmt::format("it has {} streams, {} at most can be laid out", graph.lanes().size(), kMaxScheduledLanes);
  }
  ir::NodeId id = 0;
  for (const ir::Node& node : graph.nodes()) {
    const ir::NodeId at = id++;
    const auto where = [&] {
      return fmt::format("task {} of stream {} ({})", node.position, graph.lanes()[node.lane].stream_id,
                         node.type->name);
    };
    if (IsEdge(node)) {
      if (ir::EdgeOf(node).record > at) return fmt::format("{} waits for a record that comes later", where());
    } else if (ir::IsActive(node) && !node.type->never_waits) {
      return fmt::format("{} may wait for something outside of the graph, or must run on a thread of its own", where());
    }
  }
  return {};
}

Assignment Schedule(const ir::Dag& dag, uint32_t lanes, std::span<const uint32_t> cost_ns, uint32_t handoff_ns) {
  const uint32_t count = dag.size();
  lanes = std::clamp<uint32_t>(lanes, 1, kMaxExecutionLanes);
  std::vector<uint64_t> cost(count, kUnitNs);
  if (!cost_ns.empty()) std::copy(cost_ns.begin(), cost_ns.end(), cost.begin());
  for (uint32_t node = 0; node < count; ++node) {
    if (dag.is_junction[node] != 0) cost[node] = 0;
  }
  const uint64_t serial_ns = std::accumulate(cost.begin(), cost.end(), uint64_t{0});
  const auto worth_it = [&](uint64_t makespan_ns) { return makespan_ns <= serial_ns - serial_ns / 10; };

  Layout best;
  best.makespan_ns = UINT64_MAX;
  if (lanes > 1 && serial_ns != 0 && worth_it(serial_ns / lanes)) {
    const std::vector<uint64_t> tails = LongestTails(dag, cost);
    if (worth_it(*std::max_element(tails.begin(), tails.end()))) {
      const LayoutOptions options{lanes, handoff_ns, cost};
      const Siblings siblings = FindSiblings(dag);
      best = ListScheduler(dag, siblings, options).Run(tails);
    }
  }
  // Another lane has to be handed to its thread, and back.
  if (best.makespan_ns != UINT64_MAX && worth_it(best.makespan_ns + 2 * uint64_t{handoff_ns})) {
    lanes = 1 + *std::max_element(best.lane.begin(), best.lane.end());  // those that were used come first
  } else {
    lanes = 1;
    best.order.resize(count);
    std::iota(best.order.begin(), best.order.end(), 0);
    best.lane.assign(count, 0);
    best.makespan_ns = serial_ns;
  }
  Assignment result = Assign(dag, best, lanes);
  result.makespan_ns = best.makespan_ns;
  result.serial_ns = serial_ns;
  return result;
}

}  // namespace reprise::exec
