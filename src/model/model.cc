// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <functional>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>

#include "base/env.h"
#include "base/fault.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/verbose.h"
#include "device/inquiry.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "device/task_watch.h"
#include "exec/bindings.h"
#include "exec/program_plan.h"
#include "ir/task_info.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/submission.h"
#include "runtime/task_store.h"
#include "runtime/thread.h"

namespace reprise::model {
namespace {

using runtime::Context;
using runtime::EventRecord;
using runtime::Stream;

constexpr auto kDestroyPatience = std::chrono::seconds(10);

runtime::IdPool& ModelIds() {
  static auto* const ids = new runtime::IdPool(1 << 20);
  return *ids;
}

struct Serials {
  std::shared_mutex mutex;
  std::unordered_map<uint32_t, Model*> models;
  uint32_t last = 0;
  std::atomic<uint64_t> changes{0};  // of the table

  uint32_t Take(Model* model) {
    std::lock_guard lock(mutex);
    do {
      last = (last + 1) & 0xFFFFFF;
    } while (!models.emplace(last, model).second);
    changes.fetch_add(1, std::memory_order_release);
    return last;
  }
  void Return(uint32_t serial) {
    std::lock_guard lock(mutex);
    models.erase(serial);
    changes.fetch_add(1, std::memory_order_release);
  }
};

Serials& TheSerials() {
  static auto* const serials = new Serials;
  return *serials;
}

}  // namespace

constexpr uint64_t kNoTicket = UINT64_MAX;

// One execution as a task of the stream it was launched on.
struct GraphTask {
  Model* model;
  exec::Replay* replay;
  exec::Replay::Progress progress;
  exec::Bindings* bindings;  // owned; null when the graph has no external events
  bool finished = false;

  // The place in the order of executions is taken together with the one in the stream: an execution must not queue in
  // front of one with an earlier place, which would then never get its turn.
  static void TakeTicket(void* payload) {
    auto* task = static_cast<GraphTask*>(payload);
    task->progress.ticket = task->replay->Submit();
    if (task->bindings != nullptr) [[unlikely]]
      task->TakeNumbers();
  }

  void TakeNumbers() {
    const auto& series = model->series();
    for (size_t i = 0; i < series.size(); ++i) bindings->series[i] = series[i].series->Take(series[i].count);
  }

  static ir::RunResult Run(device::RunContext& context, void* payload) {
    auto* task = static_cast<GraphTask*>(payload);
    task->progress.bindings = task->bindings;
    if (device::Timeline::observed()) [[unlikely]] {
      if (task->progress.phase == exec::Replay::Progress::kQueued) {
        task->progress.watched = WatchedAs(*task->model);
      }
    }
    const ir::RunResult result = task->replay->Run(context, task->progress);
    task->finished = result == ir::RunResult::kDone;
    if (task->finished && context.failed() && !task->model->series().empty()) [[unlikely]]
      task->SkipNumbers("an execution of it has failed");
    if (task->finished && device::ParkedMemory::IsWatched()) [[unlikely]]
      task->TellFreedUses(context);
    return result;
  }

  // Tasks of this execution that take numbers may not have run.
  void SkipNumbers(std::string_view why) const noexcept {
    for (const SeriesUse& use : model->series()) use.series->Skipped(why);
  }

  // Memory that the graph names may have been freed while it was queued or ran.
  [[gnu::noinline]] void TellFreedUses(const device::RunContext& context) const {
    for (const ir::Node& node : model->graph().nodes()) {
      if (node.disabled || node.type == &ir::kSlotTask) continue;
      const ir::TaskInfo info = ir::Describe(node);
      std::vector<uintptr_t> addresses(info.args.begin(), info.args.end());
      for (const ir::AccessRange& range : info.ranges) addresses.push_back(reinterpret_cast<uintptr_t>(range.begin));
      if (addresses.empty()) continue;
      device::ParkedMemory::Get().NoteUse(addresses, fmt::format("task {} of stream {}: {} in {}", context.task_id,
                                                                 context.stream_id, info.name, model->Describe()));
    }
  }

  static void Cancel(void* payload, device::Runnable* runnable) noexcept {
    auto* task = static_cast<GraphTask*>(payload);
    const bool was_running = task->progress.phase != exec::Replay::Progress::kQueued;
    task->replay->Abandon(task->progress, runnable);
    task->finished = was_running;
    if (was_running) task->SkipNumbers("an execution of it was aborted");
  }

