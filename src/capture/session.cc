// SPDX-License-Identifier: Apache-2.0
#include "capture/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>

#include "base/call_trace.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strict.h"
#include "base/verbose.h"
#include "ir/task_info.h"
#include "runtime/device.h"
#include "runtime/task_store.h"
#include "runtime/thread.h"

namespace reprise::capture {

using model::ModelKind;
using model::ModelState;
using runtime::Context;
using runtime::Event;
using runtime::Stream;
using runtime::ThisThread;

namespace {

const char* ModeName(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::kGlobal: return "GLOBAL";
    case CaptureMode::kThreadLocal: return "THREAD_LOCAL";
    case CaptureMode::kRelaxed: return "RELAXED";
    case CaptureMode::kNone: break;
  }
  return "NONE";
}

std::string InBrackets(const std::string& call) { return call.empty() ? "" : " (" + call + ")"; }

// Open captures by id. An event remembers the id, which becomes meaningless when the capture ends.
struct Registry {
  Mutex mutex;  // rank: below every capture_mutex
  std::map<uint64_t, std::shared_ptr<Session>> sessions REPRISE_GUARDED_BY(mutex);
  uint64_t next_id REPRISE_GUARDED_BY(mutex) = 1;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

Session* Session::Of(const Stream& stream) {
  return stream.is_capturing() ? static_cast<Session*>(stream.sink()) : nullptr;
}

Session::CapturedRecord Session::FindCaptured(Event& event) {
  Event::Captured captured;
  {
    MutexLock lock(event.captured_mutex);
    captured = event.captured;
  }
  if (captured.session == 0) return {};
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  const auto it = registry.sessions.find(captured.session);
  return it != registry.sessions.end() ? CapturedRecord{it->second, captured.node} : CapturedRecord{};
}

Status CheckFlags(const Stream& stream) {
  constexpr uint32_t kCpuSchedule = 0x10;    // ACL_STREAM_CPU_SCHEDULE
  constexpr uint32_t kDeviceUseOnly = 0x20;  // ACL_STREAM_DEVICE_USE_ONLY
  if ((stream.flags() & (kCpuSchedule | kDeviceUseOnly)) == 0) [[likely]]
    return {};
  return Error(kRuntimeCannot, fmt::format("{} was created with flags {:#x}; streams with ACL_STREAM_CPU_SCHEDULE or "
                                           "ACL_STREAM_DEVICE_USE_ONLY cannot be captured",
                                           stream.Describe(), stream.flags()))
      .Hint("capture a stream made by aclrtCreateStream");
}

Status CheckCapturable(const Stream& stream) {
  REPRISE_RETURN_IF_ERROR(CheckFlags(stream));
  const void* const bound = stream.bound_model.load();
  if (bound != nullptr && bound != &stream) {  // that is one which leaves, and Begin says so
    return Error(kStreamModel, fmt::format("{} is bound to a built model", stream.Describe()))
        .Hint("unbind it with aclmdlRIUnbindStream, or capture another stream");
  }
  if (stream.is_default()) {
    return Error(kFeatureNotSupported, fmt::format("{} cannot be captured", stream.Describe()))
        .Hint("capture a stream made by aclrtCreateStream");
  }
  return {};
}

// ---- Begin, record, join ----

Status Begin(Stream& stream, CaptureMode mode, Model* body) {
  REPRISE_RETURN_IF_ERROR(CheckCapturable(stream));
  Context& context = stream.context();
  MutexLock lock(context.capture_mutex);
  REPRISE_RETURN_IF_ERROR(stream.CheckNotLeaving());
  if (body != nullptr && model::Models().Find(body->handle()) == nullptr) {
    return Error(kInvalidHandle, fmt::format("{} was destroyed by another thread meanwhile", body->Describe()))
        .Hint("destroy a model only when no other thread uses it");
  }
  if (body != nullptr && body->state() != ModelState::kNone) {
    return Error(kModelCaptured,
                 fmt::format("{} is {}: a body is captured once", body->Describe(), model::StateName(body->state())))
        .Hint("capture into each body once; aclmdlRIAddCondTask makes bodies for another conditional task");
  }
  if (Session* session = Session::Of(stream)) {
    return Error(kStreamCaptured, fmt::format("{} is being captured already", stream.Describe()))
        .Culprit(session->Describe())
        .Hint(
            "end that capture with aclmdlRICaptureEnd first, or capture another stream: captures of a stream do not "
            "nest");
  }
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotUpdating(stream, "a capture"));
  Model* model = body;
  if (body == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(model, Model::Create(context, ModelKind::kCaptured));
  }
  auto lane = model->AddLane(stream.id(), ir::kNoNode);
  if (!lane.ok()) {
    if (body == nullptr) Model::Discard(model, false);
    return std::move(lane).status();
  }
  model->set_state(ModelState::kCapturing);
  const std::shared_ptr<Session> session(new Session);
  session->model_ = model;
  model->recorder = session.get();
  session->context_ = &context;
  session->origin_ = &stream;
  session->mode_ = mode;
  session->begin_thread_ = runtime::ThreadId();
  session->thread_counts_ = ThisThread().captures;
  session->members_.push_back({&stream, *lane, nullptr, {}, nullptr, {}, session->begin_thread_, {}, {}});
  session->description_ =
      fmt::format("capture of {} on {}, begun by thread {} in mode {}{}", model->Describe(), stream.Describe(),
                  session->begin_thread_, ModeName(mode), InBrackets(DescribeCall()));
  {
    Registry& registry = TheRegistry();
    MutexLock registry_lock(registry.mutex);
    session->id_ = registry.next_id++;
    registry.sessions[session->id_] = session;
  }
  context.capture_counts.Add(mode);
  session->thread_counts_->Add(mode);
  context.capturing_streams.fetch_add(1);
  stream.set_sink(session.get());
  REPRISE_LOG(kInfo, "RUNTIME", "begin {}", session->Describe());
  return {};
}

Session::Member& Session::MemberOf(const Stream& stream) {
  if (members_[last_member_].stream != &stream) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].stream == &stream) last_member_ = i;
    }
  }
  return members_[last_member_];
}

