// SPDX-License-Identifier: Apache-2.0
//
// Program: a graph whose shapes are known, ready to run: the same ir::Graph and exec::Replay as a captured one, whose
// memory is bound anew where a run brings other addresses.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/spin_lock.h"
#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"
#include "compiler/storage.h"
#include "exec/bindings.h"
#include "exec/replay.h"
#include "ir/graph.h"

namespace reprise::runtime {
class Device;
class Stream;
}  // namespace reprise::runtime

namespace reprise::compiler {

/// Counted; runs that are queued hold references.
///
/// Threads: Submit is thread-safe; runs come one after another.
class Program final : public exec::Binder {
 public:
  /// Lowers and plans. \pre all shapes are known.
  static StatusOr<Program*> Build(const Graph& graph, const CompileOptions& options);

  const MemoryNeeds& needs() const { return needs_; }
  size_t tasks() const { return graph_.tasks(); }
  /// What a result takes.
  uint64_t output_bytes(size_t index) const { return output_bytes_[index]; }
  uint64_t input_bytes(size_t index) const { return input_bytes_[index]; }
  uint32_t inputs() const { return inputs_; }
  uint32_t outputs() const { return outputs_; }
  const ir::Graph& tasks_graph() const { return graph_; }
  /// In the order of the tasks, with the node of the graph that each computes.
  std::span<ops::Launch* const> launches() const { return launches_; }
  NodeId node_of(size_t task) const { return nodes_[task]; }
  const StreamPlan& streams() const { return streams_; }
  size_t events() const { return events_; }
  /// The places of the features.
  std::vector<PlannedBlock> memory_plan(const Graph& graph) const;
  void* workspace_of(size_t task) const { return payloads_[task]->workspace; }

  /// What WriteConstants writes; nothing once it was dropped.
  const std::vector<Storage>& constants() const { return constants_; }
  /// To memory for them, of needs().constants bytes.
  static void WriteConstants(std::span<const Storage> constants, void* base);
  void DropConstants() { std::vector<Storage>().swap(constants_); }

  /// Memory that belongs to one run and is given back when it has ended.
  class Keep {
   public:
    virtual ~Keep() = default;
  };

  /// One run, from its preparation to its end; a captured one as long as the graph that captured it. It belongs to the
  /// program, which uses it again afterwards, so that runs need no memory.
  struct Run {
    Program* program = nullptr;  ///< one reference
    exec::Bindings bindings;     ///< bases by region; memory that nobody touches may be null
    std::vector<std::unique_ptr<Keep>> keeps;
    std::shared_ptr<const RunCondition> condition;  ///< see RunRequest
    bool runs_if = true;
    Run* next = nullptr;  ///< of those that wait for their next use
  };
  struct EndRun {
    void operator()(Run* run) const { run->program->Take(run); }
  };
  using RunOwner = std::unique_ptr<Run, EndRun>;

  /// A run without bases, as many as there are regions. Thread-safe.
  RunOwner NewRun();
  /// Queues a run, or has a capture record it.
  Status Submit(runtime::Stream& stream, RunOwner run);

  void Retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() const {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void Bind(const exec::Bindings& bindings, std::vector<ir::NodeId>& moved) override;

 private:
  /// An operand or a workspace that lies in a region.
  struct Place {
    uint32_t task;
    int32_t operand;  ///< of the launch, or kWorkspace
    uint64_t offset;
  };
  static constexpr int32_t kWorkspace = -1;

  Program() = default;
  void Take(Run* run) noexcept;
  void PlaceRegions(const Lowered& lowered);
  /// Notes that an operand of a task lies at an address of `lowered`. \return where it lies now
  void* PlaceOperand(const Lowered& lowered, uint64_t address, uint32_t task, int32_t operand);
  void AddTasks(Lowered& lowered);
  void AddLaunch(const Lowered& lowered, LoweredTask& task, ir::LaneId lane);
  ~Program() override;

  MemoryNeeds needs_;
  uint32_t inputs_ = 0;
  uint32_t outputs_ = 0;
  std::vector<uint64_t> input_bytes_;
  std::vector<uint64_t> output_bytes_;
  std::vector<Storage> constants_;
  std::vector<Storage> features_;  ///< with places
  ir::Graph graph_;
  std::vector<ops::Launch*> launches_;      ///< of the tasks, which hold the references
  std::vector<ops::LaunchTask*> payloads_;  ///< in the graph
  std::vector<NodeId> nodes_;
  std::vector<ir::NodeId> ids_;  ///< in the graph
  StreamPlan streams_;
  size_t events_ = 0;
  std::vector<std::vector<Place>> places_;  ///< by region
  std::vector<void*> bases_;                ///< that the tasks have now
  std::vector<uint32_t> touched_;           ///< while binding
  std::vector<bool> is_touched_;
  Mutex replay_mutex_;
  std::unique_ptr<exec::Replay> replay_
      REPRISE_GUARDED_BY(replay_mutex_);  ///< made with the first run, for the device of its stream
  device::Scheduler* scheduler_ REPRISE_GUARDED_BY(replay_mutex_) = nullptr;
  SpinLock runs_lock_;
  Run* runs_ REPRISE_GUARDED_BY(runs_lock_) = nullptr;  ///< that nobody uses
  mutable std::atomic<uint32_t> references_{1};
};

struct ReleaseProgram {
  void operator()(const Program* program) const { program->Release(); }
};
using ProgramOwner = std::unique_ptr<Program, ReleaseProgram>;

}  // namespace reprise::compiler
