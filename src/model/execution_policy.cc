// SPDX-License-Identifier: Apache-2.0
#include "model/execution_policy.h"

#include <fmt/format.h>

namespace reprise::model {
const ExecutionWords kExecuteAsyncWords = {
    "aclmdlRIExecuteAsync",
    "execute the model on another stream or after the capture; to have its work in this graph, capture the same "
    "calls again, or capture them into the body of a conditional task",
    "call aclmdlRIUpdate first"};

Status internal::WhyNot(runtime::Stream& stream, const ExecutionWords& words) {
  if (stream.bound_model.load() != nullptr) {
    return Error(kInvalidValue, fmt::format("{} is bound to a built model and cannot execute one", stream.Describe()))
        .Hint("execute the model on another stream");
  }
  if (Status refused = runtime::CheckNotCapturing(stream, words.api); !refused.ok()) {
    return std::move(refused).Hint(words.while_capturing);
  }
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotUpdating(stream, "a model execution"));
  if ((stream.flags() & kNotExecutable) != 0) {
    return Error(kInvalidValue, fmt::format("{} was created with flags {:#x} and cannot execute a model",
                                            stream.Describe(), stream.flags()))
        .Hint("execute the model on a stream made by aclrtCreateStream");
  }
  return {};
}

Status internal::WhyNot(const Model& model, const runtime::Stream& stream, const ExecutionWords& words) {
  REPRISE_RETURN_IF_ERROR(CheckNotBody(model, words.api));
  REPRISE_RETURN_IF_ERROR(CheckOwn(model));
  REPRISE_RETURN_IF_ERROR(runtime::CheckOwn(stream));
  REPRISE_RETURN_IF_ERROR(CheckNotCapturingModel(model, words.api));
  return CheckReady(model, words);
}

Status CheckReady(const Model& model, const ExecutionWords& words) {
  if (model.state() != ModelState::kReady) {
    return Error(kModelNotExecutable,
                 fmt::format("{} cannot be executed: it is {}", model.Describe(), StateName(model.state())))
        .Hint(model.state() == ModelState::kUpdating ? words.after_changes
              : model.state() == ModelState::kNone   ? "call aclmdlRIBuildEnd first"
                                                     : "destroy the model and capture again");
  }
  if (internal::IsReady(model)) return {};
  return Error(kModelNotExecutable, fmt::format("{} has no end task, so it would never complete", model.Describe()))
      .Hint("call aclmdlRIEndTask on the stream that finishes last, before aclmdlRIBuildEnd");
}

Status CheckNotCapturingModel(const Model& model, const char* api) {
  if (model.state() != ModelState::kCapturing && model.state() != ModelState::kInvalidated) return {};
  return Error(kModelCaptured, fmt::format("{} is not allowed on {}: it is being captured", api, model.Describe()))
      .Hint("end the capture with aclmdlRICaptureEnd first");
}

Status CheckNotBody(const Model& model, const char* api) {
  if (!model.is_sub()) [[likely]]
    return {};
  return Error(kFeatureNotSupported,
               fmt::format("{} is not possible on {}, a body of a conditional task", api, model.Describe()))
      .Hint("call it on the model that holds the conditional task");
}

}  // namespace reprise::model
