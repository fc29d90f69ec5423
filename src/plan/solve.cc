// SPDX-License-Identifier: Apache-2.0
#include "plan/solve.h"

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <vector>

#include "plan/place.h"
#include "plan/validate.h"

namespace reprise::plan {
namespace {

constexpr int64_t kHeuristicSteps = 100'000'000;  // of all heuristics but the first
constexpr uint64_t kQuickSteps = 1'000'000;       // nodes times buffers
constexpr uint64_t kSlice = 60'000;               // nodes between two looks at the others
constexpr int kQuickProbes = 6;

struct Heuristic {
  const char* name;
  std::optional<Order> order;  // none: the skyline
  Fit fit = Fit::kLowest;
};
constexpr std::array<Heuristic, 7> kHeuristics = {{
    {"greedy by size, best fit", Order::kSize, Fit::kBest},  // the first: never left out
    {"skyline", std::nullopt},
    {"greedy by size, lowest", Order::kSize},
    {"greedy by begin, best fit", Order::kBegin, Fit::kBest},
    {"greedy by begin, lowest", Order::kBegin},
    {"greedy by lifetime", Order::kLifetime},
    {"greedy by area", Order::kArea},
}};

// The same with sizes that keep alignments when buffers are stacked; none where lifetimes do not say everything.
std::optional<Problem> MakePlain(const Problem& problem) {
  Problem plain = problem;
  Bytes alignment = 1;
  for (const Buffer& buffer : problem.buffers) alignment = std::max(alignment, buffer.alignment);
  Bytes sum = 0;
  for (Buffer& buffer : plain.buffers) {
    if (buffer.size > kMostBytes - alignment) return std::nullopt;
    buffer.size = RoundUp(buffer.size, alignment);
    buffer.alignment = 1;
    if (buffer.size > kMostBytes - sum) return std::nullopt;
    sum += buffer.size;
  }
  if (!IsPlain(plain)) return std::nullopt;
  return plain;
}

class Planner {
 public:
  Planner(const Problem& problem, const Options& options) : problem_(problem), options_(options) {
    result_.lower_bound = LowerBound(problem);
    goal_ = std::max(options.capacity, result_.lower_bound);
  }

  Result Run() {
    Place();
    if (!IsDone() && options_.search_nodes > 0) {
      plain_ = MakePlain(problem_);
      if (plain_ && plain_->buffers.size() <= Search::kMostBuffers) LookForLower();
    }
    return std::move(result_);
  }

 private:
  bool IsDone() const { return has_solution_ && result_.solution.height <= goal_; }

  void Keep(const Solution& solution, const char* method) {
    if (has_solution_ && solution.height >= result_.solution.height) return;
    result_.solution = solution;
    result_.method = method;
    has_solution_ = true;
  }

  void Place() {
    Work work;
    for (const Heuristic& heuristic : kHeuristics) {
      std::optional<Solution> found;
      if (heuristic.order) {
        found = PlaceInOrder(problem_, Sorted(problem_, *heuristic.order), heuristic.fit, work);
      } else if (const std::optional<Problem> plain = MakePlain(problem_)) {
        found = PlaceOnSkyline(*plain, work);
        if (found) found->height = HeightOf(problem_, found->offsets);
      }
      if (found) Keep(*found, heuristic.name);
      if (IsDone()) return;
      if (&heuristic == kHeuristics.data()) work.left = kHeuristicSteps;
      if (work.left < 0) return;
    }
  }

  bool KeepGoing() const {
    return !options_.keep_going || options_.keep_going({result_.solution.height, result_.lower_bound, result_.nodes});
  }

  // The plan is lowered step by step, each time by half of the way to what was tried in vain. When nothing is between
  // them any more, what was not proved is tried again, with more patience.
  void LookForLower() {
    for (uint32_t variant = 0; variant < std::max(options_.searches, 1U); ++variant) {
      searches_.emplace_back(*plain_, variant, options_.techniques);
    }
    const bool is_quick = options_.search_nodes == Options::kQuick;
    uint64_t left = is_quick ? kQuickSteps / plain_->buffers.size() : options_.search_nodes;
    if (options_.capacity > 0) {
      Probe(goal_, left);
      return;
    }
    const Bytes unit = searches_[0].unit();  // heights of stacked buffers are its multiples
    Bytes too_low = goal_ - 1;               // proved
    uint64_t share = is_quick ? left / kQuickProbes : kSlice;
    for (Bytes missed = too_low; left > 0 && result_.solution.height - 1 > too_low;) {
      const Bytes height = result_.solution.height;
      if (height - 1 <= missed) {
        missed = too_low;
        share *= 2;
      }
      const Bytes capacity = missed + (height - missed) / 2;
      const uint64_t before = result_.nodes;
      const Outcome outcome = Probe(capacity, std::min(share, left));
      left -= std::min(left, std::max<uint64_t>(result_.nodes - before, 1));
      if (outcome != Outcome::kFits) missed = (capacity / unit + 1) * unit - 1;
      if (outcome == Outcome::kTooHigh) too_low = missed;
      if (!KeepGoing()) return;
    }
  }

  // All searches a slice each, again and again; of several that fit the first.
  Outcome Probe(Bytes capacity, uint64_t nodes) {
    while (nodes > 0) {
      const uint64_t slice = std::max<uint64_t>(std::min(nodes / searches_.size(), kSlice), 1);
      std::vector<Outcome> outcomes(searches_.size());
      std::vector<std::future<void>> others;
      for (size_t i = 1; i < searches_.size(); ++i) {
        others.push_back(std::async(std::launch::async, [&, i] { outcomes[i] = searches_[i].Fit(capacity, slice); }));
      }
      outcomes[0] = searches_[0].Fit(capacity, slice);
      for (std::future<void>& other : others) other.get();
      nodes -= std::min(nodes, slice * searches_.size());
      result_.nodes = 0;
      for (const Search& search : searches_) result_.nodes += search.nodes();
      for (size_t i = 0; i < searches_.size(); ++i) {
        if (outcomes[i] == Outcome::kTooHigh) return Outcome::kTooHigh;
        if (outcomes[i] != Outcome::kFits) continue;
        Solution found = searches_[i].solution();
        found.height = HeightOf(problem_, found.offsets);
        Keep(found, "search");
        return Outcome::kFits;
      }
      if (!KeepGoing()) break;
    }
    return Outcome::kUnknown;
  }

  const Problem& problem_;
  const Options& options_;
  Bytes goal_ = 0;
  bool has_solution_ = false;
  Result result_;
  std::optional<Problem> plain_;
  std::vector<Search> searches_;
};

}  // namespace

StatusOr<Result> Solve(const Problem& problem, const Options& options) {
  REPRISE_RETURN_IF_ERROR(ToStatus(problem, nullptr, Check(problem)));
  Result result = Planner(problem, options).Run();
  REPRISE_RETURN_IF_ERROR(ToStatus(problem, &result.solution, Check(problem, result.solution)));
  return result;
}

}  // namespace reprise::plan
