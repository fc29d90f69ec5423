// SPDX-License-Identifier: Apache-2.0
#include "api/graph_impl.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "api/runtime_driver.h"
#include "api/streams.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mutex.h"
#include "capture/condition.h"
#include "capture/session.h"
#include "device/memory.h"
#include "model/execution_policy.h"
#include "model/parameters.h"
#include "observe/dump_file.h"
#include "reprise/stream.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"
#include "runtime/thread.h"

namespace reprise {
namespace {

using runtime::Stream;

// Which graph captures what. Ids of captures are never used again.
struct Registry {
  struct Entry {
    std::weak_ptr<Graph::Impl> graph;
    bool is_body;
  };
  Mutex mutex;
  std::map<uint64_t, Entry> captures REPRISE_GUARDED_BY(mutex);

  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }
  void Add(uint64_t capture, const std::shared_ptr<Graph::Impl>& graph, bool is_body) {
    MutexLock lock(mutex);
    captures[capture] = {graph, is_body};
  }
  void Remove(uint64_t capture) noexcept {
    MutexLock lock(mutex);
    captures.erase(capture);
  }
};

std::atomic<uint64_t> g_next_pool{1};

Status Injected(const char* step) {
  return Error(kResourceExhausted, fmt::format("no resources for step \"{}\" of the capture", step))
      .Hint("free memory of the host, and destroy graphs that are no longer needed");
}

std::string CaptureBeginState(GraphState state) {
  return state == GraphState::kCapturing ? "the graph is already capturing" : "the graph already owns a captured graph";
}

Status CheckOptions(const Graph::CaptureOptions& options) {
  if (options.pool.capture != 0 && options.pool.handle != 0) {
    return Error(kInvalidValue, fmt::format("({}, {}) is not a pool: one half of the name must be 0",
                                            options.pool.capture, options.pool.handle))
        .Hint("pass pool() of another graph, or what NewPoolId() returns");
  }
  if (static_cast<int>(options.mode) < 0 || static_cast<int>(options.mode) > 2) {
    return Error(kInvalidValue, fmt::format("mode is {}, must be 0 to 2", static_cast<int>(options.mode)))
        .Hint("pass a member of CaptureMode");
  }
  return {};
}

Status CheckCapturable(const Stream& stream) {
  if (stream.is_default()) {
    return Error(kDefaultStreamCaptured,
                 fmt::format("{} cannot be captured: capture on a non-default stream", stream.Describe()))
        .Hint("create a stream with aclrtCreateStream and make it current, or name it in the options");
  }
  if (stream.is_capturing()) {
    return Error(kStreamCaptured, fmt::format("{} is being captured already", stream.Describe()))
        .Hint("end that capture first, or use another stream");
  }
  return {};
}

}  // namespace

// ---- Begin ----

