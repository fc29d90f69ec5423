// SPDX-License-Identifier: Apache-2.0
//
// TaskWatch: is called right before and right after each run of a task, on the thread that runs it. There is one watch
// at most, for data dumps. While one is set, streams and lanes of graphs run their tasks one by one, as for a timeline;
// without one the only cost is Timeline::observed().
#pragma once

#include <cstdint>
#include <string>

#include "device/scheduler.h"
#include "ir/task.h"

namespace reprise::device {

/// Threads: every function may be called by several threads at once, and also when another watch was set meanwhile.
class TaskWatch {
 public:
  /// The watch that is set; null when there is none.
  static TaskWatch* Current() noexcept;
  /// Null ends the watch. The object lives for ever.
  static void Set(TaskWatch* watch) noexcept;

  /// Number of tasks that belong to no graph.
  static constexpr uint32_t kNoGraph = UINT32_MAX;

  /// A graph is about to run once. Returns the number that Begin gets with its tasks; 0: the watch does not want them.
  /// Tasks of executions that began before the watch was set have 0, too.
  virtual uint32_t BeginGraph(uint32_t model_id, const std::string& name) noexcept = 0;
  /// The task is about to run. Returns the argument of the End or Drop that follows; null: the watch does not want the
  /// task.
  virtual void* Begin(const RunContext& context, const ir::TaskType& type, const void* payload,
                      uint32_t graph) noexcept = 0;
  virtual void End(void* run, bool failed) noexcept = 0;
  /// The task did not run to its end: Begin comes again.
  virtual void Drop(void* run) noexcept = 0;

 protected:
  ~TaskWatch() = default;
};

/// One run of a task. `kOn` false: nothing.
template <bool kOn>
class WatchedRun {
 public:
  WatchedRun(const RunContext& context, const ir::TaskType& type, const void* payload, uint32_t graph) noexcept
      : watch_(TaskWatch::Current()) {
    if (watch_ != nullptr) [[unlikely]]
      run_ = watch_->Begin(context, type, payload, graph);
  }
  ~WatchedRun() {
    if (run_ != nullptr) [[unlikely]]
      watch_->Drop(run_);
  }
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

  void End(bool failed) noexcept {
    if (run_ == nullptr) [[likely]]
      return;
    watch_->End(run_, failed);
    run_ = nullptr;
  }

 private:
  TaskWatch* const watch_;
  void* run_ = nullptr;
};

template <>
class WatchedRun<false> {
 public:
  WatchedRun(const RunContext&, const ir::TaskType&, const void*, uint32_t) noexcept {}
  void End(bool) noexcept {}
};

}  // namespace reprise::device
