// SPDX-License-Identifier: Apache-2.0
//
// Liveness: whether the memory that the tasks of a graph name is still there when the graph is launched. A graph that
// outlives its memory reads garbage on a device, and would crash this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "ir/graph.h"

namespace reprise::capture {

class Model;

/// Threads: one at a time; the model's submit lock orders the checks.
/// Cost: one load as long as nothing has been freed since the last check; then O(freed ranges · log(addresses)), and
/// once O(tasks) to collect the addresses.
class Liveness {
 public:
  Liveness();
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// Nothing has been freed since the last check, which found all well. Any thread.
  bool IsFresh() const {
    return device::MemoryRegistry::Get().freed_count() == seen_.load(std::memory_order_relaxed);
  }
  /// 107000 naming the task, the memory and who freed it. Bodies of conditional tasks, which may not run, and kernels
  /// of task groups, which may be replaced by then, are left out.
  Status Check(const Model& model);
  /// The graph's tasks have changed.
  void Forget();

 private:
  void Collect(const ir::Graph& graph);
  bool Names(const device::FreedRange& range) const;

  std::atomic<uint64_t> seen_;  ///< freed ranges that were looked at
  bool collected_ = false;
  std::vector<uintptr_t> addresses_;  ///< sorted
  std::optional<device::FreedRange> gone_;
};

}  // namespace reprise::capture
