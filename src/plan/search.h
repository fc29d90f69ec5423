// SPDX-License-Identifier: Apache-2.0
//
// Search: whether a problem fits into so many bytes, by trying plans in which each buffer rests on another one or on
// the floor.
//
// Buffers are placed from below: offsets never decrease on the way down the tree, so that each plan is met in one order
// of offsets alone. A branch is given up when a section (sections.h) can no longer hold what is left of it above the
// lowest place that is open there; a buffer is not placed so high that another one would have fitted below it; what
// falls apart into groups that share no moment is solved group by group; states of a group that have failed are
// remembered by their hash, however they were reached.
//
// Which buffer is tried first decides how long a search takes, by orders of magnitude. So it is begun anew again and
// again, with little patience each time, and buffers of the sections in which branches were given up come first the
// next time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "plan/problem.h"

namespace reprise::plan {

/// Techniques, each of which may be switched off; what is found is right without them, too, only later.
struct SearchTechniques {
  bool bounds = true;     ///< sections that cannot hold what is left
  bool dominance = true;  ///< no buffer above a place in which another one fits
  bool groups = true;     ///< independent groups one by one
  bool memory = true;     ///< states that have failed
  bool learning = true;   ///< buffers of sections that fail come first

  bool operator==(const SearchTechniques&) const = default;
};

enum class Outcome {
  kFits,     ///< there is a plan
  kTooHigh,  ///< there is none, which is proved
  kUnknown,  ///< the nodes did not suffice
};

/// One problem, asked for several capacities; it learns from each. Deterministic: the same calls, the same answers.
/// Threads: one.
class Search {
 public:
  /// The problem must be plain (place.h) and have kMostBuffers at most. `variant` chooses between orders to begin with:
  /// searches of several variants find different plans, which is for several threads.
  explicit Search(const Problem& problem, uint32_t variant = 0, const SearchTechniques& techniques = {});
  ~Search();
  Search(Search&&) noexcept;

  /// Places at most `nodes` buffers on the way, in starts of `patience` each, after many starts of more.
  Outcome Fit(Bytes capacity, uint64_t nodes, uint64_t patience = kPatience);

  /// Of the last call that answered kFits.
  const Solution& solution() const;
  /// The greatest common divisor of the sizes, in bytes: heights of plans are its multiples.
  Bytes unit() const;
  /// Buffers that were placed so far, in all calls.
  uint64_t nodes() const;

  static constexpr uint32_t kMostBuffers = 2048;
  static constexpr uint64_t kPatience = 500;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::plan