// What an open task group forbids: other tasks than kernels on its stream, and any task on another one.
Status Session::CheckGroups(Stream& stream, const ir::Task& task) {
  const Member& member = MemberOf(stream);
  Status error;
  if (member.group == nullptr) {
    const auto open =
        std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.group != nullptr; });
    error =
        Error(kTaskGroupInterrupted,
              fmt::format("a {} task on {} interrupts the task group that is open on {}", ir::SpokenName(*task.type),
                          stream.Describe(), open->stream->Describe()))
            .Culprit(fmt::format("{}, in {}", open->group_opened, Describe()))
            .Hint(fmt::format("close the group with aclmdlRICaptureTaskGrpEnd on {} before anything else is submitted",
                              open->stream->Describe()));
  } else if (task.type->kind != ir::TaskKind::kKernel && task.type->kind != ir::TaskKind::kClosure) {
    error = Error(kTaskTypeNotSupported, fmt::format("a {} task cannot be in the task group that is open on {}",
                                                     ir::SpokenName(*task.type), stream.Describe()))
                .Culprit(fmt::format("{}, in {}", member.group_opened, Describe()))
                .Hint("close the group with aclmdlRICaptureTaskGrpEnd first: only kernels may be in it");
  } else {
    return {};
  }
  if (group_error_.ok()) group_error_ = error.Clone();
  Invalidate(error.Clone());
  return error;
}

Status Session::Record(Stream& stream, const ir::Task& task, bool& taken) {
  if (invalidated()) return {};  // accepted and dropped: the end of the capture tells
  if (open_groups_ != 0) [[unlikely]] {
    REPRISE_RETURN_IF_ERROR(CheckGroups(stream, task));
  }
  Member& member = MemberOf(stream);
  if (model_->graph().lanes()[member.lane].nodes.size() >= runtime::MaxStoredTasks()) [[unlikely]] {
    Status error = runtime::StreamIsFull(stream).Culprit(Describe());
    Invalidate(error.Clone());
    return error;
  }
  taken = true;
  try {
    ir::Graph& graph = model_->graph();
    const ir::NodeId node = graph.Add(member.lane, task);
    stream.captured_tasks.store(static_cast<uint32_t>(graph.lanes()[member.lane].nodes.size()),
                                std::memory_order_release);
    if (CallTraceIsOn()) [[unlikely]]
      member.last_call = DescribeCall();
    if (member.group != nullptr) [[unlikely]] {
      ir::TaskSlot* slot = graph.MakeSlot(node);
      member.group->slots.push_back(slot);
      slot->Retain();
      slot->owner = member.group;
    }
    runtime::ThreadState& thread = ThisThread();
    thread.last_task_id = static_cast<uint32_t>(graph.lanes()[member.lane].nodes.size() - 1);
    thread.last_task_stream = stream.handle();
    return {};
  } catch (const std::bad_alloc&) {
    Status error = Error(kResourceExhausted, fmt::format("no memory for another task of {}", model_->Describe()))
                       .Hint("free memory of the host, and capture anew");
    Invalidate(error.Clone());
    return error;
  }
}

