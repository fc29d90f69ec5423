// SPDX-License-Identifier: Apache-2.0
#include "plan/search.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "plan/sections.h"

namespace reprise::plan {
namespace {

constexpr size_t kMostStates = 1 << 21;  // that are remembered: some 80 MB
constexpr uint64_t kStartsOfOnePatience =
    1000;                        // then it doubles, then it is three times as much: no search is endless
constexpr double kForget = 0.5;  // of what a start has learned, when the next one begins

uint64_t Mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xFF51AFD7ED558CCDU;
  value ^= value >> 33;
  value *= 0xC4CEB9FE1A85EC53U;
  return value ^ (value >> 33);
}

}  // namespace

class Search::Impl {
 public:
  Impl(const Problem& problem, uint32_t variant, const SearchTechniques& techniques)
      : problem_(problem), techniques_(techniques), variant_(variant), sections_(FindSections(problem)) {
    assert(problem.buffers.size() <= kMostBuffers);
    const auto count = static_cast<uint32_t>(problem.buffers.size());
    for (uint32_t i = 0; i < count; ++i) {
      size_.push_back(problem.buffers[i].size);
      if (size_[i] > 0) unit_ = std::gcd(unit_, size_[i]);
    }
    for (Bytes& size : size_) size /= std::max<Bytes>(unit_, 1);
    unit_ = std::max<Bytes>(unit_, 1);
    overlaps_.resize(count);
    for (uint32_t a = 0; a < count; ++a) {
      for (uint32_t b = a + 1; b < count; ++b) {
        if (size_[a] == 0 || size_[b] == 0 || !OverlapInTime(problem.buffers[a], problem.buffers[b])) continue;
        overlaps_[a].push_back(b);
        overlaps_[b].push_back(a);
      }
    }
    blame_.assign(sections_.count, 0);
    lowest_.assign(sections_.count, 0);
    crossed_.assign(sections_.count + 1, 0);
    offset_.assign(count, 0);
    Reset();
    Measure();
    MakeOrder(0);
  }

  Outcome Fit(Bytes capacity, uint64_t nodes, uint64_t patience) {
    if (capacity > capacity_) failed_.clear();  // what was too high then need not be so now
    capacity_ = capacity;
    const Bytes units = capacity < 0 ? -1 : capacity / unit_;
    if (order_.empty()) return Finish();
    const uint64_t end = nodes_ + nodes;
    for (;;) {
      end_of_start_ = std::min(end, nodes_ + patience * (1 + starts_ / kStartsOfOnePatience));
      limit_ = units;
      Reset();
      stack_.assign(order_.begin(), order_.end());
      has_given_up_ = false;
      if (SolveGroups(0, stack_.size(), 0, sections_.count, 0)) return Finish();
      if (!has_given_up_) return Outcome::kTooHigh;
      if (nodes_ >= end) return Outcome::kUnknown;
      MakeOrder(++starts_);
    }
  }

  const Solution& solution() const { return solution_; }
  Bytes unit() const { return unit_; }
  uint64_t nodes() const { return nodes_; }

 private:
  struct Saved {
    uint32_t buffer;
    Bytes floor;
  };

  Outcome Finish() {
    solution_.offsets.assign(size_.size(), 0);
    for (const uint32_t id : order_) solution_.offsets[id] = offset_[id] * unit_;
    solution_.height = HeightOf(problem_, solution_.offsets);
    return Outcome::kFits;
  }

  void Reset() {
    floor_.assign(size_.size(), 0);
    left_.assign(sections_.count, 0);
    is_placed_.assign(size_.size(), 0);
    for (uint32_t i = 0; i < size_.size(); ++i) {
      for (uint32_t s = sections_.first[i]; s < sections_.last[i]; ++s) left_[s] += size_[i];
    }
  }

  // For the orders: the fullest section of each buffer.
  void Measure() {
    fullest_.assign(size_.size(), 0);
    for (uint32_t i = 0; i < size_.size(); ++i) {
      for (uint32_t s = sections_.first[i]; s < sections_.last[i]; ++s) fullest_[i] = std::max(fullest_[i], left_[s]);
    }
  }

