// SPDX-License-Identifier: Apache-2.0
#include "capture/group.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/call_trace.h"
#include "base/mutex.h"
#include "capture/session.h"
#include "runtime/thread.h"

namespace reprise::capture {

using runtime::Stream;

Status BeginGroup(Stream& stream) {
  MutexLock lock(stream.context().capture_mutex);
  if (stream.is_updating()) {
    return Error(kTaskGroupStatus, fmt::format("{} is updating a task group", stream.Describe()))
        .Hint("end the update with aclmdlRICaptureTaskUpdateEnd first");
  }
  Session* session = Session::Of(stream);
  if (session == nullptr) return NotCaptured(stream);
  Session::Member& member = session->MemberOf(stream);
  if (member.group != nullptr) {
    return Error(kTaskGroupStatus, fmt::format("a task group is open on {} already", stream.Describe()))
        .Culprit(fmt::format("{}, in {}", member.group_opened, session->Describe()))
        .Hint("groups do not nest: close it with aclmdlRICaptureTaskGrpEnd first");
  }
  REPRISE_ASSIGN_OR_RETURN(member.group, session->model().AddGroup());
  const std::string call = DescribeCall();
  member.group_opened =
      fmt::format("the group was opened by thread {}{}", runtime::ThreadId(), call.empty() ? "" : " (" + call + ")");
  ++session->open_groups_;
  return {};
}

StatusOr<TaskGroup*> EndGroup(Stream& stream) {
  MutexLock lock(stream.context().capture_mutex);
  Session* session = Session::Of(stream);
  if (session == nullptr) return NotCaptured(stream);
  Session::Member& member = session->MemberOf(stream);
  if (member.group == nullptr) {
    return Error(kTaskGroupStatus, fmt::format("no task group is open on {}", stream.Describe()))
        .Culprit(session->Describe())
        .Hint("open one with aclmdlRICaptureTaskGrpBegin first");
  }
  TaskGroup* group = member.group;
  member.group = nullptr;
  --session->open_groups_;
  if (!session->group_error_.ok()) return std::move(session->group_error_);
  if (session->invalidated()) {
    const Status::Detail& why = session->why_.detail();
    return Error(kCaptureInvalidated,
                 fmt::format("the capture was invalidated by an earlier call: {} ({})", why.what, why.code))
        .Culprit(session->Describe())
        .Hint("end the capture with aclmdlRICaptureEnd, mend that call, and capture anew");
  }
  return group;
}

}  // namespace reprise::capture
