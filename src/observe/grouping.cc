// SPDX-License-Identifier: Apache-2.0
#include "observe/grouping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ir/task_info.h"
#include "observe/task_text.h"

namespace reprise::observe {
namespace {

using ir::TaskKind;

// Boxes in the longest lane: as they are, up to this many,
constexpr size_t kMostAsTheyAre = 40;
// and what tasks that share boxes are brought down to, which fits a screen.
constexpr size_t kMostBoxes = 24;
// Forks and joins that no grouping can bring together: as many steps from top to bottom, the middle is left out.
constexpr uint32_t kMostSteps = 60;
constexpr size_t kMostPeriod = 16;
// Lines of the program that give fewer boxes than this say less than repeated names.
constexpr size_t kFewBoxes = 6;

struct Facts {
  uint32_t name;
  uint32_t stack;  // index of an interned stack, outermost frame first; 0: empty
  bool is_fixed;   // has a box of its own
  bool is_reset;
};

using Stack = std::vector<uint32_t>;  // frames
using Groups = std::vector<std::vector<Group>>;

uint64_t Place(uint32_t lane, uint32_t position) { return uint64_t{lane} << 32 | position; }

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

class Grouping {
 public:
  Grouping(const std::vector<ShownLane>& lanes, const std::vector<LaneEdge>& edges) : lanes_(lanes), edges_(edges) {
    stacks_.emplace_back();
    std::vector<uint64_t> ends;
    for (const LaneEdge& edge : edges) {
      ends.push_back(Place(edge.from_lane, edge.from));
      ends.push_back(Place(edge.to_lane, edge.to));
    }
    std::sort(ends.begin(), ends.end());
    for (uint32_t lane = 0; lane < lanes.size(); ++lane) {
      std::vector<Facts>& facts = facts_.emplace_back();
      for (const ir::NodeId id : lanes[lane].lane().nodes) {
        facts.push_back(FactsOf(lanes[lane].graph->node(id), facts.empty() ? 0 : facts.back().stack));
        const uint64_t place = Place(lane, static_cast<uint32_t>(facts.size() - 1));
        if (std::binary_search(ends.begin(), ends.end(), place)) facts.back().is_fixed = true;
      }
    }
  }

  Groups Run(bool every_task) {
    const auto resets = [](const Facts& a, const Facts& b) { return a.is_reset && b.is_reset; };
    Groups groups = Merge(resets);
    if (!every_task && MostBoxes(groups) > kMostAsTheyAre) {
      groups = Shorten();
      if (!Fits(groups)) groups = LeaveOutTheMiddle(std::move(groups));
    }
    for (uint32_t lane = 0; lane < groups.size(); ++lane) {
      for (Group& group : groups[lane]) Name(lane, group);
    }
    return groups;
  }

 private:
  template <class Key>
  static uint32_t Intern(std::map<Key, uint32_t>& known, std::vector<Key>& all, const Key& key) {
    const auto [found, is_new] = known.try_emplace(key, static_cast<uint32_t>(all.size()));
    if (is_new) all.push_back(key);
    return found->second;
  }

  Facts FactsOf(const ir::Node& node, uint32_t previous_stack) {
    const ir::TaskInfo info = ir::Describe(node);
    Stack stack;
    for (size_t i = info.stack.size(); i-- > 0;) stack.push_back(Intern(frame_ids_, frames_, info.stack[i]));
    const TaskKind kind = node.type->kind;
    uint32_t stack_id = stack.empty() ? 0 : Intern(stack_ids_, stacks_, stack);
    // Copies and waits do not know their line: they go with what was launched before them.
    if (stack.empty() && (kind == TaskKind::kCopy || kind == TaskKind::kFill || OnlyOrders(node))) {
      stack_id = previous_stack;
    }
    const bool is_fixed = kind == TaskKind::kCondition || kind == TaskKind::kStreamActive;
    std::string name = info.name;
    if (kind == TaskKind::kCopy || kind == TaskKind::kFill || kind == TaskKind::kReduce) {
      name = TextOf(node, info).title;
    }
    return {Intern(name_ids_, names_, name), stack_id, is_fixed, kind == TaskKind::kEventReset};
  }

  // Groups of neighbours of which each is `same` as the first.
  template <class Same>
  Groups Merge(Same same) const {
    Groups all;
    for (const std::vector<Facts>& facts : facts_) {
      std::vector<Group>& groups = all.emplace_back();
      for (uint32_t i = 0; i < facts.size(); ++i) {
        if (i != 0 && !facts[i].is_fixed && !facts[groups.back().begin].is_fixed &&
            same(facts[groups.back().begin], facts[i])) {
          groups.back().end = i + 1;
        } else {
          groups.push_back({i, i + 1});
        }
      }
    }
    return all;
  }