Status Graph::Impl::CaptureBegin(const CaptureOptions& options) {
  const GraphState state = this->state();
  if (state == GraphState::kFailed) {
    Reset();
  } else if (state != GraphState::kEmpty) {
    return Error(kModelCaptured, CaptureBeginState(state))
        .Hint(state == GraphState::kCapturing ? "end its capture first, or use another Graph"
                                              : "call Reset() first, or use another Graph");
  }
  BuryZombies();
  if (Env(EnvVar::kTaskQueue) == "2") {
    return Error(kInvalidValue, "TASK_QUEUE_ENABLE is 2: launches would be queued past the capture")
        .Culprit("environment variable TASK_QUEUE_ENABLE")
        .Hint("set TASK_QUEUE_ENABLE to 0 or 1");
  }
  REPRISE_ASSIGN_OR_RETURN(memory::DeviceAllocator * device_memory, api::DeviceMemory());
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const memory::HostAllocator* host_memory, api::HostMemory());
  if (device_memory->GetConfig().pin_memory_expandable_segments) {
    return Error(kInvalidValue, "pin_memory_expandable_segments is set: such pinned memory knows no pools of graphs")
        .Culprit("setting pin_memory_expandable_segments of PYTORCH_NPU_ALLOC_CONF")
        .Hint("remove pin_memory_expandable_segments:True from PYTORCH_NPU_ALLOC_CONF, or set it to False");
  }
  REPRISE_RETURN_IF_ERROR(CheckOptions(options));
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, api::FindStreamOrCurrent(options.stream));
  REPRISE_RETURN_IF_ERROR(CheckCapturable(*stream));

  // From here on each step is undone by those that follow it when they fail. Allocations are routed before the runtime
  // reports the stream as captured: other threads may allocate for it at any time.
  device_ = stream->device().id();
  stream_ = stream->handle();
  mode_ = options.mode;
  on_current_ = options.stream == nullptr || api::CurrentStreamOrNull(device_) == stream_;
  thread_ = runtime::ThreadId();
  pool_ = options.pool.is_default() ? PoolId{g_next_pool.fetch_add(1), 0} : options.pool;
  lease_ = {device_, pool_, false, false};
  routed_ = std::make_shared<std::atomic<uint64_t>>(0);
  const StreamFilter filter = [routed = routed_](void* candidate) {
    const uint64_t capture = routed->load(std::memory_order_acquire);
    if (capture == 0) return false;
    const Stream* found = runtime::Streams().Find(candidate);
    return found != nullptr && found->capture_id() == capture;
  };
  Status status = Route(filter);
  bool begun = false;
  if (status.ok()) {
    status = FaultPoint("graph.begin") ? Injected("begin") : capture::Begin(*stream, runtime::CaptureMode(mode_));
    begun = status.ok();
  }
  if (begun) {
    device_memory->MarkCaptureBegin(device_);
    const capture::CaptureInfo info = capture::Info(*stream);
    if (info.model == nullptr || FaultPoint("graph.info")) {
      status = Injected("info");
      if (info.model != nullptr) {
        info.model->AbortRecording(false);
        model::Model::Discard(info.model);
      }
      device_memory->MarkCaptureEnd(device_);
    } else {
      model_ = info.model->handle();
      capture_ = stream->capture_id();
    }
  }
  if (!status.ok()) {
    Unroute();
    lease_.Return();
    pool_ = {};
    state_ = GraphState::kEmpty;
    return status;
  }
  Registry::Get().Add(capture_, shared_from_this(), false);
  device_memory->NamePool(
      pool_, fmt::format("pool ({}, {}) of {}", pool_.capture, pool_.handle, capture::Info(*stream).model->Describe()));
  routed_->store(capture_, std::memory_order_release);
  state_.store(GraphState::kCapturing, std::memory_order_release);
  return {};
}

Status Graph::Impl::Route(const StreamFilter& filter) {
  REPRISE_ASSIGN_OR_RETURN(memory::DeviceAllocator * device_memory, api::DeviceMemory());
  REPRISE_ASSIGN_OR_RETURN(memory::HostAllocator * host_memory, api::HostMemory());
  if (FaultPoint("graph.route.device")) return Injected("route device memory");
  REPRISE_RETURN_IF_ERROR(device_memory->BeginAllocateToPool(device_, pool_, filter));
  lease_.of_device = routed_device_ = true;
  if (FaultPoint("graph.route.host")) return Injected("route pinned memory");
  REPRISE_RETURN_IF_ERROR(host_memory->BeginAllocateToPool(pool_, filter));
  lease_.of_host = routed_host_ = true;
  return {};
}

void Graph::Impl::Unroute() noexcept {
  if (routed_) routed_->store(0, std::memory_order_release);
  [[maybe_unused]] Status ignored;  // both are tried, whatever the first one says
  if (std::exchange(routed_device_, false)) ignored = api::DeviceMemoryOrNull()->EndAllocateToPool(device_, pool_);
  if (std::exchange(routed_host_, false)) ignored = api::HostMemoryOrNull()->EndAllocateToPool(pool_);
}

void Graph::Impl::Lease::Return() noexcept {
  [[maybe_unused]] Status ignored;
  if (std::exchange(of_device, false)) {
    memory::DeviceAllocator& memory = *api::DeviceMemoryOrNull();
    ignored = memory.ReleasePool(device, pool);
    if (memory.PoolUsers(device, pool) == 0) memory.NamePool(pool, {});
  }
  if (std::exchange(of_host, false)) ignored = api::HostMemoryOrNull()->ReleasePool(pool);
}

// ---- End ----

