// SPDX-License-Identifier: Apache-2.0
#include "capture/condition.h"

#include <fmt/format.h>

#include <vector>

#include "base/mutex.h"
#include "capture/session.h"
#include "runtime/submission.h"

namespace reprise::capture {

Status AddConditionTask(runtime::Stream& stream, model::Condition& condition, model::ConditionKind kind,
                        std::span<void*> bodies) {
  MutexLock lock(stream.context().capture_mutex);
  if (!stream.is_capturing())
    return Error(kStreamNotCaptured, fmt::format("{} is not being captured", stream.Describe()))
        .Hint("begin a capture on it with aclmdlRICaptureBegin first: a conditional task is part of a graph");
  Session& session = *static_cast<Session*>(stream.sink());
  if (condition.model != &session.model()) {
    return Error(kInvalidValue, fmt::format("the condition handle was created on {}, {} is captured into {}",
                                            condition.model->Describe(), stream.Describe(), session.model().Describe()))
        .Hint("create the handle on the model that aclmdlRICaptureGetInfo returns for this stream");
  }
  if (condition.used) {
    return Error(kInvalidValue, "the condition handle is used by another conditional task already")
        .Culprit(session.Describe())
        .Hint("create one handle for each conditional task");
  }
  if (bodies.size() > static_cast<uint64_t>(Model::Available())) {
    return Error(kResourceExhausted,
                 fmt::format("{} bodies are wanted, {} models are left", bodies.size(), Model::Available()))
        .Culprit("parameter params.size")
        .Hint("pass the number of bodies in params.size, and destroy models that are no longer needed");
  }
  const size_t others = session.model().bodies().size();
  model::ConditionPayload payload{new model::ConditionTask{kind, condition.cell, {}}};
  for (size_t i = 0; i < bodies.size(); ++i) {
    auto body = Model::Create(stream.context(), model::ModelKind::kSub, &session.model());
    if (!body.ok()) {
      delete payload.task;
      session.model().DropBodies(others);
      return std::move(body).status();
    }
    payload.task->bodies.push_back(*body);
  }
  const std::vector<Model*> made = payload.task->bodies;
  if (Status status = runtime::SubmitToSink(stream, ir::MakeTask(model::kConditionTask, payload)); !status.ok()) {
    session.model().DropBodies(others);
    return status;
  }
  condition.used = true;
  for (size_t i = 0; i < bodies.size(); ++i) bodies[i] = made[i]->handle();
  return {};
}

}  // namespace reprise::capture
