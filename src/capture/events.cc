// SPDX-License-Identifier: Apache-2.0
//
// Event calls on streams that may be captured: edges of the graph, forks and joins, and the events that reach outside.
// These functions know the rules and make the task; it goes through the door as any other task does (submission.h).
#include "capture/session.h"

#include <fmt/format.h>

#include "base/mutex.h"
#include "model/external_event.h"
#include "runtime/submission.h"

namespace reprise::capture {

using runtime::Event;
using runtime::Stream;

namespace {

Status NotInGraph(const Event& event, const char* what) {
  return Error(kFeatureNotSupported,
               fmt::format("{} of {} cannot be captured: it was created with flags {:#x} by {}", what, event.Describe(),
                           event.flags(), event.is_ex() ? "aclrtCreateEventExWithFlag" : "aclrtCreateEvent[WithFlag]"))
      .Hint(
          "create the event with aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), or with "
          "aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL) for order with work outside of the graph");
}

bool IsExternalEvent(const Event& event) { return !event.is_ex() && event.flags() == runtime::kEventExternal; }

Status CheckDeviceUseOnly(const Event& event) {
  if ((event.flags() & runtime::kEventDeviceUseOnly) == 0) return {};
  return Error(kInvalidValue, fmt::format("{} is for device code only (ACL_EVENT_DEVICE_USE_ONLY)", event.Describe()))
      .Hint("create the event without ACL_EVENT_DEVICE_USE_ONLY");
}

// The first use of an event fixes whether its records (waits) are default or external.
Status FixSort(std::atomic<int>& sort, bool external, const Event& event, const char* what) {
  int first = -1;
  const int wanted = external ? 1 : 0;
  if (sort.compare_exchange_strong(first, wanted) || first == wanted) return {};
  return Error(kInvalidValue, fmt::format("{} was first {} with the {} flag and must keep to it", event.Describe(),
                                          what, first == 1 ? "external" : "default"))
      .Hint(
          "use one event for order inside of graphs and another one, with the external flag, for order with work "
          "outside");
}

// Built models order their streams by flags that are reset inside of them.
Status CheckOnBoundStream(const Event& event, const Stream& stream, const char* what) {
  if (stream.bound_model.load() == nullptr || event.has_flag_semantics()) return {};
  return Error(kFeatureNotSupported, fmt::format("{} of {} is not possible on {}, which is bound to a built model",
                                                 what, event.Describe(), stream.Describe()))
      .Hint("create the event with aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC) and reset it inside the model");
}

Status CheckExternalUse(const Session& session, const Event& event, bool is_record) {
  for (const model::ExternalBinding& other : session.model().externals()) {
    if (other.event != event.handle()) continue;
    return Error(kInvalidValue, fmt::format("the graph has an external {} of {} already",
                                            other.is_record ? "record" : "wait", event.Describe()))
        .Culprit(session.Describe())
        .Hint(fmt::format("use another event for this {}", is_record ? "record" : "wait"));
  }
  return {};
}

Status AddExternal(Session& session, Stream& stream, Event& event, bool is_record) {
  if (session.model().is_sub()) {
    return Error(kFeatureNotSupported, fmt::format("an external {} of {} cannot be in a body of a conditional task",
                                                   is_record ? "record" : "wait", event.Describe()))
        .Culprit(session.Describe())
        .Hint("record or wait in the parent, before or behind the conditional task");
  }
  REPRISE_RETURN_IF_ERROR(CheckExternalUse(session, event, is_record));
  model::ExternalEventPayload payload{session.model().AddExternal(event, is_record), event.id()};
  return runtime::SubmitToSink(stream,
                               ir::MakeTask(is_record ? model::kExternalRecord : model::kExternalWait, payload));
}

Status NotCapturing(const Stream& stream) {
  return Error(kStreamNotCaptured,
               fmt::format("{} is not being captured; external records and waits belong into captures",
                           stream.Describe()))
      .Hint("outside of captures, use the call without the external flag");
}

Status CheckExternalKind(const Event& event) {
  if (event.is_ex() && event.flags() == runtime::kEventSync) return {};
  return Error(kFeatureNotSupported,
               fmt::format("{} was created with flags {:#x}; the external flag needs an Ex event with exactly "
                           "ACL_EVENT_SYNC",
                           event.Describe(), event.flags()))
      .Hint("create it with aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC)");
}

}  // namespace

Status RecordEvent(Event& event, Stream& stream, bool external) {
  REPRISE_RETURN_IF_ERROR(CheckDeviceUseOnly(event));
  if (external) REPRISE_RETURN_IF_ERROR(CheckExternalKind(event));
  REPRISE_RETURN_IF_ERROR(FixSort(event.record_sort, external, event, "recorded"));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotUpdating(stream, "an event record"));
  REPRISE_RETURN_IF_ERROR(CheckOnBoundStream(event, stream, "a record"));
  ShortLock lock;
  Session* session = nullptr;
  if (stream.is_capturing()) {
    lock.Lock(stream.context().capture_mutex);
    session = Session::Of(stream);
  }
  if (session == nullptr) {
    lock.Unlock();
    if (external) return NotCapturing(stream);
    if (stream.is_default()) {
      if (const Session::CapturedRecord captured = Session::FindCaptured(event); captured.session != nullptr) {
        return Error(kDefaultStreamCaptured, fmt::format("{} belongs to a running capture and cannot be recorded on {}",
                                                         event.Describe(), stream.Describe()))
            .Culprit(captured.session->Describe());
      }
    }
    return event.RecordOn(stream);
  }
  if (external) return AddExternal(*session, stream, event, true);
  if (IsExternalEvent(event)) {
    runtime::FlagPayload payload = runtime::MakeFlagPayload(event, 0);
    return runtime::SubmitToSink(stream, ir::MakeTask(runtime::kFlagRecord, payload));
  }
  if (!event.is_ex() || (event.flags() & runtime::kEventIpc) != 0) return NotInGraph(event, "a record");
  if ((event.flags() & runtime::kEventSync) == 0) return {};  // nobody can wait for it: nothing to capture
  if (session->invalidated()) return {};
  auto event_id = session->model().TakeEventId();
  if (!event_id.ok()) {
    Status error = std::move(event_id).status();
    session->Invalidate(error.Clone());
    return error;
  }
  ir::EdgePayload payload{static_cast<ir::NodeId>(session->model().graph().nodes().size()), *event_id, event.flags()};
  REPRISE_RETURN_IF_ERROR(runtime::SubmitToSink(stream, ir::MakeTask(ir::kEdgeRecord, payload)));
  session->records_.push_back(payload.record);
  MutexLock event_lock(event.captured_mutex);
  event.captured = {session->id_, payload.record};
  return {};
}

