// SPDX-License-Identifier: Apache-2.0
//
// Model: what an aclmdlRI handle stands for: a graph that was captured, the body of a conditional task (a sub model),
// or one that was built from persistent streams. Once ready it is executed any number of times.
//
//     none ──begin──► capturing ──end──► ready ◄──update── updating
//                         │                │  └──set, disable──► ▲
//                         ▼                ▼ a refused change
//                    invalidated ─end─►   fault        (both end in destruction only)
//
// A captured model is born capturing; sub and built models begin in state none.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/replay.h"
#include "ir/graph.h"
#include "ir/series.h"
#include "model/kept_operands.h"
#include "model/liveness.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace reprise::model {

class Model;

/// What records tasks into a model now: a capture. Implemented by the layer above.
class Recorder {
 public:
  /// Ends without a result: the streams that take part leave it. With the context's capture_mutex held.
  virtual void Abandon() = 0;

 protected:
  ~Recorder() = default;
};

HandleTable<Model, HandleKind::kModel>& Models();
/// 107017 for a handle that is not live.
StatusOr<Model*> FindModel(const void* handle);
/// As FindModel; 107002 or 107004 unless the model belongs to the current context.
StatusOr<Model*> FindOwnModel(const void* handle);
/// 107002 or 107004 unless the model belongs to the current context.
Status CheckOwn(const Model& model);

/// The live model with this serial number, or null; see Model::serial.
Model* FindSerial(uint32_t serial);

enum class ModelKind : uint8_t { kCaptured, kSub, kBuilt };
enum class ModelState : uint8_t { kNone, kCapturing, kInvalidated, kReady, kUpdating, kFault };
const char* StateName(ModelState state);

/// Kernels of a captured graph that are replaced together; see group.h. Shared with an update that is open when the
/// model is destroyed.
struct TaskGroup : std::enable_shared_from_this<TaskGroup> {
  TaskGroup() = default;
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup() {
    for (ir::TaskSlot* slot : slots) slot->Release();
  }

  std::vector<ir::TaskSlot*> slots;                ///< in submission order; one reference each
  std::atomic<runtime::Stream*> updater{nullptr};  ///< stream that updates the group now
  void* handle = nullptr;
};
HandleTable<TaskGroup, HandleKind::kTaskGroup>& TaskGroups();

/// Value that decides what a conditional task runs; see condition.h.
struct Condition {
  Model* model;
  uint64_t* cell;  ///< device memory
  uint64_t default_value;
  bool assign_default;  ///< at the start of each execution
  bool used = false;
  void* handle = nullptr;
};
HandleTable<Condition, HandleKind::kCondition>& Conditions();

/// A stream bound to a built model.
struct BoundStream {
  runtime::Stream* stream;
  bool is_head;
};

/// A graph-internal stream: the shadow of a captured one.
struct LaneHandle {
  Model* model;
  ir::LaneId lane;
  int32_t stream_id;
  void* handle;
};
HandleTable<LaneHandle, HandleKind::kLane>& LaneHandles();

/// A record or a wait with the external flag: bound anew at each execution, when it is launched.
struct ExternalBinding {
  void* event;  ///< handle; the event must live as long as the model
  bool is_record;
};

/// A series that tasks of the graph take numbers from, and how many tasks do: each execution takes as many. Of a body
/// also those that only conditional tasks in it use, with 0.
struct SeriesUse {
  ir::Series* series;
  uint64_t count;
  uint64_t hash;  ///< of all that is done with it
};

/// What a model holds on to, its bodies included.
struct Bill {
  size_t tasks = 0;    ///< resets that sealing adds included
  size_t streams = 0;  ///< graph-internal
  size_t events = 0;   ///< graph-internal
  size_t bytes = 0;    ///< host memory of nodes, arguments and plan
};

/// Threads: Execute, name and id are thread-safe; the rest as the capture lock or the caller orders it.
class Model final : public runtime::ContextResident {
 public:
  static StatusOr<Model*> Create(runtime::Context& context, ModelKind kind, Model* parent = nullptr);
  /// Frees without waiting for executions; for captures that failed. `is_known` false: nobody has got the handle, and
  /// the caller may hold locks.
  static void Discard(Model* model, bool is_known = true);
  /// Waits up to 10 s for pending executions; 107037 when they do not end. 107017 when another thread destroys it.
  static Status Destroy(Model* model);

  void* handle() const { return handle_; }
  ModelKind kind() const { return kind_; }
  bool is_sub() const { return kind_ == ModelKind::kSub; }
  Model* parent() const { return parent_; }
  runtime::Context& context() const { return context_; }
  uint32_t id() const { return static_cast<uint32_t>(id_); }
  /// Part of the handles of the model's tasks: 24 bits that no other model gets before 2^24 models have come.
  uint32_t serial() const { return serial_; }
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

  /// Index of the binding that the node uses at run time.
  uint32_t AddExternal(runtime::Event& event, bool is_record);
  const std::vector<ExternalBinding>& externals() const { return externals_; }

  const std::vector<SeriesUse>& series() const { return series_; }

  /// An empty group, owned by the model.
  StatusOr<TaskGroup*> AddGroup();
  /// The group that the node belongs to, or null.
  TaskGroup* GroupOf(const ir::Node& node) const;

  StatusOr<Condition*> AddCondition(uint64_t default_value, bool assign_default);
  const std::vector<std::unique_ptr<Condition>>& conditions() const { return conditions_; }