Status Session::Join(Stream& stream, Event& event, ir::NodeId record) {
  REPRISE_RETURN_IF_ERROR(stream.CheckNotLeaving());
  auto lane = model_->AddLane(stream.id(), record);
  if (!lane.ok()) {
    Status error = std::move(lane).status();
    Invalidate(error.Clone());
    return error;
  }
  members_.push_back({&stream, *lane, &event, event.Describe(), nullptr, {}, runtime::ThreadId(), DescribeCall(), {}});
  origin_->context().capturing_streams.fetch_add(1);
  stream.set_sink(this);
  return {};
}

void Session::Invalidate(Status why) {
  if (invalidated()) return;
  REPRISE_LOG(kWarning, "RUNTIME", "{} is invalidated: {}", Describe(), why.detail().what);
  why_ = std::move(why);
  model_->set_state(ModelState::kInvalidated);
}

// Calls do not destroy what is captured; who destroys the context of a capture that another thread has just begun does.
void Session::Forget(Stream& stream) {
  Invalidate(Error(kInvalidHandle, fmt::format("{} was destroyed while it was captured", stream.Describe()))
                 .Hint("destroy a stream only after its capture has ended"));
  if (&stream == origin_) return model_->AbortRecording(true);  // nobody can end it any more
  stream.set_sink(nullptr);
  std::erase_if(members_, [&](const Member& member) { return member.stream == &stream; });
  last_member_ = 0;
  stream.context().capturing_streams.fetch_sub(1);
}

// ---- End ----

// Every stream leaves the capture, and the mode counters go down. The session is gone afterwards.
void Session::Detach() {
  Context& context = origin_->context();
  for (const Member& member : members_) {
    member.stream->set_sink(nullptr);
    member.stream->attributes.cache_op_info = 0;
  }
  context.capturing_streams.fetch_sub(static_cast<uint32_t>(members_.size()));
  context.capture_counts.Remove(mode_);
  thread_counts_->Remove(mode_);
  model_->recorder = nullptr;
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  registry.sessions.erase(id_);  // usually the last reference
}

// Join rule: the last task of every forked stream is a record that some captured stream waits for, and the origin waits
// for at least one of these.
Status Session::CheckJoined() const {
  if (members_.size() == 1) return {};
  const ir::Graph& graph = model_->graph();
  std::vector<char> waited(graph.nodes().size(), 0);
  std::vector<char> waited_by_origin(graph.nodes().size(), 0);
  for (const ir::Node& node : graph.nodes()) {
    if (node.type != &ir::kEdgeWait) continue;
    const ir::NodeId record = static_cast<const ir::EdgePayload*>(node.payload)->record;
    waited[record] = 1;
    if (node.lane == 0) waited_by_origin[record] = 1;
  }
  bool reaches_origin = false;
  for (const Member& member : members_) {
    if (member.lane == 0) continue;
    const ir::Lane& lane = graph.lanes()[member.lane];
    const ir::NodeId last = lane.nodes.empty() ? ir::kNoNode : lane.nodes.back();
    const bool ends_in_record = last != ir::kNoNode && graph.node(last).type == &ir::kEdgeRecord;
    if (!ends_in_record || !waited[last]) {
      const ir::TaskInfo info = last == ir::kNoNode ? ir::TaskInfo{} : ir::Describe(graph.node(last));
      const std::string last_task = last == ir::kNoNode ? "none" : ir::SpokenName(graph.node(last));
      const std::string last_place = info.stack.empty() ? "" : ", at " + info.stack.front();
      return Error(kStreamUnjoined,
                   fmt::format("{} was forked into the capture and not joined back: {}", member.stream->Describe(),
                               ends_in_record ? "nobody waits for its last event record"
                                              : fmt::format("its last task is {}, not an event record", last_task)))
          .Culprit(fmt::format("{} joined {} by waiting for {}, in thread {}{}; its last task is number {} ({}{}{})",
                               member.stream->Describe(), Describe(), member.forked_by_text, member.joined_by_thread,
                               InBrackets(member.joined_by), lane.nodes.empty() ? 0 : lane.nodes.size() - 1, last_task,
                               last_place, member.last_call.empty() ? "" : "; " + member.last_call))
          .Hint(fmt::format("before aclmdlRICaptureEnd, record an Ex event as the last task of {} and call "
                            "aclrtStreamWaitEvent({}, event)",
                            member.stream->Describe(), origin_->Describe()));
    }
    reaches_origin |= waited_by_origin[last] != 0;
  }
  if (reaches_origin) return {};
  return Error(kStreamUnjoined, fmt::format("the {} forked streams wait for each other, but {} waits for none of them",
                                            members_.size() - 1, origin_->Describe()))
      .Culprit(Describe())
      .Hint(fmt::format("let {} wait for the last event of a forked stream", origin_->Describe()));
}

