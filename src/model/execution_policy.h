// SPDX-License-Identifier: Apache-2.0
//
// Which executions of a model are refused: the one policy, for executions by C, by C++ and by PyTorch. Stream first,
// model second, so that a caller who looks its model up under a lock of its own can ask in two steps.
#pragma once

#include "base/status.h"
#include "model/model.h"
#include "runtime/stream.h"

namespace reprise::model {

/// The words of refusals that depend on the interface. Literals.
struct ExecutionWords {
  const char* api;              ///< "aclmdlRIExecuteAsync"
  const char* while_capturing;  ///< what to do when the stream is being captured
  const char* after_changes;    ///< what to do when the model has changed since it was made ready
};
extern const ExecutionWords kExecuteAsyncWords;

namespace internal {

// Flags of streams that cannot execute a graph: ACL_STREAM_PERSISTENT, ACL_STREAM_CPU_SCHEDULE,
// ACL_STREAM_DEVICE_USE_ONLY.
inline constexpr uint32_t kNotExecutable = 0x4 | 0x10 | 0x20;

inline bool IsReady(const Model& model) {
  return model.state() == ModelState::kReady && (model.kind() != ModelKind::kBuilt || model.has_end);
}
// All checks, in their order; for streams and models that the short ones above them do not let through.
[[gnu::cold]] Status WhyNot(runtime::Stream& stream, const ExecutionWords& words);
[[gnu::cold]] Status WhyNot(const Model& model, const runtime::Stream& stream, const ExecutionWords& words);

}  // namespace internal

/// 107000 for a stream that is bound to a built model, that stores its tasks, or that only others schedule; 107027 for
/// one that is being captured; 507009 for one that updates a task group.
///
/// Threads: thread-safe, as below; a capture that begins meanwhile is refused where the execution is queued.
inline Status CheckStreamExecutes(runtime::Stream& stream, const ExecutionWords& words) {
  const bool executes = stream.bound_model.load() == nullptr && !stream.is_capturing() && !stream.is_updating() &&
                        (stream.flags() & internal::kNotExecutable) == 0;
  if (executes) [[likely]]
    return {};
  return internal::WhyNot(stream, words);
}

/// 207000 for the body of a conditional task; 107002 or 107004 unless model and stream belong to the current context;
/// 107026 for a model that is being captured, 507011 for one that is not ready or has no end.
inline Status CheckModelExecutes(const Model& model, const runtime::Stream& stream, const ExecutionWords& words) {
  const bool is_ready = !model.is_sub() && internal::IsReady(model);
  if (!is_ready) [[unlikely]]
    return internal::WhyNot(model, stream, words);
  REPRISE_RETURN_IF_ERROR(CheckOwn(model));
  return runtime::CheckOwn(stream);
}

/// The part for an execution on a stream of the model's own: 507011.
Status CheckReady(const Model& model, const ExecutionWords& words);

/// 107026 for a model that is being captured.
Status CheckNotCapturingModel(const Model& model, const char* api);
/// 207000 for a body of a conditional task: it lives and runs with its root.
Status CheckNotBody(const Model& model, const char* api);

}  // namespace reprise::model