  // The first order of a variant is fixed; later ones put first what lies in sections that made branches fail.
  void MakeOrder(uint64_t start) {
    if (start > 0 && !techniques_.learning) return;
    const size_t count = size_.size();
    std::vector<double> first(count, 0);
    for (uint32_t i = 0; i < count; ++i) {
      if (start == 0) {
        first[i] = variant_ % 4 == 2 ? 0 : static_cast<double>(fullest_[i]);
        continue;
      }
      for (uint32_t s = sections_.first[i]; s < sections_.last[i]; ++s) first[i] = std::max(first[i], blame_[s]);
    }
    for (double& blame : blame_) blame *= kForget;
    order_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      if (size_[i] > 0) order_.push_back(i);
    }
    const auto lifetime = [&](uint32_t i) { return static_cast<double>(Lifetime(problem_.buffers[i])); };
    const auto area = [&](uint32_t i) { return lifetime(i) * static_cast<double>(size_[i]); };
    const auto size = [&](uint32_t i) { return static_cast<double>(size_[i]); };
    const uint64_t turn = (variant_ + start) % 3;
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      if (first[a] != first[b]) return first[a] > first[b];
      if (turn == 1) return area(a) > area(b);
      if (lifetime(a) != lifetime(b)) return lifetime(a) > lifetime(b);
      return size(a) > size(b);
    });
    rank_.assign(count, 0);
    for (uint32_t r = 0; r < order_.size(); ++r) rank_[order_[r]] = r;
  }

  Bytes FloorOf(uint32_t id, Bytes level) const { return std::max(floor_[id], level); }

  // What the group still needs decides: whether it can fit, its hash, and how high the next buffer may lie.
  struct Look {
    bool can_fit;
    uint64_t hash;
    Bytes highest;
  };
  Look LookAt(size_t begin, size_t end, uint32_t first, uint32_t last, Bytes level) {
    Look look = {true, 0, std::numeric_limits<Bytes>::max()};
    std::fill(lowest_.begin() + first, lowest_.begin() + last, std::numeric_limits<Bytes>::max());
    for (size_t i = begin; i < end; ++i) {
      const uint32_t id = stack_[i];
      const Bytes floor = FloorOf(id, level);
      for (uint32_t s = sections_.first[id]; s < sections_.last[id]; ++s) lowest_[s] = std::min(lowest_[s], floor);
      look.hash += Mix(Mix(id + 1) + static_cast<uint64_t>(floor));
      if (techniques_.dominance) look.highest = std::min(look.highest, floor + size_[id] - 1);
      look.can_fit = look.can_fit && floor + size_[id] <= limit_;
    }
    if (!techniques_.bounds) return look;
    for (uint32_t s = first; s < last; ++s) {
      if (left_[s] == 0) continue;
      if (lowest_[s] + left_[s] > limit_) {
        blame_[s] += 1;
        look.can_fit = false;
        return look;
      }
      look.highest = std::min(look.highest, limit_ - left_[s]);
    }
    return look;
  }

  // Buffers stack_[begin, end), of sections [first, last), at `level` or above. Leaves them placed if they fit.
  bool Solve(size_t begin, size_t end, uint32_t first, uint32_t last, Bytes level) {
    if (nodes_ >= end_of_start_) {
      has_given_up_ = true;
      return false;
    }
    ++nodes_;
    const Look look = LookAt(begin, end, first, last, level);
    if (!look.can_fit || (techniques_.memory && failed_.contains(look.hash))) return false;
    std::vector<std::pair<Bytes, uint32_t>> candidates;
    for (size_t i = begin; i < end; ++i) {
      const Bytes floor = FloorOf(stack_[i], level);
      if (floor <= look.highest) candidates.emplace_back(floor, rank_[stack_[i]]);
    }
    std::sort(candidates.begin(), candidates.end());
    for (const auto& [floor, rank] : candidates) {
      if (Place(order_[rank], floor, begin, end, first, last)) return true;
      if (has_given_up_) return false;
    }
    if (techniques_.memory && failed_.size() < kMostStates) failed_.insert(look.hash);
    return false;
  }

  bool Place(uint32_t id, Bytes offset, size_t begin, size_t end, uint32_t first, uint32_t last) {
    const size_t saved = saved_.size();
    const Bytes top = offset + size_[id];
    offset_[id] = offset;
    is_placed_[id] = 1;
    for (uint32_t s = sections_.first[id]; s < sections_.last[id]; ++s) left_[s] -= size_[id];
    for (const uint32_t other : overlaps_[id]) {
      if (is_placed_[other] != 0 || floor_[other] >= top) continue;
      saved_.push_back({other, floor_[other]});
      floor_[other] = top;
    }
    const size_t rest = stack_.size();
    for (size_t i = begin; i < end; ++i) {
      if (stack_[i] != id) stack_.push_back(stack_[i]);
    }
    const bool fits = SolveGroups(rest, stack_.size(), first, last, offset);
    stack_.resize(rest);
    for (; saved_.size() > saved; saved_.pop_back()) floor_[saved_.back().buffer] = saved_.back().floor;
    for (uint32_t s = sections_.first[id]; s < sections_.last[id]; ++s) left_[s] += size_[id];
    is_placed_[id] = 0;
    return fits;
  }

  // The same, where the buffers may be of several groups that share no section. Small groups first: they fail faster.
  bool SolveGroups(size_t begin, size_t end, uint32_t first, uint32_t last, Bytes level) {
    if (begin == end) return true;
    if (!techniques_.groups) return Solve(begin, end, first, last, level);
    for (size_t i = begin; i < end; ++i) {
      ++crossed_[sections_.first[stack_[i]]];
      --crossed_[sections_.last[stack_[i]] - 1];
    }
    struct Group {
      uint32_t first;
      uint32_t last;
      size_t count;
    };
    std::vector<Group> groups;
    int32_t open = 0;
    uint32_t group_first = first;
    for (uint32_t s = first; s < last; ++s) {
      open += std::exchange(crossed_[s], 0);
      if (open > 0) continue;
      if (left_[s] > 0) groups.push_back({group_first, s + 1, 0});
      group_first = s + 1;
    }
    if (groups.size() == 1) return Solve(begin, end, first, last, level);
    const auto group_of = [&](uint32_t id) {
      return std::upper_bound(groups.begin(), groups.end(), sections_.first[id],
                              [](uint32_t section, const Group& group) { return section < group.first; }) -
             groups.begin() - 1;
    };
    for (size_t i = begin; i < end; ++i) ++groups[group_of(stack_[i])].count;
    std::vector<size_t> by_count(groups.size());
    std::iota(by_count.begin(), by_count.end(), 0);
    std::stable_sort(by_count.begin(), by_count.end(),
                     [&](size_t a, size_t b) { return groups[a].count < groups[b].count; });
    for (const size_t group : by_count) {
      const size_t own = stack_.size();
      for (size_t i = begin; i < end; ++i) {
        if (static_cast<size_t>(group_of(stack_[i])) == group) stack_.push_back(stack_[i]);
      }
      const bool fits = Solve(own, stack_.size(), groups[group].first, groups[group].last, level);
      stack_.resize(own);
      if (!fits) return false;
    }
    return true;
  }

  const Problem& problem_;
  const SearchTechniques techniques_;
  const uint32_t variant_;
  const Sections sections_;
  std::vector<Bytes> size_;  // in units; as all that follows
  Bytes unit_ = 0;           // bytes: the greatest common divisor of the sizes
  std::vector<std::vector<uint32_t>> overlaps_;

  std::vector<uint32_t> order_;  // of the buffers that have bytes
  std::vector<uint32_t> rank_;   // in order_
  std::vector<Bytes> fullest_;
  std::vector<double> blame_;  // of sections
  uint64_t starts_ = 0;

  Bytes capacity_ = -1;
  Bytes limit_ = 0;
  std::vector<Bytes> floor_;  // above the placed buffers that overlap
  std::vector<Bytes> offset_;
  std::vector<uint8_t> is_placed_;
  std::vector<Bytes> left_;       // of sections: bytes that are not placed yet
  std::vector<Bytes> lowest_;     // of sections: scratch
  std::vector<int32_t> crossed_;  // of sections: scratch
  std::vector<uint32_t> stack_;   // groups, one behind the other
  std::vector<Saved> saved_;
  std::unordered_set<uint64_t> failed_;
  uint64_t nodes_ = 0;
  uint64_t end_of_start_ = 0;
  bool has_given_up_ = false;
  Solution solution_;
};

Search::Search(const Problem& problem, uint32_t variant, const SearchTechniques& techniques)
    : impl_(std::make_unique<Impl>(problem, variant, techniques)) {}
Search::~Search() = default;
Search::Search(Search&&) noexcept = default;

Outcome Search::Fit(Bytes capacity, uint64_t nodes, uint64_t patience) { return impl_->Fit(capacity, nodes, patience); }
const Solution& Search::solution() const { return impl_->solution(); }
Bytes Search::unit() const { return impl_->unit(); }
uint64_t Search::nodes() const { return impl_->nodes(); }

}  // namespace reprise::plan
