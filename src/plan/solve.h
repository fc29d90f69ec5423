// SPDX-License-Identifier: Apache-2.0
//
// The planner: offsets for the buffers of a problem, as low as the effort allows.
//
// It tries the heuristics of place.h, keeps the best, and lets search.h look for lower plans. Greedy placement by size
// is always among them, so no result is higher than that. What comes out depends on problem and options alone, not on
// the machine's speed or its number of threads, unless `keep_going` ends the search.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "plan/problem.h"
#include "plan/search.h"

namespace reprise::plan {

struct Progress {
  Bytes height;       ///< of the best plan so far
  Bytes lower_bound;  ///< no plan is lower
  uint64_t nodes;     ///< that the search has placed
};

struct Options {
  /// A plan of this height will do; the search ends with the first one. 0: as low as possible.
  Bytes capacity = 0;
  /// Buffers that the search may place, over all threads; 0: heuristics alone. kQuick: some milliseconds' worth,
  /// fewer the larger the problem is.
  uint64_t search_nodes = kQuick;
  /// Searches beside each other, each with orders of its own. Part of the problem: two find other plans than one.
  uint32_t searches = 1;
  SearchTechniques techniques;
  /// Asked now and then; false ends the search with what it has. May be empty.
  std::function<bool(const Progress&)> keep_going;

  static constexpr uint64_t kQuick = ~uint64_t{0};
};

struct Result {
  Solution solution;
  Bytes lower_bound = 0;
  /// What has found it: "greedy by size, best fit", "search", …
  const char* method = "";
  uint64_t nodes = 0;
};

/// Every result has passed Check. Refuses problems that Check refuses (100000). Searches beside each other run on
/// threads of their own, which end before it returns.
StatusOr<Result> Solve(const Problem& problem, const Options& options = {});

}  // namespace reprise::plan
