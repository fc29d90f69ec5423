// SPDX-License-Identifier: Apache-2.0
//
// LaneChoice: whether an execution runs on several lanes at once. That pays as long as each lane has a core. Where
// other programs have the cores, lanes wait for threads that do not run, and an execution can take several times as
// long as all of its tasks one after another. Nothing tells but the clock. Results never depend on it.
#pragma once

#include <cstdint>

namespace reprise::exec {

/// Threads: one at a time; of a replay that is who begins and ends executions.
class LaneChoice {
 public:
  /// Of one lane: there is nothing to choose.
  LaneChoice() = default;
  /// Of several lanes, whose tasks take so many nanoseconds in all. What is soon over is left as it is.
  explicit LaneChoice(uint64_t serial_ns) : serial_ns_(serial_ns < kGraceNs ? 0 : serial_ns) {}

  /// What a wake-up and other accidents may add to an execution.
  static constexpr uint64_t kGraceNs = 50'000;

  bool is_open() const noexcept { return serial_ns_ != 0; }
  /// Of the next execution: one thread runs all lanes, each as far as it gets.
  bool is_serial() const noexcept { return serial_left_ != 0; }
  /// The execution has taken so long.
  void Note(uint64_t ns) noexcept;

 private:
  uint64_t serial_ns_ = 0;    ///< what one thread takes
  uint64_t least_ns_ = 0;     ///< of the serial executions since the last parallel one
  uint32_t serial_runs_ = 0;  ///< that come next when lanes are too slow
  uint32_t serial_left_ = 0;
  uint32_t slow_ = 0;  ///< parallel executions in a row that were too slow
};

}  // namespace reprise::exec
