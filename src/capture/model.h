// SPDX-License-Identifier: Apache-2.0
//
// Model: what an aclmdlRI handle stands for. It is born by a capture, becomes ready when the capture ends, and is then
// executed any number of times.
//
//     capturing ──end──► ready ──destroy──► gone
//         └──a fault──► invalidated ──end──► gone
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/replay.h"
#include "ir/graph.h"
#include "runtime/context.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace reprise::capture {

class Model;
HandleTable<Model, HandleKind::kModel>& Models();
/// 107017 for a handle that is not live.
StatusOr<Model*> FindModel(const void* handle);
/// The same and 107002 / 107004 unless the model belongs to the current context.
StatusOr<Model*> FindOwnModel(const void* handle);

enum class ModelState : uint8_t { kCapturing, kInvalidated, kReady };

/// A graph-internal stream: the shadow of a captured one.
struct LaneHandle {
  Model* model;
  ir::LaneId lane;
  void* handle;
};
HandleTable<LaneHandle, HandleKind::kLane>& LaneHandles();

/// A record or a wait with the external flag: bound anew at each execution, when it is launched.
struct ExternalBinding {
  runtime::Event* event;  ///< must live as long as the model
  bool is_record;
};

/// Threads: Execute, name and id are thread-safe; the rest as the capture lock or the caller orders it.
class Model final : public runtime::ContextResident {
 public:
  static StatusOr<Model*> Create(runtime::Context& context);
  /// Frees at once; for captures that failed.
  static void Discard(Model* model);
  /// Waits up to 10 s for pending executions; 107037 when they do not end.
  static Status Destroy(Model* model);

  void* handle() const { return handle_; }
  runtime::Context& context() const { return context_; }
  uint32_t id() const { return static_cast<uint32_t>(id_); }
  std::string name() const;
  void set_name(std::string name);
  std::string Describe() const;

  ModelState state() const { return state_.load(std::memory_order_acquire); }
  void set_state(ModelState state) { state_.store(state, std::memory_order_release); }

  ir::Graph& graph() { return *graph_; }
  const ir::Graph& graph() const { return *graph_; }

  /// Adds a lane with its internal stream id and handle. 207008 when the device has no stream left.
  StatusOr<ir::LaneId> AddLane(int32_t user_stream_id, ir::NodeId forked_by);
  const std::vector<std::unique_ptr<LaneHandle>>& lanes() const { return lane_handles_; }

  /// A graph-internal event id. 207007 when the device has none left.
  StatusOr<uint32_t> TakeEventId();
  size_t event_count() const { return event_ids_.size(); }

  /// Index of the binding that the node uses at run time.
  uint32_t AddExternal(runtime::Event& event, bool is_record);
  const std::vector<ExternalBinding>& externals() const { return externals_; }

  /// The capture is over: compiles the plan.
  void Seal();

  /// Queues one execution on `stream`.
  Status Execute(runtime::Stream& stream);
  bool executing() const { return pending_.load(std::memory_order_acquire) != 0; }
  size_t memory_bytes() const;

  void ReleaseFromContext() override;

 private:
  friend struct GraphTask;
  explicit Model(runtime::Context& context) : context_(context), graph_(std::make_unique<ir::Graph>()) {}
  ~Model();
  void ExecutionEnded() noexcept;
  bool WaitIdle(const Deadline& deadline);

  runtime::Context& context_;
  void* handle_ = nullptr;
  int32_t id_ = -1;
  std::atomic<ModelState> state_{ModelState::kCapturing};
  mutable std::mutex name_mutex_;
  std::string name_;
  std::unique_ptr<ir::Graph> graph_;
  std::unique_ptr<exec::Replay> replay_;
  std::vector<std::unique_ptr<LaneHandle>> lane_handles_;
  std::vector<int32_t> event_ids_;
  std::vector<ExternalBinding> externals_;

  std::atomic<uint32_t> pending_{0};
  std::mutex idle_mutex_;
  std::condition_variable idle_;
};

}  // namespace reprise::capture