  /// Device memory that goes with the model.
  StatusOr<void*> TakeMemory(uint64_t bytes);
  bool owns_memory(const void* block) const {
    return std::find(memory_.begin(), memory_.end(), block) != memory_.end();
  }
  const std::vector<Model*>& bodies() const { return bodies_; }
  /// Forgets the newest bodies until `keep` are left: their conditional task could not be added.
  void DropBodies(size_t keep);
  /// How many models can still be made.
  static int64_t Available();

  std::vector<BoundStream>& bound() { return bound_; }
  const std::vector<BoundStream>& bound() const { return bound_; }
  /// Built models: the program has an end task.
  bool has_end = false;

  /// Of a body: 207000 when conditional tasks in it would take numbers in an order that is open.
  Status CheckBodySeries() const;
  /// The capture is over: compiles the plan. Throws std::bad_alloc.
  void Seal();
  /// Tasks have changed, and nothing is executing: brings the plan up to date, at a cost of O(changed tasks) wherever
  /// that can be done. Throws std::bad_alloc.
  void SealChanges();
  /// A built model is complete: compiles the plan.
  Status SealProgram();
  exec::Replay* replay() const { return replay_.get(); }

  /// Called once each by Destroy, after everything is freed.
  struct DestroyCallback {
    void (*function)(void*);
    void* argument;
  };
  std::vector<DestroyCallback> destroy_callbacks;

  /// Queues one execution on `stream`.
  Status Execute(runtime::Stream& stream);
  /// Runs a built model on an internal stream and waits. 507046 on timeout.
  Status ExecuteAndWait(int64_t timeout_ms);
  bool executing() const { return pending() != 0; }
  /// How many executions were launched, modulo 2^32; 0 for bodies of conditional tasks.
  uint32_t executions() const { return launched_.load(std::memory_order_relaxed); }
  Bill TakeBill() const;

  /// The capture into this model that is open; guarded by the context's capture_mutex.
  Recorder* recorder = nullptr;
  /// Ends the captures into this model and into its bodies without a result. Takes the context's capture_mutex unless
  /// `locked`.
  void AbortRecording(bool locked);

  void ReleaseFromContext() override;

 private:
  friend struct GraphTask;
  Model(runtime::Context& context, ModelKind kind, Model* parent);
  /// Nobody finds the model, and what belongs to it, any more; the moment of birth for Retire.
  uint64_t Withdraw();
  /// Behind Withdraw and AwaitCalls: gives back what it holds and retires the model, which calls may still know. While
  /// `calls_inside` that is all they may touch: then streams and memory go, and the rest when these calls have ended.
  void LetGo(uint64_t birth, bool soon, bool calls_inside = false);
  /// Streams, and device memory as far as `users` allow.
  void LetGoOfOthers(device::Users users);
  /// The graph and the numbers; memory is left.
  void Drop();
  static void Free(void* model) { delete static_cast<Model*>(model); }
  /// Counts how the graph was laid out, and tells it with REPRISE_VERBOSE=plan.
  void TellPlan(const exec::FusionLog& log) const;
  /// 507011 when a series takes no more numbers.
  Status CheckSeries() const;
  /// Gives the tasks that take numbers their places in each series, in the order of submission.
  void CollectSeries();
  void CollectResets(std::vector<exec::Replay::CellReset>& resets) const;
  ~Model();
  Status ExecuteChecked(runtime::Stream& stream);
  /// What one execution uses: a record for each external record or wait, and room for numbers. `order` takes the
  /// events' locks of order. The caller owns the result.
  StatusOr<exec::Bindings*> Bind(std::vector<std::unique_lock<std::mutex>>& order);
  void ExecutionEnded() noexcept;
  // In this order: when both are equal, they were so when the second was read.
  uint32_t pending() const {
    const uint32_t ended = ended_.load(std::memory_order_seq_cst);
    return launched_.load(std::memory_order_seq_cst) - ended;
  }
  bool WaitIdle(const Deadline& deadline);
  /// Whether this thread runs a host function of an execution of the model.
  bool RunsMe() const;

  runtime::Context& context_;
  runtime::Device& device_;
  const ModelKind kind_;
  Model* const parent_;
  void* handle_ = nullptr;
  int32_t id_ = -1;
  const uint32_t serial_;
  runtime::Holdings::Holder* holder_ = nullptr;
  std::atomic<ModelState> state_{ModelState::kNone};
  mutable std::mutex name_mutex_;
  std::string name_;
  std::unique_ptr<ir::Graph> graph_;
  std::unique_ptr<KeptOperands> kept_;  // outlives the replay
  std::unique_ptr<exec::Replay> replay_;
  std::vector<std::unique_ptr<LaneHandle>> lane_handles_;
  std::vector<int32_t> event_ids_;
  std::vector<ExternalBinding> externals_;
  std::vector<std::shared_ptr<TaskGroup>> groups_;
  std::vector<void*> memory_;
  std::vector<std::unique_ptr<Condition>> conditions_;
  std::vector<Model*> bodies_;  // owned
  std::vector<BoundStream> bound_;
  runtime::Stream* own_stream_ = nullptr;  // of ExecuteAndWait

  std::mutex submit_mutex_;  // rank: above stream locks
  Liveness liveness_;        // guarded by submit_mutex_, but for IsFresh
  // Executions, counted by those who launch and by those who run them: two lines, which each side has to itself.
  alignas(64) std::atomic<uint32_t> launched_{0};
  alignas(64) std::atomic<uint32_t> ended_{0};

  std::vector<SeriesUse> series_;
};

/// What those who look at tasks know an execution by that begins now.
exec::Replay::Watched WatchedAs(const Model& model);

}  // namespace reprise::model