  static size_t MostBoxes(const Groups& all) {
    size_t most = 0;
    for (const std::vector<Group>& groups : all) most = std::max(most, groups.size());
    return most;
  }
  static bool Fits(const Groups& all) { return MostBoxes(all) <= kMostBoxes; }

  Groups Shorten() const {
    // The same operator of the same line, then lines, then the lines that these were called from.
    Groups shortest = Merge([](const Facts& a, const Facts& b) { return a.stack == b.stack && a.name == b.name; });
    if (Fits(shortest)) return shortest;
    size_t depth = 0;
    for (const Stack& stack : stacks_) depth = std::max(depth, stack.size());
    for (; depth > 0; --depth) {
      Groups lines = Merge([&](const Facts& a, const Facts& b) { return HaveInCommon(a, b, depth); });
      if (!Fits(lines)) continue;
      if (MostBoxes(lines) >= kFewBoxes) return lines;
      Groups repeated = FoldRepeats(shortest);
      return Fits(repeated) ? repeated : lines;
    }
    Groups repeated = FoldRepeats(shortest);
    if (Fits(repeated)) return repeated;
    return InPortions();
  }

  bool HaveInCommon(const Facts& a, const Facts& b, size_t frames) const {
    if (a.stack == b.stack) return true;
    const Stack& x = stacks_[a.stack];
    const Stack& y = stacks_[b.stack];
    const size_t compared = std::min(frames, std::max(x.size(), y.size()));
    return x.size() >= compared && y.size() >= compared && std::equal(x.begin(), x.begin() + compared, y.begin());
  }

  // "8 × (MatMul, Add, Relu)" for names that come again in the same order.
  Groups FoldRepeats(const Groups& from) const {
    Groups all;
    for (uint32_t lane = 0; lane < from.size(); ++lane) {
      const std::vector<Group>& units = from[lane];
      const std::vector<Facts>& facts = facts_[lane];
      const auto same = [&](size_t a, size_t b) {
        return !facts[units[a].begin].is_fixed && units[a].size() == units[b].size() &&
               !facts[units[b].begin].is_fixed && facts[units[a].begin].name == facts[units[b].begin].name;
      };
      std::vector<Group>& groups = all.emplace_back();
      for (size_t i = 0; i < units.size();) {
        size_t best = 0, period = 0;
        for (size_t p = 1; p <= kMostPeriod && i + 2 * p <= units.size(); ++p) {
          size_t run = 0;
          while (i + p + run < units.size() && same(i + run, i + p + run)) ++run;
          const size_t repeats = run / p + 1;
          if (repeats > 1 && repeats * p > best) best = repeats * p, period = p;
        }
        if (best == 0) {
          groups.push_back(units[i++]);
          continue;
        }
        std::vector<std::string> parts;
        for (size_t k = 0; k < period; ++k) {
          const Group& unit = units[i + k];
          parts.push_back(unit.size() == 1 ? names_[facts[unit.begin].name]
                                           : fmt::format("{} × {}", names_[facts[unit.begin].name], unit.size()));
        }
        Group folded{units[i].begin, units[i + best - 1].end};
        folded.label = fmt::format("{} × ({})", best / period, fmt::join(parts, ", "));
        groups.push_back(std::move(folded));
        i += best;
      }
    }
    return all;
  }

  Groups InPortions() const {
    Groups all;
    for (const std::vector<Facts>& facts : facts_) {
      const size_t portion = facts.size() / (kMostBoxes - 1) + 1;
      std::vector<Group>& groups = all.emplace_back();
      for (uint32_t i = 0; i < facts.size(); ++i) {
        if (i != 0 && !facts[i].is_fixed && !facts[groups.back().begin].is_fixed && groups.back().size() < portion) {
          groups.back().end = i + 1;
        } else {
          groups.push_back({i, i + 1});
        }
      }
    }
    return all;
  }