Status Graph::Impl::CaptureEnd() {
  if (state() != GraphState::kCapturing) {
    return Error(kStreamNotCaptured, "the graph is not capturing: there was no capture_begin, or its capture has ended")
        .Hint("call CaptureBegin first");
  }
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(stream_));
  if (on_current_ && bodies_.empty() && runtime::ThreadId() == thread_ &&
      api::CurrentStreamOrNull(device_) != stream_) {
    return Error(kCaptureUnmatched,
                 fmt::format("the capture must end on the same stream that it began on, {}", stream->Describe()))
        .Hint("make that stream current again and call CaptureEnd once more: the capture is still open");
  }
  if (mode_ != CaptureMode::kRelaxed && runtime::ThreadId() != thread_) {
    return Error(kCaptureWrongThread, fmt::format("the capture must end on the same thread that began it, {}", thread_))
        .Culprit(fmt::format("thread {}", runtime::ThreadId()))
        .Hint("call CaptureEnd there, or capture with CaptureMode::kRelaxed: the capture is still open");
  }
  while (!bodies_.empty()) {
    if (bad_body_.ok())
      bad_body_ = Error(kSubGraphIsCapturing, "the body of a condition was still open at the end of the capture")
                      .Hint("call EndConditional for each BeginIf before the capture ends");
    [[maybe_unused]] const Status closed = EndConditional();
  }
  stream->attributes.cache_op_info = 0;

  Status status = FaultPoint("graph.end") ? Injected("end") : Status();
  model::Model* model = nullptr;
  if (status.ok()) {
    auto ended = capture::End(*stream);
    if (ended.ok()) {
      model = *ended;
    } else {
      status = std::move(ended).status();
      model_ = nullptr;  // the runtime has destroyed it
    }
  } else if (model::Model* open = model::Models().Find(model_)) {
    open->AbortRecording(false);
    model::Model::Discard(open);
    model_ = nullptr;
  }
  if (status.ok()) TellReusedBlocks(model->graph());
  api::DeviceMemoryOrNull()->MarkCaptureEnd(device_);
  Registry::Get().Remove(capture_);
  Unroute();
  if (status.ok() && !bad_body_.ok()) status = std::move(bad_body_);
  if (!status.ok()) return Fail(std::move(status));

  {
    MutexLock lock(generators_mutex_);
    for (const auto& generator : generators_) drawn_.emplace_back(generator, 0);
    generators_.clear();
  }
  for (auto& [generator, increment] : drawn_) increment = generator->CaptureEpilogue(capture_);
  if (model->graph().nodes().empty()) {
    REPRISE_LOG(kWarning, "REPRISE", "the NPU Graph is empty: nothing was submitted to {} while {} was captured",
                stream->Describe(), model->Describe());
  }
  state_.store(GraphState::kCaptured, std::memory_order_release);
  if (!options_.keep_graph) {
    Status ready = FaultPoint("graph.instantiate") ? Injected("instantiate") : model::UpdateModel(*model);
    if (!ready.ok()) return Fail(std::move(ready));
    state_.store(GraphState::kReady, std::memory_order_release);
  }
  return {};
}

// Several streams could use the blocks of one of them; who asks wants a single one.
void Graph::Impl::TellReusedBlocks(ir::Graph& graph) const {
  if (graph.lanes().size() != 1) return;
  try {
    std::vector<ir::ReusedBlock> blocks;
    for (const memory::ReusedBlock& block : api::DeviceMemoryOrNull()->TakeReusedBlocks(device_, capture_)) {
      blocks.push_back({block.begin, block.end, block.first, block.behind});
    }
    graph.SetReusedBlocks(std::move(blocks));
  } catch (const std::bad_alloc&) {
    // They are stored, then.
  }
}

// The capture is over and came to nothing.
Status Graph::Impl::Fail(Status why) noexcept {
  DropGenerators();
  bad_body_ = {};
  if (model_ != nullptr) {
    DestroyModel(std::exchange(model_, nullptr), std::exchange(lease_, {}));
  } else {
    lease_.Return();
  }
  capture_ = 0;
  pool_ = {};
  state_.store(GraphState::kFailed, std::memory_order_release);
  return why;
}

void Graph::Impl::DropGenerators() noexcept {
  std::set<std::shared_ptr<rng::GeneratorState>> generators;
  {
    MutexLock lock(generators_mutex_);
    generators.swap(generators_);
  }
  for (const auto& generator : generators) generator->RemoveCapture(capture_);
  for (const auto& [generator, increment] : drawn_) generator->RemoveCapture(capture_);
  drawn_.clear();
  if (last_drawn_ != nullptr) std::exchange(last_drawn_, nullptr)->Release();
  last_stream_ = nullptr;
}

// ---- Instantiate, replay ----

Status Graph::Impl::CheckCaptured(const char* what) const {
  const GraphState state = this->state();
  if (state == GraphState::kCaptured || state == GraphState::kReady) return {};
  return Error(kModelNotExecutable, fmt::format("{} without a preceding successful capture", what))
      .Culprit(state == GraphState::kCapturing ? "the capture is still open"
               : state == GraphState::kFailed  ? "the capture has failed"
                                               : "nothing was captured")
      .Hint(state == GraphState::kCapturing ? "call CaptureEnd first" : "capture first");
}