  static void Destroy(void* payload) noexcept {
    auto* task = static_cast<GraphTask*>(payload);
    if (!task->finished && task->progress.ticket != kNoTicket) {
      task->replay->Cancel(task->progress.ticket);
      task->SkipNumbers("an execution of it was dropped");
    }
    if (task->bindings != nullptr) task->Unbind();
    task->model->ExecutionEnded();
  }

  void Unbind() noexcept {
    const auto& externals = model->externals();
    for (size_t i = 0; i < externals.size(); ++i) {
      EventRecord* const record = bindings->events[i];
      if (record == nullptr) continue;
      // A record that never ran (dropped, or skipped after a failure) must not hold up its waiters.
      if (externals[i].is_record && !record->done()) record->Complete(0);
      record->Release();
    }
    delete bindings;
  }

  static void Describe(const void* payload, ir::TaskInfo& info) {
    info.name = static_cast<const GraphTask*>(payload)->model->Describe();
  }
};

namespace {
constexpr ir::TaskType kGraphTask = {.kind = ir::TaskKind::kGraph,
                                     .name = "MODEL_EXECUTE",
                                     .run = GraphTask::Run,
                                     .destroy = GraphTask::Destroy,
                                     .cancel = GraphTask::Cancel,
                                     .describe = GraphTask::Describe,
                                     .operands = ir::OpaqueOperands};
}  // namespace

HandleTable<Model, HandleKind::kModel>& Models() {
  static constinit NoDestroy<HandleTable<Model, HandleKind::kModel>> table;
  return table.value;
}

HandleTable<LaneHandle, HandleKind::kLane>& LaneHandles() {
  static constinit NoDestroy<HandleTable<LaneHandle, HandleKind::kLane>> table;
  return table.value;
}

HandleTable<TaskGroup, HandleKind::kTaskGroup>& TaskGroups() {
  static constinit NoDestroy<HandleTable<TaskGroup, HandleKind::kTaskGroup>> table;
  return table.value;
}

HandleTable<Condition, HandleKind::kCondition>& Conditions() {
  static constinit NoDestroy<HandleTable<Condition, HandleKind::kCondition>> table;
  return table.value;
}

const char* StateName(ModelState state) {
  switch (state) {
    case ModelState::kNone: return "not captured or built yet";
    case ModelState::kCapturing: return "being captured";
    case ModelState::kInvalidated: return "being captured, and invalidated";
    case ModelState::kReady: return "ready";
    case ModelState::kUpdating: return "changed, waiting for aclmdlRIUpdate";
    case ModelState::kFault: return "faulty after a refused change";
  }
  return "unknown";
}

Model* FindSerial(uint32_t serial) {
  Serials& serials = TheSerials();
  // Programs ask for many tasks of one model in a row.
  struct Last {
    uint64_t changes = UINT64_MAX;
    uint32_t serial = 0;
    Model* model = nullptr;
  };
  static constinit thread_local Last last __attribute__((tls_model("initial-exec")));
  const uint64_t changes = serials.changes.load(std::memory_order_acquire);
  if (last.changes == changes && last.serial == serial) return last.model;
  std::shared_lock lock(serials.mutex);
  const auto it = serials.models.find(serial);
  // With the number from before the look: a change in between makes it stale.
  last = {changes, serial, it != serials.models.end() ? it->second : nullptr};
  return last.model;
}

StatusOr<Model*> FindModel(const void* handle) { return runtime::FindObject(Models(), handle, "model"); }

Status CheckOwn(const Model& model) {
  if (&model.context() == runtime::LiveContext()) [[likely]]
    return {};
  REPRISE_ASSIGN_OR_RETURN(const Context* context, runtime::CurrentContext());
  if (context == &model.context()) return {};  // of the default device, just now
  return Error(kModelContext, fmt::format("{} belongs to another context than the current one", model.Describe()))
      .Culprit(fmt::format("the model was captured in context {} of device {}; current is context {} of device {}",
                           model.context().handle(), model.context().device().id(), context->handle(),
                           context->device().id()))
      .Hint("make the model's context current with aclrtSetCurrentContext");
}

StatusOr<Model*> FindOwnModel(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(Model * model, FindModel(handle));
  REPRISE_RETURN_IF_ERROR(CheckOwn(*model));
  return model;
}

StatusOr<Model*> Model::Create(Context& context, ModelKind kind, Model* parent) {
  const int32_t id = FaultPoint("model") ? -1 : ModelIds().Take();
  if (id < 0) return Error(kResourceExhausted, "no model is left").Hint("destroy models that are no longer needed");
  auto* model = new Model(context, kind, parent);
  model->id_ = id;
  model->holder_ = context.device().holdings().Enter(model->Describe());
  model->handle_ = Models().Insert(model);
  if (model->handle_ == nullptr) {
    model->LetGo(model->Withdraw(), false);
    return Error(kResourceExhausted, "the process has too many models")
        .Hint("destroy models that are no longer needed with aclmdlRIDestroy");
  }
  if (parent != nullptr) {
    parent->bodies_.push_back(model);
  } else {
    if (!context.AddResident(model)) {
      model->LetGo(model->Withdraw(), false);
      return Error(kNoContext, "the context is being destroyed by another thread")
          .Hint("let no other thread destroy or reset what this one works with");
    }
  }
  return model;
}

Model::Model(Context& context, ModelKind kind, Model* parent)
    : context_(context),
      device_(context.device()),
      kind_(kind),
      parent_(parent),
      serial_(TheSerials().Take(this)),
      graph_(std::make_unique<ir::Graph>()) {}

Model::~Model() {
  for (Model* body : bodies_) delete body;
}

uint64_t Model::Withdraw() {
  TheSerials().Return(serial_);
  for (Model* body : bodies_) body->Withdraw();
  for (const auto& group : groups_) TaskGroups().Erase(group->handle);
  for (const auto& condition : conditions_) Conditions().Erase(condition->handle);
  for (const auto& lane : lane_handles_) LaneHandles().Erase(lane->handle);
  uint64_t birth = 0;
  Models().EraseHidden(handle_, &birth);
  return birth;
}

void Model::LetGo(uint64_t birth, bool soon, bool calls_inside) {
  if (!calls_inside) {
    Drop();
    LetGoOfOthers(device::Users::kStreams);
    Retire(this, Free, birth, soon);
    return;
  }
  AbortRecording(false);  // what they have begun in a body
  LetGoOfOthers(device::Users::kCalls);
  Retire(
      this,
      [](void* retired) {
        auto* const model = static_cast<Model*>(retired);
        if (model->pending() != 0) return;  // one of them has executed it once more: it stays
        model->Drop();
        delete model;
      },
      birth, true);
}

void Model::LetGoOfOthers(device::Users users) {
  for (Model* body : bodies_) body->LetGoOfOthers(users);
  for (void* block : memory_) {
    (void)device::MemoryRegistry::Get().Free(block, device::MemoryKind::kDevice, true, users);
  }
  for (const auto& condition : conditions_) {
    (void)device::MemoryRegistry::Get().Free(condition->cell, device::MemoryKind::kDevice, false, users);
  }
  for (const BoundStream& bound : bound_) {
    bound.stream->bound_model = nullptr;
    bound.stream->store()->Unseal();
  }
  if (own_stream_ != nullptr) Stream::Destroy(own_stream_, Stream::DestroyMode::kWait);
}

void Model::Drop() {
  device_.holdings().Leave(holder_);
  replay_.reset();
  kept_.reset();
  graph_.reset();  // conditional tasks refer to bodies, so they go first
  for (Model* body : bodies_) body->Drop();
  for (const auto& lane : lane_handles_) device_.stream_ids().Return(lane->stream_id);
  for (const int32_t id : event_ids_) device_.event_ids().Return(id);
  ModelIds().Return(id_);
}

int64_t Model::Available() { return ModelIds().available(); }

void Model::DropBodies(size_t keep) {
  for (; bodies_.size() > keep; bodies_.pop_back()) {
    Model* const body = bodies_.back();
    body->LetGo(body->Withdraw(), false);
  }
}

void Model::Discard(Model* model, bool is_known) {
  Context& context = model->context_;
  if (!context.TakeResident(model)) return;  // who destroys the context frees it
  const uint64_t birth = model->Withdraw();
  const bool calls_inside = is_known && !AwaitCalls();
  model->LetGo(birth, is_known, calls_inside);
  context.ResidentIsGone();
}

void Model::AbortRecording(bool locked) {
  std::unique_lock lock(context_.capture_mutex, std::defer_lock);
  if (!locked) lock.lock();
  if (recorder != nullptr) recorder->Abandon();
  for (Model* body : bodies_) body->AbortRecording(true);
}

void Model::ReleaseFromContext() {
  AbortRecording(false);
  // The context has taken us off its list. Work that waits for something that will not come is given up by the
  // teardown of its stream, which follows; until then the model must stay.
  if (!WaitIdle(Clock::now() + kDestroyPatience)) {
    context_.ForEachStream([](Stream& stream) { stream.Abort(kStreamAbort); });
    if (own_stream_ != nullptr) own_stream_->Abort(kStreamAbort);  // it is not in the context's list
    WaitIdle(std::nullopt);
  }
  const uint64_t birth = Withdraw();
  const bool calls_inside = !AwaitCalls();
  AbortRecording(false);  // what these calls have begun
  if (!WaitIdle(Clock::now() + kDestroyPatience)) {
    context_.ForEachStream([](Stream& stream) { stream.Abort(kStreamAbort); });
    WaitIdle(std::nullopt);
  }
  LetGo(birth, true, calls_inside);
}

Status Model::Destroy(Model* model) {
  const auto still_runs = [model] {
    return Error(kModelRunning,
                 fmt::format("{} still has {} executions pending after 10 s", model->Describe(), model->pending()))
        .Culprit("a task of the graph waits for an event, value or notify that has not come, or runs for long")
        .Hint("let come what its tasks wait for, synchronise the streams that execute it, then destroy it");
  };
  if (model->RunsMe()) {
    return Error(kModelRunning,
                 fmt::format("{} cannot be destroyed by a host function that runs in it", model->Describe()))
        .Culprit(fmt::format("thread {}, which runs the host function as a task of the graph", runtime::ThreadId()))
        .Hint("destroy the model behind its executions, on a thread of the program");
  }
  const Deadline deadline = Clock::now() + kDestroyPatience;
  if (!model->WaitIdle(deadline)) return still_runs();
  void* const handle = model->handle_;
  if (!Models().Hide(handle)) return runtime::NotLive(Models(), handle, "model");
  (void)AwaitCalls();                // Discard looks once more
  if (!model->WaitIdle(deadline)) {  // one of these calls has executed it again
    Models().Show(handle);
    return still_runs();
  }
  const std::vector<DestroyCallback> callbacks = std::move(model->destroy_callbacks);
  Discard(model);
  const WaitingCall waiting;
  for (const DestroyCallback& callback : callbacks) callback.function(callback.argument);
  return {};
}

std::string Model::name() const {
  std::lock_guard lock(name_mutex_);
  return name_;
}

void Model::set_name(std::string name) {
  {
    std::lock_guard lock(name_mutex_);
    name_ = std::move(name);
  }
  context_.device().holdings().Rename(holder_, Describe());
}

std::string Model::Describe() const {
  const std::string own = name();
  return own.empty() ? fmt::format("model {}", id_) : fmt::format("model {} \"{}\"", id_, own);
}

exec::Replay::Watched WatchedAs(const Model& model) {
  exec::Replay::Watched watched;
  watched.label = device::Timeline::Get().Intern(model.Describe());
  if (device::TaskWatch* watch = device::TaskWatch::Current()) {
    watched.number = watch->BeginGraph(model.id(), model.name());
  }
  return watched;
}

StatusOr<ir::LaneId> Model::AddLane(int32_t user_stream_id, ir::NodeId forked_by) {
  runtime::IdPool& ids = context_.device().stream_ids();
  const int32_t stream_id = FaultPoint("model.lane") ? -1 : ids.Take();
  if (stream_id < 0) {
    return context_.device().NoStream(fmt::format(" for stream {} of the capture", user_stream_id));
  }
  auto lane = std::make_unique<LaneHandle>();
  lane->model = this;
  lane->handle = LaneHandles().Insert(lane.get());
  if (lane->handle == nullptr) {
    ids.Return(stream_id);
    return Error(kNoStreamResource, "the process has too many graph-internal streams")
        .Hint("destroy models that are no longer needed with aclmdlRIDestroy");
  }
  lane->lane = graph_->AddLane(stream_id, user_stream_id, forked_by);
  lane->stream_id = stream_id;
  const ir::LaneId id = lane->lane;
  lane_handles_.push_back(std::move(lane));
  holder_->streams.fetch_add(1, std::memory_order_relaxed);
  return id;
}

StatusOr<uint32_t> Model::TakeEventId() {
  runtime::IdPool& ids = context_.device().event_ids();
  const int32_t id = FaultPoint("model.event") ? -1 : ids.Take();
  if (id < 0) {
    return context_.device().NoEvent(fmt::format(" for {}", Describe()));
  }
  event_ids_.push_back(id);
  holder_->events.fetch_add(1, std::memory_order_relaxed);
  return static_cast<uint32_t>(id);
}

uint32_t Model::AddExternal(runtime::Event& event, bool is_record) {
  externals_.push_back({event.handle(), is_record});
  return static_cast<uint32_t>(externals_.size() - 1);
}

StatusOr<TaskGroup*> Model::AddGroup() {
  auto group = std::make_shared<TaskGroup>();
  group->handle = TaskGroups().Insert(group.get());
  if (group->handle == nullptr)
    return Error(kResourceExhausted, "the process has too many task groups")
        .Hint("destroy models with task groups that are no longer needed");
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

TaskGroup* Model::GroupOf(const ir::Node& node) const {
  if (node.type != &ir::kSlotTask) return nullptr;
  return static_cast<TaskGroup*>(static_cast<const ir::SlotPayload*>(node.payload)->slot->owner.load());
}

StatusOr<Condition*> Model::AddCondition(uint64_t default_value, bool assign_default) {
  REPRISE_ASSIGN_OR_RETURN(void* cell, device::MemoryRegistry::Get().AllocateDevice(context_.device().id(), 64, 4096));
  auto condition = std::make_unique<Condition>();
  condition->model = this;
  condition->cell = static_cast<uint64_t*>(cell);
  *condition->cell = 0;
  condition->default_value = default_value;
  condition->assign_default = assign_default;
  condition->handle = Conditions().Insert(condition.get());
  if (condition->handle == nullptr) {
    (void)device::MemoryRegistry::Get().Free(cell, device::MemoryKind::kDevice);
    return Error(kResourceExhausted, "the process has too many conditions")
        .Hint("destroy models with conditions that are no longer needed");
  }
  conditions_.push_back(std::move(condition));
  return conditions_.back().get();
}

StatusOr<void*> Model::TakeMemory(uint64_t bytes) {
  memory_.reserve(memory_.size() + 1);
  REPRISE_ASSIGN_OR_RETURN(void* block,
                           device::MemoryRegistry::Get().AllocateDevice(context_.device().id(), bytes, 4096, true));
  memory_.push_back(block);
  return block;
}

void Model::CollectResets(std::vector<exec::Replay::CellReset>& resets) const {
  for (const auto& condition : conditions_) {
    if (condition->assign_default) resets.push_back({condition->cell, condition->default_value});
  }
  for (const Model* body : bodies_) body->CollectResets(resets);
}

void Model::SealChanges() {
  if (!graph_->changes_lost() && replay_->Patch(graph_->changes())) {
    liveness_.Forget(graph_->changes());
    liveness_.Forget(graph_->new_arguments());
    replay_->NoteNewArguments(graph_->new_arguments());
    graph_->ForgetChanges();
    return;
  }
  Seal();
}

void Model::Seal() {
  graph_->ShrinkToFit();
  CollectSeries();
  if (replay_ != nullptr) liveness_.Forget();  // parameters have changed
  exec::FusionLog log;
  log.wants_reasons = IsVerbose(VerboseCategory::kPlan);
  replay_ = std::make_unique<exec::Replay>(*graph_, context_.device().scheduler(), &log);
  kept_ = KeptOperands::Of(*graph_, std::move(kept_));
  replay_->SetKeeper(kept_.get());
  graph_->ForgetChanges();
  TellPlan(log);
  if (is_sub()) return;  // the root assigns the defaults of all its bodies
  std::vector<exec::Replay::CellReset> resets;
  CollectResets(resets);
  replay_->SetPrologue(std::move(resets));
}

void Model::TellPlan(const exec::FusionLog& log) const {
  if (graph_->lanes().size() > 1) {
    const bool is_scheduled = replay_->plan().is_scheduled();
    Note(is_scheduled ? VerboseEvent::kGraphScheduled : VerboseEvent::kGraphAsCaptured, [&] {
      const std::string what =
          fmt::format("{}, {} tasks on {} streams", Describe(), graph_->nodes().size(), graph_->lanes().size());
      return is_scheduled ? fmt::format("{}: laid out on {} cores", what, replay_->plan().lanes().size())
                          : fmt::format("{}: {}", what, exec::WhyNotScheduled(*graph_));
    });
  }
  Count(VerboseEvent::kTaskFused, log.fused);
  Count(VerboseEvent::kTaskNotFused, log.not_fused);
  if (!log.wants_reasons) return;
  if (log.fused != 0) Tell(VerboseEvent::kTaskFused, fmt::format("{}: {} tasks", Describe(), log.fused));
  for (const exec::FusionLog::Apart& apart : log.apart) {
    const ir::Lane& lane = graph_->lanes()[apart.lane];
    const ir::Node node = graph_->node(lane.nodes[apart.task_id], apart.lane, apart.task_id);
    Tell(VerboseEvent::kTaskNotFused, fmt::format("{}: task {} of stream {}, {}: {}", Describe(), apart.task_id,
                                                  lane.stream_id, ir::Describe(node).name, apart.why));
  }
}

Status Model::SealProgram() {
  std::vector<exec::ProgramLane> lanes;
  for (const BoundStream& bound : bound_) lanes.push_back({bound.stream->store()->graph(), bound.is_head});
  REPRISE_ASSIGN_OR_RETURN(auto plan, exec::CompileProgram(lanes));
  replay_ = std::make_unique<exec::Replay>(std::move(plan), context_.device().scheduler());
  return {};
}

StatusOr<exec::Bindings*> Model::Bind(std::vector<std::unique_lock<std::mutex>>& order) {
  const size_t count = externals_.size();
  std::vector<runtime::Event*> events;
  for (const ExternalBinding& external : externals_) {
    REPRISE_ASSIGN_OR_RETURN(runtime::Event * event, runtime::FindObject(runtime::Events(), external.event, "event"));
    events.push_back(event);
  }
  std::vector<runtime::Event*> once = events;
  std::sort(once.begin(), once.end(), std::less<>());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  order.reserve(once.size());
  auto bindings = std::make_unique<exec::Bindings>();
  bindings->series.resize(series_.size());
  std::vector<EventRecord*>& records = bindings->events;
  records.resize(count);
  try {
    for (size_t i = 0; i < count; ++i) {
      if (externals_[i].is_record) records[i] = EventRecord::Create();
    }
  } catch (const std::bad_alloc&) {
    for (EventRecord* record : records) {
      if (record != nullptr) record->Release();
    }
    return Error(kNoEventResource, fmt::format("no memory for the event records of {}", Describe()))
        .Hint("free memory of the host");
  }
  for (runtime::Event* event : once) order.emplace_back(event->order_mutex);
  // Nothing can fail any more: only now others may see the new records.
  for (size_t i = 0; i < count; ++i) {
    if (externals_[i].is_record) {
      events[i]->Publish(records[i]);
    } else {
      records[i] = events[i]->Latest();
    }
  }
  return bindings.release();
}

namespace {

// For events that are recorded outside of it, which the thread that launches it may be about to do: it must not be
// waited for.
bool WaitsForOthers(const ir::Graph& graph, const std::vector<ExternalBinding>& externals) {
  for (const ExternalBinding& external : externals) {
    if (!external.is_record) return true;
  }
  for (const ir::Node& node : graph.nodes()) {
    if (node.type == &runtime::kFlagWait) return true;
  }
  return false;
}

}  // namespace

Status Model::Execute(Stream& stream) {
  if (!externals_.empty() || !series_.empty() || !liveness_.IsFresh() || runtime::LaunchIsBlocking()) [[unlikely]]
    return ExecuteChecked(stream);
  launched_.fetch_add(1, std::memory_order_relaxed);
  GraphTask task{this, replay_.get(), {kNoTicket}, nullptr};
  if (std::byte* place = runtime::TryReserve(stream, kGraphTask, sizeof task)) [[likely]] {
    GraphTask::TakeTicket(new (place) GraphTask(task));
    return runtime::Commit(stream);
  }
  REPRISE_RETURN_IF_ERROR(runtime::QueueNow(stream, ir::MakeTask(kGraphTask, task), GraphTask::TakeTicket));
  return runtime::WaitIfBlocking(stream);
}

// With memory to look at, or external events to bind.
Status Model::ExecuteChecked(Stream& stream) {
  {
    // External events are bound in the order of the executions.
    std::lock_guard lock(submit_mutex_);
    if (kind_ != ModelKind::kBuilt) {
      REPRISE_RETURN_IF_ERROR(liveness_.Check(*graph_, [this] { return Describe(); }));
    }
    REPRISE_RETURN_IF_ERROR(CheckSeries());
    GraphTask task{this, replay_.get(), {kNoTicket}, nullptr};
    std::vector<std::unique_lock<std::mutex>> order;  // until the task is queued, see Event::order_mutex
    if (!externals_.empty() || !series_.empty()) {
      REPRISE_ASSIGN_OR_RETURN(task.bindings, Bind(order));
    }
    launched_.fetch_add(1, std::memory_order_relaxed);
    REPRISE_RETURN_IF_ERROR(runtime::QueueNow(stream, ir::MakeTask(kGraphTask, task), GraphTask::TakeTicket));
  }
  if (!runtime::LaunchIsBlocking() || !series_.empty() || WaitsForOthers(*graph_, externals_)) return {};
  return runtime::WaitIfBlocking(stream);
}

bool Model::RunsMe() const {
  const device::Runnable* const mine = device::Activity::HeldUp();
  if (mine == nullptr) [[likely]]
    return false;
  bool is_mine = false;
  runtime::Streams().ForEach([&](Stream* stream) {
    if (stream != mine) return;
    device::TaskSpot spot;  // of the task in front, which is the one that runs
    is_mine = stream->FindTask(spot) && spot.type == &kGraphTask &&
              static_cast<const GraphTask*>(spot.payload)->model == this;
  });
  return is_mine;
}

Status Model::ExecuteAndWait(int64_t timeout_ms) {
  if (timeout_ms < 0 && RunsMe()) {
    return Error(kRuntimeCannot,
                 fmt::format("a host function of {} executes that model and waits, and so for itself: its "
                             "executions run one after another",
                             Describe()))
        .Culprit(fmt::format("thread {}, which runs the host function as a task of the graph", runtime::ThreadId()))
        .Hint("use aclmdlRIExecuteAsync, which does not wait, or another model");
  }
  if (own_stream_ == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(own_stream_, Stream::Create(context_, {}));
    context_.RemoveStream(own_stream_);  // the model destroys it
  }
  REPRISE_RETURN_IF_ERROR(Execute(*own_stream_));
  return own_stream_->Synchronize(runtime::DeadlineAfterMs(timeout_ms));
}

namespace {

// Of all models, because a model may be gone as soon as its last execution has counted itself out.
std::atomic<uint32_t> g_idle_waiters{0};
std::atomic<uint32_t> g_idle_word{0};

}  // namespace

void Model::ExecutionEnded() noexcept {
  ended_.fetch_add(1, std::memory_order_seq_cst);
  if (g_idle_waiters.load(std::memory_order_seq_cst) == 0) return;
  g_idle_word.fetch_add(1, std::memory_order_release);
  FutexWake(g_idle_word, INT_MAX);
}

bool Model::WaitIdle(const Deadline& deadline) {
  const auto idle = [this] { return pending() == 0; };
  if (idle()) return true;
  const WaitingCall waiting;
  g_idle_waiters.fetch_add(1, std::memory_order_seq_cst);
  bool is_idle = false;
  do {
    const uint32_t seen = g_idle_word.load(std::memory_order_acquire);
    if ((is_idle = idle())) break;
    FutexWait(g_idle_word, seen, deadline);
  } while (!deadline || Clock::now() < *deadline);
  g_idle_waiters.fetch_sub(1, std::memory_order_relaxed);
  return is_idle || idle();
}

Bill Model::TakeBill() const {
  Bill bill{graph_->nodes().size(), graph_->lanes().size(), event_ids_.size(),
            graph_->memory_bytes() + (replay_ ? replay_->memory_bytes() : 0)};
  for (const BoundStream& bound : bound_) {
    bill.tasks += bound.stream->store()->graph()->nodes().size();
    bill.streams += 1;
    bill.bytes += bound.stream->store()->graph()->memory_bytes();
  }
  for (const Model* body : bodies_) {
    const Bill part = body->TakeBill();
    bill.tasks += part.tasks;
    bill.streams += part.streams;
    bill.events += part.events;
    bill.bytes += part.bytes;
  }
  return bill;
}

}  // namespace reprise::model
