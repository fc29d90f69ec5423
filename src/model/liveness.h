// SPDX-License-Identifier: Apache-2.0
//
// Liveness: whether the memory that the tasks of a graph name is still there when the graph is launched. A graph that
// outlives its memory reads garbage on a device, and would crash this one.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "ir/graph.h"

namespace reprise::model {

/// Threads: one at a time; the model's submit lock orders the checks.
/// Cost: one load as long as nothing has been freed since the last check; then O(freed ranges · log(addresses)), and
/// once O(tasks) to collect the addresses. Changes of tasks cost what the changed tasks do.
class Liveness {
 public:
  Liveness();
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// Nothing has been freed since the last check, which found all well. Any thread.
  bool IsFresh() const { return device::MemoryRegistry::Get().freed_count() == seen_.load(std::memory_order_relaxed); }
  /// 107000 naming the graph (as its owner describes it), the task, the memory and who freed it. Bodies of conditional
  /// tasks, which may not run, and kernels of task groups, which may be replaced by then, are left out.
  template <class DescribeGraph>
  Status Check(const ir::Graph& graph, DescribeGraph describe) {
    if (IsFresh() && !gone_) [[likely]]
      return {};
    return FindGone(graph) ? TellGone(graph, describe()) : Status();
  }
  /// These tasks of the graph have changed.
  void Forget(std::span<const ir::NodeId> changed);
  /// All of them may have.
  void Forget();

 private:
  /// A task and an address that it named when it was looked at.
  struct Use {
    uintptr_t address;
    ir::NodeId node;
    auto operator<=>(const Use&) const = default;
  };
  /// Sets gone_ to a range that the graph still names; whether there is one.
  bool FindGone(const ir::Graph& graph);
  Status TellGone(const ir::Graph& graph, const std::string& owner) const;
  void Forgive();
  void Collect(const ir::Graph& graph);
  void CollectChanged(const ir::Graph& graph);
  static void Add(std::vector<Use>& uses, const ir::Graph& graph, ir::NodeId node);
  static void Sort(std::vector<Use>& uses);
  static bool Names(const std::vector<Use>& uses, const ir::Graph& graph, const device::FreedRange& range);
  bool Names(const ir::Graph& graph, const device::FreedRange& range) const {
    return Names(uses_, graph, range) || Names(changed_uses_, graph, range);
  }

  std::atomic<uint64_t> seen_;  ///< freed ranges that were looked at
  bool collected_ = false;
  std::vector<Use> uses_;            ///< sorted; tasks that have changed since are there with what they named before
  std::vector<Use> changed_uses_;    ///< the same, of tasks that have changed since the first were collected
  std::vector<ir::NodeId> changed_;  ///< tasks whose new addresses are in neither
  std::optional<device::FreedRange> gone_;
};

}  // namespace reprise::model