// One reset for each record, at the tail of the origin: what makes the graph replayable on the device.
Status Session::SealEvents() {
  for (const ir::NodeId record : records_) {
    ir::EdgePayload payload = *static_cast<const ir::EdgePayload*>(model_->graph().node(record).payload);
    try {
      model_->graph().Add(0, ir::MakeTask(ir::kEdgeReset, payload));
    } catch (const std::bad_alloc&) {
      return Error(kResourceExhausted, "no memory to seal the graph").Hint("free memory of the host, and capture anew");
    }
  }
  return {};
}

namespace {

// The first body below the model that is not captured completely.
const Model* UnfinishedBody(const Model& model) {
  for (const Model* body : model.bodies()) {
    if (body->state() != ModelState::kReady) return body;
    if (const Model* deeper = UnfinishedBody(*body)) return deeper;
  }
  return nullptr;
}

}  // namespace

Status NotCaptured(const Stream& stream) {
  Status error = Error(kStreamNotCaptured, fmt::format("{} is not being captured", stream.Describe()));
  if (stream.last_capture.empty()) {
    return std::move(error).Hint("begin a capture on it with aclmdlRICaptureBegin first");
  }
  // Clean-up code that ends a failed capture once more should show the failure, not this.
  return std::move(error)
      .Culprit(stream.last_capture)
      .Hint("a capture is over once aclmdlRICaptureEnd has returned, also with an error: see what that end said");
}

StatusOr<Model*> End(Stream& stream) {
  REPRISE_RETURN_IF_ERROR(CheckCapturable(stream));
  UniqueLock lock(stream.context().capture_mutex);
  Session* session = Session::Of(stream);
  if (session == nullptr) return NotCaptured(stream);
  if (&session->origin() != &stream) {
    return Error(kCaptureUnmatched, fmt::format("{} was forked into the capture; the capture began on {}",
                                                stream.Describe(), session->origin().Describe()))
        .Culprit(session->Describe())
        .Hint(fmt::format("call aclmdlRICaptureEnd on {}", session->origin().Describe()));
  }
  // From here on the capture is over, whatever comes out of it.
  Model* model = session->model_;
  Status status;
  if (session->mode_ != CaptureMode::kRelaxed && session->begin_thread_ != runtime::ThreadId()) {
    status =
        Error(kCaptureWrongThread, fmt::format("thread {} ends a capture that thread {} began in mode {}",
                                               runtime::ThreadId(), session->begin_thread_, ModeName(session->mode_)))
            .Culprit(session->Describe())
            .Hint("this capture is over: capture anew, in mode RELAXED if another thread is to end it");
  } else if (session->invalidated()) {
    const Status::Detail& why = session->why_.detail();
    status = Error(kCaptureInvalidated,
                   fmt::format("the capture was invalidated by an earlier call: {} ({})", why.what, why.code))
                 .Culprit(why.culprit.empty() ? session->Describe() : why.culprit)
                 .Hint("this capture is over: mend the call that the text names, and capture anew");
  } else if (const Model* body = UnfinishedBody(*model)) {
    status = Error(kSubGraphIsCapturing, fmt::format("{}, a body of a conditional task of {}, is {}", body->Describe(),
                                                     model->Describe(), model::StateName(body->state())))
                 .Culprit(session->Describe())
                 .Hint("capture every body between aclmdlRICaptureToModelRIBegin and aclmdlRICaptureEnd first");
  } else if (session->open_groups_ != 0) {
    const auto open = std::find_if(session->members_.begin(), session->members_.end(),
                                   [](const Session::Member& m) { return m.group != nullptr; });
    status = Error(kTaskGroupStatus, fmt::format("a task group is still open on {}", open->stream->Describe()))
                 .Culprit(fmt::format("{}, in {}", open->group_opened, session->Describe()))
                 .Hint("close it with aclmdlRICaptureTaskGrpEnd before aclmdlRICaptureEnd");
  } else {
    status = session->CheckJoined();
    if (status.ok()) status = model->CheckBodySeries();
    if (status.ok()) status = session->SealEvents();
  }
  if (status.ok()) {
    try {
      model->Seal();
      model->set_state(ModelState::kReady);
    } catch (const std::bad_alloc&) {
      status = Error(kResourceExhausted, "no memory to instantiate the graph")
                   .Hint("free memory of the host, and capture anew");
    }
  }
  REPRISE_LOG(kInfo, "RUNTIME", "end {}: {}", session->Describe(), status.code());
  Note(status.ok() ? VerboseEvent::kCaptureEnded : VerboseEvent::kCaptureFailed, [&] {
    return status.ok() ? fmt::format("{}: {} tasks on {} streams", session->Describe(), model->graph().nodes().size(),
                                     session->members_.size())
                       : fmt::format("{}: {} ({})", session->Describe(), status.detail().what, status.code());
  });
  stream.last_capture =
      status.ok() ? std::string()
                  : fmt::format("the {} ended with {}: {}", session->Describe(), status.code(), status.detail().what);
  session->Detach();
  if (!status.ok()) {
    model->AbortRecording(true);
    if (model->is_sub()) {
      model->set_state(ModelState::kInvalidated);  // its root owns it, and cannot end any more
    } else {
      lock.unlock();  // what closures of users own may call us when it goes
      Model::Discard(model);
    }
    return status;
  }
  return model;
}

