// SPDX-License-Identifier: Apache-2.0
//
// What work costs, and how much of it is worth another thread: the one place that all loops ask which threads share
// (Scheduler::ParallelFor), whatever they do, and the plans of graphs. Results never depend on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace reprise::device {

/// What one item of a loop does.
struct Work {
  int64_t elements = 0;       ///< of light work: an addition with its operands; heavier ones count as several
  int64_t multiply_adds = 0;  ///< of float32, many to an operand
  int64_t bytes = 0;          ///< that multiply-adds fetch, from wherever
};

/// How long that takes on one core, and what it costs to bring others in.
struct Costs {
  int64_t element_ps = 64;
  int64_t multiply_add_ps = 8;
  int64_t byte_ps = 16;       ///< less where it is in a cache, more where it is not, which nobody knows here
  int64_t handoff_ns = 150;   ///< from the end of a task to the start of one on another core that waits for it
  int64_t thread_ns = 2'000;  ///< of work that is worth a thread which is awake
  int64_t wake_ns = 16'000;   ///< of work that is worth the system call that wakes a thread

  bool operator==(const Costs&) const = default;
};

/// Of this process: `REPRISE_COSTS`, else as above with the time of a hand-off as it is found here at the first call,
/// which takes a millisecond or two at most. Threads: thread-safe.
const Costs& TheCosts() noexcept;

/// From "default" or a list such as "handoff=300,byte=8" of the names above without their units; what is not named is
/// as above, a thread in proportion to a hand-off. False for anything else, and for numbers below 1.
bool ParseCosts(std::string_view text, Costs& costs) noexcept;

/// How long a hand-off takes, by times there and back: half of the least; 0, not known, where they are too few for one
/// of them to have been undisturbed.
int64_t HandoffOf(std::span<const int64_t> rounds_ns) noexcept;

/// With a hand-off that took so long. In powers of two, and never less than above: noise changes nothing.
Costs WithHandoff(Costs costs, int64_t measured_ns) noexcept;

/// Multiply-adds wait for what they fetch, or the other way round.
constexpr int64_t PicosecondsOf(const Work& work, const Costs& costs) {
  const auto times = [](int64_t count, int64_t each) {
    int64_t product = 0;
    return __builtin_mul_overflow(count, each, &product) ? INT64_MAX / 4 : std::min(product, INT64_MAX / 4);
  };
  return times(work.elements, costs.element_ps) +
         std::max(times(work.multiply_adds, costs.multiply_add_ps), times(work.bytes, costs.byte_ps));
}

/// Fewest items that are worth a thread; at least 1.
constexpr int64_t GrainOf(const Work& item, const Costs& costs) {
  return std::max<int64_t>(1, 1000 * costs.thread_ns / std::max<int64_t>(1, PicosecondsOf(item, costs)));
}
inline int64_t GrainOf(const Work& item) { return GrainOf(item, TheCosts()); }

}  // namespace reprise::device