Status WaitEvent(Stream& stream, Event& event, uint32_t timeout_s, bool external) {
  REPRISE_RETURN_IF_ERROR(CheckDeviceUseOnly(event));
  if (external) REPRISE_RETURN_IF_ERROR(CheckExternalKind(event));
  const bool can_wait = IsExternalEvent(event) || (event.flags() & (runtime::kEventSync | runtime::kEventIpc)) != 0 ||
                        (event.flags() & runtime::kEventPlain) != 0;
  if (!can_wait) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} was created with flags {:#x}, without ACL_EVENT_SYNC: no stream can wait for it",
                             event.Describe(), event.flags()))
        .Hint("create the event with ACL_EVENT_SYNC");
  }
  if (!IsExternalEvent(event)) REPRISE_RETURN_IF_ERROR(FixSort(event.wait_sort, external, event, "waited for"));

  REPRISE_RETURN_IF_ERROR(runtime::CheckNotUpdating(stream, "an event wait"));
  REPRISE_RETURN_IF_ERROR(CheckOnBoundStream(event, stream, "a wait"));
  if (!stream.is_capturing()) {
    const Session::CapturedRecord captured =
        external || !event.is_ex() ? Session::CapturedRecord{} : Session::FindCaptured(event);
    if (captured.session == nullptr) {
      if (external) return NotCapturing(stream);
      if (!event.is_ex() && (event.flags() & runtime::kEventPlain) != 0) {
        if (runtime::EventRecord* record = event.Latest()) {
          record->Release();
        } else {
          return Error(kInvalidValue, fmt::format("{} was never recorded", event.Describe()))
              .Hint("call aclrtRecordEvent before aclrtStreamWaitEvent");
        }
      }
      return event.WaitOn(stream, timeout_s);
    }
    // The stream joins the capture.
    if (stream.is_default()) {
      return Error(kDefaultStreamCaptured,
                   fmt::format("{} would join a capture by waiting for {}", stream.Describe(), event.Describe()))
          .Culprit(captured.session->Describe());
    }
    REPRISE_RETURN_IF_ERROR(CheckFlags(stream));
    if (&captured.session->context() != &stream.context()) {
      return Error(kCaptureDependency, fmt::format("{} of another context would join a capture by waiting for {}",
                                                   stream.Describe(), event.Describe()))
          .Culprit(captured.session->Describe())
          .Hint("fork only streams of the context in which the capture began");
    }
  }
  ShortLock lock(stream.context().capture_mutex);
  Session* session = Session::Of(stream);
  if (session != nullptr && external) return AddExternal(*session, stream, event, false);
  if (session != nullptr && IsExternalEvent(event)) {
    runtime::FlagPayload payload = runtime::MakeFlagPayload(event, timeout_s);
    payload.flag->pending_waits.fetch_add(1, std::memory_order_relaxed);
    return runtime::SubmitToSink(stream, ir::MakeTask(runtime::kFlagWait, payload));
  }
  if (session != nullptr && (!event.is_ex() || (event.flags() & runtime::kEventIpc) != 0)) {
    return NotInGraph(event, "a wait");
  }
  if (session != nullptr && !session->invalidated()) [[likely]] {
    // Nearly always an edge inside of the capture, which needs no look at the other ones.
    Event::Captured last;
    {
      MutexLock event_lock(event.captured_mutex);
      last = event.captured;
    }
    if (last.session == session->capture_id()) return session->AddWait(stream, last.node);
  }
  const Session::CapturedRecord captured = Session::FindCaptured(event);
  if (session == nullptr && captured.session == nullptr) {  // it ended meanwhile
    lock.Unlock();
    return event.WaitOn(stream, timeout_s);
  }
  if (captured.session == nullptr) {
    runtime::EventRecord* record = event.Latest();
    if (record == nullptr) return {};  // never recorded: no edge
    record->Release();
    return Error(kCaptureDependency, fmt::format("{} waits for {}, which was recorded outside of the capture",
                                                 stream.Describe(), event.Describe()))
        .Culprit(session->Describe())
        .Hint("record the event inside the capture, or use an ACL_EVENT_EXTERNAL event for order with work outside");
  }
  if (session != nullptr && session != captured.session.get()) {
    Status error =
        Error(kCaptureConflict,
              fmt::format("{} waits for {}, which belongs to another capture", stream.Describe(), event.Describe()))
            .Culprit(fmt::format("{}; {}", session->Describe(), captured.session->Describe()))
            .Hint(
                "wait only for events of the same capture; both captures are invalid now: end them, and capture anew");
    session->Invalidate(error.Clone());
    captured.session->Invalidate(error.Clone());
    return error;
  }
  if (captured.session->invalidated() && session != nullptr) return {};
  if (session == nullptr) REPRISE_RETURN_IF_ERROR(captured.session->Join(stream, event, captured.node));
  return captured.session->AddWait(stream, captured.node);
}