StatusOr<model::Model*> Graph::Impl::Model(const char* what) const {
  REPRISE_RETURN_IF_ERROR(CheckCaptured(what));
  // Stale when the context has gone, or somebody has destroyed the raw graph.
  return model::FindModel(model_);
}

Status Graph::Impl::Instantiate() {
  const GraphState state = this->state();
  if (state != GraphState::kCaptured && state != GraphState::kReady) {
    return Error(kModelNotExecutable, "the graph cannot be instantiated: there was no successful capture_end")
        .Hint("capture with CaptureBegin and CaptureEnd first");
  }
  if (!options_.keep_graph) {
    return Error(kModelNotExecutable,
                 "the graph was instantiated when its capture ended, and its recorded form is not kept")
        .Hint("make the Graph with Options{keep_graph = true} to instantiate it again after changes");
  }
  MutexLock lock(replay_mutex_);
  REPRISE_ASSIGN_OR_RETURN(model::Model * model, Model("Instantiate"));
  if (FaultPoint("graph.instantiate")) return Injected("instantiate");
  REPRISE_RETURN_IF_ERROR(model::UpdateModel(*model));
  state_.store(GraphState::kReady, std::memory_order_release);
  return {};
}

Status Graph::Impl::Replay(void* stream) {
  REPRISE_RETURN_IF_ERROR(CheckCaptured("Replay"));
  if (state() == GraphState::kCaptured) REPRISE_RETURN_IF_ERROR(Instantiate());
  REPRISE_ASSIGN_OR_RETURN(Stream * on, api::FindStreamOrCurrent(stream));
  static constexpr model::ExecutionWords kWords = {
      "reprise::Graph::Replay", "replay on another stream, or after the capture: a graph cannot hold another one",
      "call Instantiate() after changing the raw graph"};
  REPRISE_RETURN_IF_ERROR(model::CheckStreamExecutes(*on, kWords));
  // Drawing the offsets and queueing are one step, so that executions get their numbers in the order they run in.
  MutexLock lock(replay_mutex_);
  REPRISE_ASSIGN_OR_RETURN(model::Model * model, Model("Replay"));
  REPRISE_RETURN_IF_ERROR(model::CheckModelExecutes(*model, *on, kWords));
  if (drawn_.empty()) return model->Execute(*on);
  REPRISE_RETURN_IF_ERROR(PrepareDraws(*on));
  REPRISE_RETURN_IF_ERROR(model->Execute(*on));
  return NoteDraws(*on);
}

// Writes the numbers of this execution, on its stream. Another stream must first get past the execution before.
Status Graph::Impl::PrepareDraws(Stream& stream) {
  if (last_drawn_ != nullptr && last_stream_ != stream.handle()) {
    REPRISE_RETURN_IF_ERROR(runtime::WaitForPoint(stream, *last_drawn_));
  }
  for (const auto& [generator, increment] : drawn_) {
    REPRISE_RETURN_IF_ERROR(generator->ReplayPrologue(capture_, increment, stream.handle()));
  }
  return {};
}

Status Graph::Impl::NoteDraws(Stream& stream) {
  REPRISE_ASSIGN_OR_RETURN(runtime::EventRecord * point, runtime::RecordPoint(stream));
  if (last_drawn_ != nullptr) last_drawn_->Release();
  last_drawn_ = point;
  last_stream_ = stream.handle();
  return {};
}

// ---- Reset ----

void Graph::Impl::Reset() noexcept {
  const CallGuard call;
  MutexLock lock(replay_mutex_);
  if (state() == GraphState::kCapturing) {
    while (!bodies_.empty()) {
      [[maybe_unused]] const Status closed = EndConditional();
    }
    if (model::Model* open = model::Models().Find(model_)) {
      open->AbortRecording(false);
      model::Model::Discard(open);
    }
    model_ = nullptr;
    api::DeviceMemoryOrNull()->MarkCaptureEnd(device_);
    Unroute();
  }
  if (capture_ != 0) Registry::Get().Remove(capture_);
  DropGenerators();
  if (model_ != nullptr) {
    DestroyModel(std::exchange(model_, nullptr), std::exchange(lease_, {}));
  } else {
    lease_.Return();
  }
  bodies_.clear();
  bad_body_ = {};
  capture_ = 0;
  pool_ = {};
  routed_.reset();
  state_.store(GraphState::kEmpty, std::memory_order_release);
  BuryZombies();
}

