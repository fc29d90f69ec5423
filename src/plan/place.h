// SPDX-License-Identifier: Apache-2.0
//
// Heuristics: each places the buffers one after the other and never takes one back.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "plan/problem.h"

namespace reprise::plan {

/// Which buffer comes first; buffers that are alike keep their order.
enum class Order {
  kSize,      ///< the largest
  kLifetime,  ///< the one that lives longest, of these the largest
  kArea,      ///< the greatest product of both
  kBegin,     ///< the one that begins first, of these the largest
};

/// Which gap between its neighbours a buffer takes.
enum class Fit {
  kLowest,
  kBest,  ///< the smallest that is large enough; the lowest of these
};

/// Steps that a heuristic may still take; the unit is one look at one neighbour. Deterministic, unlike a clock.
struct Work {
  int64_t left = std::numeric_limits<int64_t>::max();

  bool Take(int64_t steps) { return (left -= steps) >= 0; }
};

std::vector<BufferId> Sorted(const Problem& problem, Order order);

/// Buffers with given offsets come first. Empty when `work` does not suffice. Any good problem.
std::optional<Solution> PlaceInOrder(const Problem& problem, std::span<const BufferId> order, Fit fit, Work& work);

/// Fills the lowest stretch of time at which the plan has grown least with the buffer that lives longest among those
/// that fit in; where none does, the stretch is given up to its lower edge. Only problems without `apart` and given
/// offsets, whose alignments divide all sizes (`IsPlain`).
std::optional<Solution> PlaceOnSkyline(const Problem& problem, Work& work);

/// Whether lifetimes alone say who may share bytes, and stacking buffers keeps their alignments.
bool IsPlain(const Problem& problem);

}  // namespace reprise::plan
