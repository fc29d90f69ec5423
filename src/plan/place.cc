// SPDX-License-Identifier: Apache-2.0
#include "plan/place.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>

#include "plan/sections.h"

namespace reprise::plan {
namespace {

// Finds the placed buffers that may not share bytes with one. Buffers by their begin, and above them a binary tree that
// holds the latest end of the placed ones below each of its nodes.
class PlacedNeighbours {
 public:
  explicit PlacedNeighbours(const Problem& problem)
      : problem_(problem), by_begin_(Sorted(problem, Order::kBegin)), position_(by_begin_.size()) {
    leaves_ = std::bit_ceil(std::max<size_t>(by_begin_.size(), 1));
    latest_end_.assign(2 * leaves_, std::numeric_limits<Time>::min());
    begins_.reserve(by_begin_.size());
    for (size_t i = 0; i < by_begin_.size(); ++i) {
      position_[by_begin_[i]] = static_cast<uint32_t>(i);
      begins_.push_back(problem.buffers[by_begin_[i]].begin);
    }
    is_placed_.assign(by_begin_.size(), false);
    apart_.resize(problem.apart.empty() ? 0 : by_begin_.size());
    for (const auto& [a, b] : problem.apart) {
      apart_[a].push_back(b);
      apart_[b].push_back(a);
    }
  }

  void Place(BufferId buffer) {
    is_placed_[buffer] = true;
    const Time end = problem_.buffers[buffer].end;
    for (size_t node = leaves_ + position_[buffer]; node > 0 && latest_end_[node] < end; node /= 2) {
      latest_end_[node] = end;
    }
  }

  /// Appends them to `found`, those of `apart` perhaps twice; returns the steps that it took.
  int64_t Find(BufferId buffer, std::vector<BufferId>& found) {
    const Buffer& self = problem_.buffers[buffer];
    // Begins before the end of this one: a prefix.
    const size_t prefix = std::lower_bound(begins_.begin(), begins_.end(), self.end) - begins_.begin();
    int64_t steps = 1;
    stack_.assign(1, {1, 0, leaves_});
    while (!stack_.empty()) {
      const auto [node, begin, count] = stack_.back();
      stack_.pop_back();
      ++steps;
      if (begin >= prefix || latest_end_[node] <= self.begin) continue;
      if (count == 1) {
        found.push_back(by_begin_[begin]);
        continue;
      }
      stack_.push_back({2 * node + 1, begin + count / 2, count / 2});
      stack_.push_back({2 * node, begin, count / 2});
    }
    if (!apart_.empty()) {
      for (const BufferId other : apart_[buffer]) {
        if (is_placed_[other]) found.push_back(other);
      }
      steps += static_cast<int64_t>(apart_[buffer].size());
    }
    return steps;
  }

 private:
  struct Range {
    size_t node;
    size_t begin;
    size_t count;
  };

  const Problem& problem_;
  const std::vector<BufferId> by_begin_;
  std::vector<uint32_t> position_;
  std::vector<Time> begins_;
  size_t leaves_;
  std::vector<Time> latest_end_;
  std::vector<bool> is_placed_;
  std::vector<std::vector<BufferId>> apart_;
  std::vector<Range> stack_;
};

// The offset for a buffer between occupied ranges, which are sorted.
Bytes FindGap(const Buffer& buffer, const std::vector<std::pair<Bytes, Bytes>>& taken, Fit fit) {
  Bytes free = 0;
  Bytes found = kAnywhere;
  Bytes smallest = std::numeric_limits<Bytes>::max();
  for (const auto& [begin, end] : taken) {
    const Bytes at = RoundUp(free, buffer.alignment);
    if (begin - at >= buffer.size && begin - free < smallest) {
      found = at;
      smallest = begin - free;
      if (fit == Fit::kLowest) break;
    }
    free = std::max(free, end);
  }
  return found != kAnywhere ? found : RoundUp(free, buffer.alignment);
}

long double Area(const Buffer& buffer) {
  return static_cast<long double>(Lifetime(buffer)) * static_cast<long double>(buffer.size);
}

}  // namespace

std::vector<BufferId> Sorted(const Problem& problem, Order order) {
  std::vector<BufferId> ids(problem.buffers.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto by = [&](auto less) {
    std::stable_sort(ids.begin(), ids.end(),
                     [&](BufferId a, BufferId b) { return less(problem.buffers[a], problem.buffers[b]); });
  };
  switch (order) {
    case Order::kSize: by([](const Buffer& a, const Buffer& b) { return a.size > b.size; }); break;
    case Order::kLifetime:
      by([](const Buffer& a, const Buffer& b) {
        return Lifetime(a) != Lifetime(b) ? Lifetime(a) > Lifetime(b) : a.size > b.size;
      });
      break;
    case Order::kArea: by([](const Buffer& a, const Buffer& b) { return Area(a) > Area(b); }); break;
    case Order::kBegin:
      by([](const Buffer& a, const Buffer& b) { return a.begin != b.begin ? a.begin < b.begin : a.size > b.size; });
      break;
  }
  return ids;
}

std::optional<Solution> PlaceInOrder(const Problem& problem, std::span<const BufferId> order, Fit fit, Work& work) {
  Solution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  PlacedNeighbours placed(problem);
  for (BufferId i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].at == kAnywhere) continue;
    solution.offsets[i] = problem.buffers[i].at;
    placed.Place(i);
  }
  std::vector<BufferId> neighbours;
  std::vector<std::pair<Bytes, Bytes>> taken;
  for (const BufferId id : order) {
    const Buffer& buffer = problem.buffers[id];
    if (buffer.at != kAnywhere || buffer.size == 0) continue;
    neighbours.clear();
    if (!work.Take(placed.Find(id, neighbours))) return std::nullopt;
    taken.clear();
    for (const BufferId other : neighbours) {
      taken.emplace_back(solution.offsets[other], solution.offsets[other] + problem.buffers[other].size);
    }
    std::sort(taken.begin(), taken.end());
    solution.offsets[id] = FindGap(buffer, taken, fit);
    placed.Place(id);
  }
  solution.height = HeightOf(problem, solution.offsets);
  return solution;
}