namespace {

Mutex g_zombies_mutex;

template <class Zombie>
std::vector<Zombie>& Zombies() {
  static auto* const zombies = new std::vector<Zombie>;
  return *zombies;
}

}  // namespace

// The pool is given back only when no execution is left that could touch it.
void Graph::Impl::DestroyModel(void* model, Lease lease) noexcept {
  const CallGuard call;
  if (model::Model* found = model::Models().Find(model)) {
    if (Status status = model::Model::Destroy(found); !status.ok()) {
      REPRISE_LOG(kWarning, "REPRISE", "{}; it is destroyed later", status.detail().what);
      MutexLock lock(g_zombies_mutex);
      Zombies<Zombie>().push_back({model, lease});
      return;
    }
  }
  lease.Return();
}

void Graph::Impl::BuryZombies() noexcept {
  const CallGuard call;
  std::vector<Zombie> dead;
  {
    MutexLock lock(g_zombies_mutex);
    std::erase_if(Zombies<Zombie>(), [&](const Zombie& zombie) {
      const model::Model* found = model::Models().Find(zombie.model);
      if (found != nullptr && found->executing()) return false;
      dead.push_back(zombie);
      return true;
    });
  }
  for (const Zombie& zombie : dead) DestroyModel(zombie.model, zombie.lease);
}

// ---- Conditions ----

StatusOr<void*> Graph::Impl::BeginIf(const void* predicate, void* stream) {
  if (state() != GraphState::kCapturing) {
    return Error(kStreamNotCaptured, "a condition is part of a capture, and the graph is not capturing")
        .Hint("call BeginIf between CaptureBegin and CaptureEnd");
  }
  const std::optional<device::MemoryRange> range = device::MemoryRegistry::Get().Find(predicate);
  if (!range || range->kind != device::MemoryKind::kDevice || range->device != device_) {
    return Error(kInvalidValue, fmt::format("the predicate at {} must be on the device of the capture, {}",
                                            fmt::ptr(predicate), device_))
        .Hint("pass the address of one byte of device memory");
  }
  REPRISE_ASSIGN_OR_RETURN(Stream * parent, api::FindStreamOrCurrent(nullptr));
  const uint64_t enclosing = bodies_.empty() ? capture_ : bodies_.back().capture;
  if (parent->capture_id() != enclosing) {
    return Error(kCaptureConflict, fmt::format("{} does not take part in the {} that the condition would belong to",
                                               parent->Describe(), bodies_.empty() ? "capture" : "body"))
        .Hint("make a stream of that capture current first");
  }
  Stream* given = nullptr;
  if (stream != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(given, runtime::FindStream(stream));
    if (&given->context() != &parent->context() || given->is_default() || given->is_capturing()) {
      return Error(kInvalidValue, fmt::format("a body cannot be captured on {}, which is {}", given->Describe(),
                                              given->is_default()     ? "a default stream"
                                              : given->is_capturing() ? "being captured already"
                                                                      : "of another context"))
          .Hint("name another stream of that device, or none: then one is made");
    }
  }
  void* const enclosing_handle = bodies_.empty() ? model_ : bodies_.back().model->handle();
  REPRISE_ASSIGN_OR_RETURN(model::Model * enclosing_model, model::FindModel(enclosing_handle));
  REPRISE_ASSIGN_OR_RETURN(model::Condition * condition, enclosing_model->AddCondition(0, true));
  REPRISE_RETURN_IF_ERROR(runtime::SubmitFill(*parent, condition->cell, 0, sizeof(uint64_t)));
  REPRISE_RETURN_IF_ERROR(runtime::SubmitCopy(*parent, condition->cell, predicate, 1));
  void* handle = nullptr;
  REPRISE_RETURN_IF_ERROR(
      capture::AddConditionTask(*parent, *condition, model::ConditionKind::kIf, std::span<void*>(&handle, 1)));

  Body body;
  body.model = model::Models().Find(handle);
  body.parent_stream = parent->handle();
  // The condition has no body yet: unless one gets captured, the whole capture fails.
  body.owns_stream = given == nullptr;
  Stream* inner = given;
  const auto begin = [&]() -> Status {
    if (inner == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(inner, Stream::Create(parent->context(), {}));
    }
    return capture::Begin(*inner, runtime::CaptureMode(mode_), body.model);
  };
  if (Status status = begin(); !status.ok()) {
    if (inner != given) Stream::Destroy(inner, Stream::DestroyMode::kForce);
    if (bad_body_.ok()) bad_body_ = status.Clone();
    return status;
  }
  api::DeviceMemoryOrNull()->MarkCaptureBegin(device_);
  body.stream = inner->handle();
  body.capture = inner->capture_id();
  Registry::Get().Add(body.capture, shared_from_this(), true);
  routed_->store(body.capture, std::memory_order_release);
  api::ExchangeCurrentStream(device_, body.stream);
  bodies_.push_back(std::move(body));
  return bodies_.back().stream;
}

