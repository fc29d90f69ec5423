// SPDX-License-Identifier: Apache-2.0
//
// How work is cut for threads that help each other (Scheduler::ParallelFor). Results never depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace reprise::device {

/// Parts for each thread that are enough: whoever is held up leaves the rest of his to the others.
inline constexpr int64_t kMostTurns = 16;

/// Units that one thread takes at a time: at least `grain`, the fewest that are worth a thread, and such that `threads`
/// threads of equal speed end together: the parts are of one size, and as many for each thread where there is a grain
/// for each, up to kMostTurns, so that a thread walks through memory in long runs. All of the units where there are
/// fewer than two grains.
constexpr int64_t EvenGrain(int64_t units, int64_t grain, int64_t threads) {
  const int64_t worth = units / std::max<int64_t>(grain, 1);
  const int64_t parts = worth > threads ? std::min(worth / threads, kMostTurns) * threads : worth;
  return parts < 2 || threads < 2 ? std::max<int64_t>(units, 1) : (units + parts - 1) / parts;
}

}  // namespace reprise::device