bool IsPlain(const Problem& problem) {
  Bytes alignment = 1;
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.at != kAnywhere) return false;
    alignment = std::max(alignment, buffer.alignment);
  }
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.size % alignment != 0) return false;
  }
  return problem.apart.empty();
}

namespace {

// The upper edge of a plan, as stretches of sections of one height.
class Skyline {
 public:
  struct Valley {
    uint32_t begin;
    uint32_t end;
    Bytes height;
  };

  explicit Skyline(uint32_t sections) : end_(sections, 0), begin_(sections + 1, 0), height_(sections, 0) {
    if (sections > 0) Add(0, sections, 0);
  }

  /// The lowest stretch; of several the first.
  Valley Lowest() {
    for (;;) {
      const auto [height, begin, end] = lowest_.top();
      if (end_[begin] == end && height_[begin] == height) return {begin, end, height};
      lowest_.pop();  // has changed since
    }
  }

  /// The sections [begin, end) of a valley grow to `height`, which is more than the valley's.
  void Raise(const Valley& valley, uint32_t begin, uint32_t end, Bytes height) {
    end_[valley.begin] = 0;
    if (valley.begin < begin) Add(valley.begin, begin, valley.height);
    if (end < valley.end) Add(end, valley.end, valley.height);
    while (begin > 0 && height_[begin_[begin]] == height) {  // one with neighbours that are as high
      begin = begin_[begin];
      end_[begin] = 0;
    }
    while (end < height_.size() && height_[end] == height) {
      const uint32_t next = end_[end];
      end_[end] = 0;
      end = next;
    }
    Add(begin, end, height);
  }

  /// Of the two stretches beside the valley: the lower one's height.
  Bytes LowerEdge(const Valley& valley) const {
    const Bytes before = valley.begin > 0 ? height_[begin_[valley.begin]] : std::numeric_limits<Bytes>::max();
    const Bytes behind = valley.end < height_.size() ? height_[valley.end] : std::numeric_limits<Bytes>::max();
    return std::min(before, behind);
  }

 private:
  void Add(uint32_t begin, uint32_t end, Bytes height) {
    end_[begin] = end;
    begin_[end] = begin;
    height_[begin] = height;
    lowest_.push({height, begin, end});
  }

  struct Entry {
    Bytes height;
    uint32_t begin;
    uint32_t end;
    bool operator>(const Entry& other) const {
      return height != other.height ? height > other.height : begin > other.begin;
    }
  };

  std::vector<uint32_t> end_;    // of the stretch that begins here; 0: none does
  std::vector<uint32_t> begin_;  // of the stretch that ends here
  std::vector<Bytes> height_;    // of the stretch that begins here
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> lowest_;
};

}  // namespace

std::optional<Solution> PlaceOnSkyline(const Problem& problem, Work& work) {
  Solution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  const Sections sections = FindSections(problem);
  // Buffers by the section in which they begin, the longest-lived first.
  std::vector<std::vector<BufferId>> waiting(sections.count);
  size_t left = 0;
  for (const BufferId id : Sorted(problem, Order::kLifetime)) {
    if (problem.buffers[id].size == 0) continue;
    waiting[sections.first[id]].push_back(id);
    ++left;
  }
  const auto lifetime = [&](BufferId id) { return Lifetime(problem.buffers[id]); };
  Skyline skyline(sections.count);
  while (left > 0) {
    const Skyline::Valley valley = skyline.Lowest();
    const std::vector<BufferId>* list = nullptr;
    size_t place = 0;
    int64_t steps = 1;
    for (uint32_t section = valley.begin; section < valley.end; ++section) {
      for (size_t i = 0; i < waiting[section].size(); ++i, ++steps) {
        const BufferId id = waiting[section][i];
        if (sections.last[id] > valley.end) continue;
        const bool is_better = list == nullptr || lifetime(id) > lifetime((*list)[place]) ||
                               (lifetime(id) == lifetime((*list)[place]) &&
                                problem.buffers[id].size > problem.buffers[(*list)[place]].size);
        if (is_better) {
          list = &waiting[section];
          place = i;
        }
        break;  // the others of this section do not live longer
      }
      ++steps;
    }
    if (!work.Take(steps)) return std::nullopt;
    if (list == nullptr) {
      skyline.Raise(valley, valley.begin, valley.end, skyline.LowerEdge(valley));
      continue;
    }
    const BufferId id = (*list)[place];
    solution.offsets[id] = valley.height;
    skyline.Raise(valley, sections.first[id], sections.last[id], valley.height + problem.buffers[id].size);
    std::vector<BufferId>& taken_from = waiting[sections.first[id]];
    taken_from.erase(taken_from.begin() + static_cast<ptrdiff_t>(place));
    --left;
  }
  solution.height = HeightOf(problem, solution.offsets);
  return solution;
}

}  // namespace reprise::plan