Status Graph::Impl::EndConditional() {
  if (bodies_.empty()) {
    return Error(kStreamNotCaptured, "no body of a condition is open")
        .Hint("call EndConditional once for each BeginIf");
  }
  const Body body = bodies_.back();
  bodies_.pop_back();
  // Whatever comes out of it, the capture around it goes on as before.
  routed_->store(bodies_.empty() ? capture_ : bodies_.back().capture, std::memory_order_release);
  Registry::Get().Remove(body.capture);
  Status status;
  if (Stream* stream = runtime::Streams().Find(body.stream)) {
    auto ended = capture::End(*stream);
    status = std::move(ended).status();
    if (body.owns_stream) Stream::Destroy(stream, Stream::DestroyMode::kWait);
  }
  api::DeviceMemoryOrNull()->MarkCaptureEnd(device_);
  if (api::CurrentStreamOrNull(device_) == body.stream) api::ExchangeCurrentStream(device_, body.parent_stream);
  if (!status.ok() && bad_body_.ok()) bad_body_ = status.Clone();
  return status;
}

Status Graph::Impl::AbandonConditional(const std::string& why) {
  if (!bodies_.empty() && bad_body_.ok()) {
    bad_body_ = Error(kSubGraphIsCapturing, "the body of a condition was abandoned: " + why)
                    .Hint("mend what failed in the body, then capture anew");
  }
  return EndConditional();
}

// ---- Insight ----

StatusOr<GraphMemory> Graph::Impl::Memory() const {
  REPRISE_ASSIGN_OR_RETURN(const model::Model* model, Model("memory()"));
  GraphMemory memory;
  memory.plan_bytes = model->TakeBill().bytes;
  for (const SegmentInfo& segment : api::DeviceMemoryOrNull()->Snapshot(pool_, false).segments) {
    memory.device_reserved_bytes += segment.total_size;
    memory.device_live_bytes += segment.allocated_size;
  }
  return memory;
}

StatusOr<void*> Graph::Impl::RawGraph() const {
  if (!options_.keep_graph) {
    return Error(kModelNotExecutable, "the recorded graph is only kept with keep_graph=True")
        .Hint("make the Graph with Options{keep_graph = true}");
  }
  REPRISE_ASSIGN_OR_RETURN(const model::Model* model, Model("raw_graph()"));
  return model->handle();
}

StatusOr<void*> Graph::Impl::RawExecutable() const {
  REPRISE_ASSIGN_OR_RETURN(const model::Model* model, Model("raw_executable()"));
  if (state() != GraphState::kReady) {
    return Error(kModelNotExecutable, "the graph is not instantiated").Hint("call Instantiate() first");
  }
  return model->handle();
}

StatusOr<bool> Graph::Impl::Dump(const std::string& path, bool every_task) const {
  REPRISE_RETURN_IF_ERROR(observe::CheckDumpEnding(path));
  if (!CheckCaptured("Dump").ok()) {
    REPRISE_LOG(kWarning, "REPRISE", "{} is not written: the graph holds no capture", path);
    return false;
  }
  REPRISE_ASSIGN_OR_RETURN(const model::Model* model, Model("Dump"));
  REPRISE_RETURN_IF_ERROR(observe::WriteDump(*model, path, every_task));
  return true;
}

// ---- Generators ----

Graph::Impl::Owner Graph::Impl::FindOwner(uint64_t capture) {
  Registry& registry = Registry::Get();
  MutexLock lock(registry.mutex);
  const auto found = registry.captures.find(capture);
  if (found == registry.captures.end()) return {};
  return {found->second.graph.lock(), found->second.is_body};
}

void Graph::Impl::Adopt(std::shared_ptr<rng::GeneratorState> state) {
  MutexLock lock(generators_mutex_);
  generators_.insert(std::move(state));
}

}  // namespace reprise