CaptureInfo Info(const Stream& stream) {
  MutexLock lock(stream.context().capture_mutex);
  const Session* session = Session::Of(stream);
  if (session == nullptr) return {};
  return {session->invalidated() ? CaptureStatus::kInvalidated : CaptureStatus::kActive, &session->model()};
}

Standing StandingOf(const Stream& stream) {
  if (!stream.is_capturing()) return {};
  MutexLock lock(stream.context().capture_mutex);
  Session* const session = Session::Of(stream);
  if (session == nullptr || session->invalidated()) return {};
  try {
    if (session->order_ == nullptr) session->order_ = std::make_unique<ir::Order>();
    ir::Order& order = *session->order_;
    order.CatchUp(session->model_->graph());
    const ir::LaneId lane = session->MemberOf(stream).lane;
    return {session->id_, lane, order.Tasks(lane), order.Before(lane)};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// ---- Checks ----

bool UnsafeIsRefused(Context& context) {
  const CaptureMode open = context.capture_counts.Strictest();
  if (open == CaptureMode::kNone) [[likely]]
    return false;
  const runtime::ThreadState& thread = ThisThread();
  const CaptureMode own = thread.captures->Strictest();
  switch (thread.exchange_mode) {
    case CaptureMode::kGlobal: return open == CaptureMode::kGlobal || own == CaptureMode::kThreadLocal;
    case CaptureMode::kThreadLocal: return own == CaptureMode::kGlobal || own == CaptureMode::kThreadLocal;
    default: return false;
  }
}

namespace {

// The guides say that a forbidden call fails the capture; on the device only the call fails.
bool GuidesDecide() {
  static const bool strict = [] {
    const std::string& policy = Env(EnvVar::kCapturePolicy);
    if (policy != "strict" && policy != "observed") {
      ComplainOfSetting(EnvVar::kCapturePolicy, "is neither observed nor strict; observed is used");
    }
    return policy == "strict" || IsStrict();
  }();
  return strict;
}

// Completes a refusal that open captures of the context cause: names the strictest of those that forbid the call, and
// invalidates all of them where the guides decide.
template <class Forbids>
Status RefuseFor(Context& context, Status error, Forbids forbids) {
  MutexLock lock(context.capture_mutex);
  std::vector<std::shared_ptr<Session>> forbidding;
  {
    Registry& registry = TheRegistry();
    MutexLock registry_lock(registry.mutex);
    for (const auto& [id, session] : registry.sessions) {
      if (&session->context() == &context && forbids(*session)) forbidding.push_back(session);
    }
  }
  if (forbidding.empty()) return std::move(error).Culprit("a capture that has just ended");
  const auto strictest = std::min_element(forbidding.begin(), forbidding.end(),
                                          [](const auto& a, const auto& b) { return a->mode() < b->mode(); });
  error = std::move(error).Culprit((*strictest)->Describe());
  for (const auto& session : forbidding) session->Refused(error);
  return error;
}

}  // namespace

std::string DescribeOpenCapture() {
  std::shared_ptr<Session> open;
  {
    Registry& registry = TheRegistry();
    MutexLock lock(registry.mutex);
    if (!registry.sessions.empty()) open = registry.sessions.begin()->second;
  }
  return open != nullptr ? open->Describe() : std::string();
}

void Session::Refused(const Status& error) {
  if (GuidesDecide()) Invalidate(error.Clone());
}

Status CheckUnsafe(const char* api) {
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  if (!UnsafeIsRefused(*context)) [[likely]]
    return {};
  const int thread = runtime::ThreadId();
  const CaptureMode exchange = ThisThread().exchange_mode;
  return RefuseFor(
      *context,
      Error(kCaptureModeForbids, fmt::format("{} is not allowed on thread {} while a capture is open (the thread's "
                                             "exchange mode is {})",
                                             api, thread, ModeName(exchange)))
          .Hint("use the asynchronous form on the captured stream, or allow the call for this thread with "
                "aclmdlRICaptureThreadExchangeMode(RELAXED)"),
      [&](const Session& session) {
        const bool own = session.begin_thread() == thread;
        if (session.mode() == CaptureMode::kRelaxed) return false;
        return own || (session.mode() == CaptureMode::kGlobal && exchange == CaptureMode::kGlobal);
      });
}

Status CheckNoCaptureIn(Context& context, const char* api) {
  const uint32_t streams = context.capturing_streams.load();
  if (streams == 0) [[likely]]
    return {};
  return RefuseFor(
      context,
      Error(
          kStreamCaptured,
          fmt::format("{} is not allowed while {} of the context {} being captured: it waits for the whole device", api,
                      streams == 1 ? "a stream" : fmt::format("{} streams", streams), streams == 1 ? "is" : "are"))
          .Hint("end the capture with aclmdlRICaptureEnd first, or wait for single streams that are not captured"),
      [](const Session&) { return true; });
}

Status CheckEventNotCaptured(Event& event, const char* api) {
  const Session::CapturedRecord captured = Session::FindCaptured(event);
  if (captured.session == nullptr) [[likely]]
    return {};
  Status error =
      Error(kEventCaptured, fmt::format("{} is not allowed on {}: its latest record belongs to a running capture", api,
                                        event.Describe()))
          .Culprit(captured.session->Describe());
  // Looked up again under the lock; a capture of another context, which may go at any time, is left alone.
  if (auto context = runtime::CurrentContext(); context.ok()) {
    MutexLock lock((*context)->capture_mutex);
    const Session::CapturedRecord now = Session::FindCaptured(event);
    if (now.session != nullptr && &now.session->context() == *context) now.session->Refused(error);
  }
  return error;
}

namespace {

// Calls `attach` with the graph and the node that the calling thread submitted last.
template <class Attach>
Status ToLastNode(Attach attach) {
  const runtime::ThreadState& thread = ThisThread();
  Stream* stream = runtime::Streams().Find(thread.last_task_stream);
  if (stream == nullptr || !stream->is_capturing()) {
    return Error(kInvalidValue, "the last task of this thread was not captured")
        .Hint("call it right after a captured launch");
  }
  MutexLock lock(stream->context().capture_mutex);
  Session* session = Session::Of(*stream);
  if (session == nullptr)
    return Error(kInvalidValue, "the capture of the thread's last task has ended")
        .Hint("call it before the capture ends, right after the captured launch");
  ir::Graph& graph = session->model().graph();
  for (const Session::Member& member : session->members()) {
    if (member.stream != stream) continue;
    const ir::Lane& lane = graph.lanes()[member.lane];
    if (thread.last_task_id < lane.nodes.size()) attach(*session, graph, lane.nodes[thread.last_task_id]);
  }
  return {};
}

}  // namespace

uint32_t CacheOpInfo(const Stream& stream) {
  if (!stream.is_capturing()) return 0;
  std::lock_guard lock(stream.context().capture_mutex);
  const Session* session = Session::Of(stream);
  return session != nullptr ? session->origin().attributes.cache_op_info.load() : 0;
}

Status AttachExtendInfo(std::string text) {
  return ToLastNode([&](Session&, ir::Graph& graph, ir::NodeId node) { graph.SetExtendInfo(node, std::move(text)); });
}

Status AttachOpInfo(std::string bytes) {
  return ToLastNode([&](Session& session, ir::Graph& graph, ir::NodeId node) {
    if (session.origin().attributes.cache_op_info.load() != 0) graph.SetOpInfo(node, std::move(bytes));
  });
}

}  // namespace reprise::capture