Status Session::AddWait(Stream& stream, ir::NodeId record) {
  ir::EdgePayload payload = *static_cast<const ir::EdgePayload*>(model_->graph().node(record).payload);
  return runtime::SubmitToSink(stream, ir::MakeTask(ir::kEdgeWait, payload));
}

Status ResetEvent(Event& event, Stream& stream) {
  REPRISE_RETURN_IF_ERROR(CheckDeviceUseOnly(event));
  // An event of aclrtCreateEvent has records, to which its waits are bound: there is nothing to take back.
  bool is_recorded = false;
  if (!event.is_ex() && (event.flags() & runtime::kEventPlain) != 0) {
    if (runtime::EventRecord* record = event.Latest()) {
      is_recorded = true;
      record->Release();
    }
  }
  if (event.is_ex() || !(event.has_flag_semantics() || is_recorded)) {
    return Error(
               kFeatureNotSupported,
               fmt::format("{} cannot be reset: it was created with flags {:#x} by {}", event.Describe(), event.flags(),
                           event.is_ex() ? "aclrtCreateEventExWithFlag" : "aclrtCreateEvent[WithFlag]"))
        .Hint("create the event with aclrtCreateEventWithFlag and ACL_EVENT_SYNC or ACL_EVENT_EXTERNAL");
  }
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotUpdating(stream, "an event reset"));
  if (stream.is_capturing()) {
    MutexLock lock(stream.context().capture_mutex);
    if (Session::Of(stream) != nullptr) {
      if (!IsExternalEvent(event)) return NotInGraph(event, "a reset");
      runtime::FlagPayload payload = runtime::MakeFlagPayload(event, 0);
      return runtime::SubmitToSink(stream, ir::MakeTask(runtime::kFlagReset, payload));
    }
  }
  return event.has_flag_semantics() ? event.ResetOn(stream) : Status();
}

}  // namespace reprise::capture
