// SPDX-License-Identifier: Apache-2.0
//
// Checks of problems and solutions, by no code that the planner uses.
#pragma once

#include "base/status.h"
#include "plan/problem.h"

namespace reprise::plan {

enum class Fault {
  kNone,
  kCount,      ///< not one offset, or not one name, for each buffer
  kLifetime,   ///< a buffer that ends before, or when, it begins
  kSize,       ///< a size below 0, or sizes that add up to more than kMostBytes
  kAlignment,  ///< not a power of two, or an offset that is no multiple of it
  kPair,       ///< a pair of one buffer with itself, or of a buffer that does not exist
  kNegative,   ///< an offset below 0
  kMoved,      ///< another offset than the one that is given
  kOverlap,    ///< two buffers that share bytes, and may not
  kHeight,     ///< a height that is not that of the offsets
};

struct Verdict {
  Fault fault = Fault::kNone;
  BufferId buffer = 0;  ///< the culprit
  BufferId other = 0;   ///< of kOverlap and kPair

  bool ok() const { return fault == Fault::kNone; }
};

/// Whether the planner may be asked. Two buffers whose given offsets collide are kOverlap.
Verdict Check(const Problem& problem);

/// Whether the solution is one; the problem must be good. O(n log n) beside the pairs that the problem lists.
Verdict Check(const Problem& problem, const Solution& solution);

/// The verdict as an error that names buffers, bytes and times; ok where it is.
Status ToStatus(const Problem& problem, const Solution* solution, const Verdict& verdict);

}  // namespace reprise::plan