  // A group's step: one more than those of all that come before it. Steps are in the order of the graph, so what is
  // left out of each lane lies between what is shown of it.
  Groups LeaveOutTheMiddle(Groups groups) const {
    std::vector<std::vector<uint32_t>> steps(groups.size());
    std::vector<std::pair<ir::NodeId, uint64_t>> order;
    for (uint32_t lane = 0; lane < groups.size(); ++lane) {
      steps[lane].resize(groups[lane].size());
      for (uint32_t i = 0; i < groups[lane].size(); ++i) {
        order.emplace_back(lanes_[lane].lane().nodes[groups[lane][i].begin], Place(lane, i));
      }
    }
    std::sort(order.begin(), order.end());
    std::unordered_map<uint64_t, uint64_t> record_of;  // by place of the wait
    for (const LaneEdge& edge : edges_) record_of[Place(edge.to_lane, edge.to)] = Place(edge.from_lane, edge.from);
    uint32_t last = 0;
    for (const auto& [node, place] : order) {
      const auto lane = static_cast<uint32_t>(place >> 32), i = static_cast<uint32_t>(place);
      uint32_t step = i == 0 ? 0 : steps[lane][i - 1] + 1;
      if (const auto found = record_of.find(Place(lane, groups[lane][i].begin)); found != record_of.end()) {
        const auto from = static_cast<uint32_t>(found->second >> 32);
        step = std::max(step, steps[from][GroupAt(groups[from], static_cast<uint32_t>(found->second))] + 1);
      }
      steps[lane][i] = step;
      last = std::max(last, step);
    }
    if (last < kMostSteps) return groups;
    const uint32_t begin = kMostSteps / 2, end = last - kMostSteps / 2;
    Groups shown;
    for (uint32_t lane = 0; lane < groups.size(); ++lane) {
      std::vector<Group>& kept = shown.emplace_back();
      for (uint32_t i = 0; i < groups[lane].size(); ++i) {
        if (steps[lane][i] < begin || steps[lane][i] > end) {
          kept.push_back(std::move(groups[lane][i]));
        } else if (!kept.empty() && kept.back().is_gap) {
          kept.back().end = groups[lane][i].end;
        } else {
          kept.push_back({.begin = groups[lane][i].begin, .end = groups[lane][i].end, .is_gap = true});
        }
      }
    }
    return shown;
  }

  void Name(uint32_t lane, Group& group) const {
    if (group.size() == 1 && !group.is_gap) return;
    const std::vector<Facts>& facts = facts_[lane];
    const Stack* common = &stacks_[facts[group.begin].stack];
    size_t frames = common->size();
    std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> counts;  // of names: how many, first position
    for (uint32_t i = group.begin; i < group.end; ++i) {
      const Stack& stack = stacks_[facts[i].stack];
      size_t equal = 0;
      while (equal < std::min(frames, stack.size()) && stack[equal] == (*common)[equal]) ++equal;
      frames = equal;
      ++counts.try_emplace(facts[i].name, 0u, i).first->second.first;
    }
    if (frames != 0) group.place = frames_[(*common)[frames - 1]];
    std::vector<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.second.first != b.second.first ? a.second.first > b.second.first : a.second.second < b.second.second;
    });
    for (const auto& [name, count] : sorted) {
      group.names.push_back(count.first == 1 ? names_[name] : fmt::format("{} × {}", names_[name], count.first));
    }
    if (!group.label.empty()) return;
    if (group.is_gap) {
      group.label = fmt::format("{} more task{}", group.size(), group.size() == 1 ? "" : "s");
    } else if (sorted.size() == 1) {
      group.label = group.names[0];
    } else {
      // Such as the backward pass of torch, which threads of its own launch.
      const char* unknown = stacks_.size() > 1 ? ", no line known" : "";
      group.label = group.place.empty() ? fmt::format("tasks {} to {}{}", group.begin, group.end - 1, unknown)
                                        : std::string(FileName(group.place));
    }
  }

  const std::vector<ShownLane>& lanes_;
  const std::vector<LaneEdge>& edges_;
  std::vector<std::vector<Facts>> facts_;  // by lane and position
  std::map<std::string, uint32_t> name_ids_, frame_ids_;
  std::vector<std::string> names_, frames_;
  std::map<Stack, uint32_t> stack_ids_;
  std::vector<Stack> stacks_;
};

}  // namespace

std::vector<LaneEdge> EdgesBetween(const std::vector<ShownLane>& lanes) {
  std::vector<LaneEdge> edges;
  for (uint32_t lane = 0; lane < lanes.size(); ++lane) {
    for (const ir::NodeId id : lanes[lane].lane().nodes) {
      const ir::Node wait = lanes[lane].graph->node(id);
      if (wait.type != &ir::kEdgeWait) continue;
      const ir::Node record = lanes[lane].graph->node(ir::EdgeOf(wait).record);
      if (record.lane != wait.lane) edges.push_back({record.lane, record.position, lane, wait.position});
    }
  }
  return edges;
}

std::vector<std::vector<Group>> GroupTasks(const std::vector<ShownLane>& lanes, const std::vector<LaneEdge>& edges,
                                           bool every_task) {
  return Grouping(lanes, edges).Run(every_task);
}

uint32_t GroupAt(const std::vector<Group>& groups, uint32_t position) {
  const auto behind = std::upper_bound(groups.begin(), groups.end(), position,
                                       [](uint32_t wanted, const Group& group) { return wanted < group.begin; });
  return static_cast<uint32_t>(behind - groups.begin()) - 1;
}

}  // namespace reprise::observe
