// SPDX-License-Identifier: Apache-2.0
#include "model/program.h"
#include "runtime/submission.h"
#include "runtime/task_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace reprise::model {
namespace {

using runtime::Stream;

constexpr uint32_t kStreamFastLaunch = 0x1;
constexpr uint32_t kStreamDeviceUseOnly = 0x20;

Status CheckBuilt(const Model& model, const char* api) {
  if (model.kind() == ModelKind::kBuilt) return {};
  return Error(kInvalidValue,
               fmt::format("{} needs a model made by aclmdlRIBuildBegin; {} was captured", api, model.Describe()))
      .Hint("make the model with aclmdlRIBuildBegin");
}

Status NotBound(const Stream& stream, const Model& model, int code) {
  return Error(code, fmt::format("{} is not bound to {}", stream.Describe(), model.Describe()))
      .Hint("bind it with aclmdlRIBindStream first");
}

Status CheckBothBound(const Stream& stream, const Stream& target) {
  const void* model = stream.bound_model.load();
  if (model != nullptr && model == target.bound_model.load()) return {};
  return Error(kStreamModel, fmt::format("{} and {} are not bound to one model", stream.Describe(), target.Describe()))
      .Hint("bind both streams to the model with aclmdlRIBindStream first");
}

}  // namespace

HandleTable<Label, HandleKind::kLabel>& Labels() { return TheTable<Label, HandleKind::kLabel>(); }

StatusOr<Label*> CreateLabel(runtime::Context& context) {
  if (Labels().live() >= kMaxLabels)
    return Error(kResourceExhausted, fmt::format("{} labels exist", kMaxLabels))
        .Hint("destroy labels that are no longer needed with aclrtDestroyLabel");
  static std::atomic<uint64_t> labels{0};
  auto made = std::make_unique<Label>();
  made->context = &context;
  made->target = std::make_shared<exec::LabelTarget>(exec::LabelTarget{labels.fetch_add(1) + 1});
  made->handle = Labels().Insert(made.get());
  if (made->handle == nullptr)
    return Error(kResourceExhausted, "the process has too many labels")
        .Hint("destroy labels that are no longer needed with aclrtDestroyLabel");
  return made.release();
}

HandleTable<LabelList, HandleKind::kLabelList>& LabelLists() { return TheTable<LabelList, HandleKind::kLabelList>(); }

StatusOr<Model*> BeginBuild(runtime::Context& context) { return Model::Create(context, ModelKind::kBuilt); }

namespace {

// Whether the model ends somewhere as it stands now: streams may have been unbound or cleaned since.
bool HasEndTask(const Model& model) {
  for (const BoundStream& bound : model.bound()) {
    for (const ir::Node& node : bound.stream->store()->graph()->nodes()) {
      if (node.type == &exec::kEndTask) return true;
    }
  }
  return false;
}

Status CheckNotBuilt(const Model& model, const char* api) {
  if (model.state() == ModelState::kNone) return {};
  return Error(kInvalidValue, fmt::format("{} is not allowed on {}: it was built already", api, model.Describe()))
      .Hint("bind streams before aclmdlRIBuildEnd, which ends a model once");
}

}  // namespace

Status Bind(Model& model, Stream& stream, bool is_head) {
  REPRISE_RETURN_IF_ERROR(CheckBuilt(model, "aclmdlRIBindStream"));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclmdlRIBindStream"));
  if ((stream.flags() & kStreamDeviceUseOnly) != 0) {
    return Error(kRuntimeCannot,
                 fmt::format("{} is for device code only (ACL_STREAM_DEVICE_USE_ONLY)", stream.Describe()))
        .Hint("bind a stream that was created without ACL_STREAM_DEVICE_USE_ONLY");
  }
  if (stream.attributes.failure_mode.load() != 0 || stream.context().stop_on_failure.load()) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} stops on failure, which a bound stream cannot", stream.Describe()))
        .Hint("bind a stream with failure mode ACL_CONTINUE_ON_FAILURE");
  }
  if ((stream.flags() & kStreamFastLaunch) != 0) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} was created with ACL_STREAM_FAST_LAUNCH, which a bound stream cannot have",
                             stream.Describe()))
        .Hint("create the stream without ACL_STREAM_FAST_LAUNCH");
  }
  if (!stream.is_persistent()) {
    return Error(kInvalidValue, fmt::format("{} was created with flags {:#x}, without ACL_STREAM_PERSISTENT",
                                            stream.Describe(), stream.flags()))
        .Hint("create it with aclrtCreateStreamWithConfig and ACL_STREAM_PERSISTENT");
  }
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Model* own_model, FindOwnModel(model.handle()));
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Stream* own_stream, runtime::FindStream(stream.handle()));
  if (stream.bound_model.load() == nullptr) REPRISE_RETURN_IF_ERROR(CheckNotBuilt(model, "aclmdlRIBindStream"));
  const void* nobody = nullptr;
  if (!stream.bound_model.compare_exchange_strong(nobody, &model)) {
    return Error(kStreamModel, fmt::format("{} is bound to a model already", stream.Describe()))
        .Hint("unbind it with aclmdlRIUnbindStream first");
  }
  model.bound().push_back({&stream, is_head});
  return {};
}

Status Unbind(Model& model, Stream& stream) {
  REPRISE_RETURN_IF_ERROR(CheckBuilt(model, "aclmdlRIUnbindStream"));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclmdlRIUnbindStream"));
  if (stream.bound_model.load() != &model) return NotBound(stream, model, kStreamModel);
  std::erase_if(model.bound(), [&](const BoundStream& bound) { return bound.stream == &stream; });
  stream.bound_model = nullptr;
  stream.store()->Unseal();
  return {};
}

Status AddEndTask(Model& model, Stream& stream) {
  REPRISE_RETURN_IF_ERROR(CheckBuilt(model, "aclmdlRIEndTask"));
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclmdlRIEndTask"));
  if (stream.bound_model.load() != &model) return NotBound(stream, model, kRuntimeCannot);
  if (HasEndTask(model)) {
    return Error(kRuntimeCannot, fmt::format("{} has an end task already", model.Describe()))
        .Hint("call aclmdlRIEndTask once, on the stream that finishes last");
  }
  uint64_t nothing = 0;
  return runtime::Submit(stream, ir::MakeTask(exec::kEndTask, nothing));
}

Status EndBuild(Model& model) {
  REPRISE_RETURN_IF_ERROR(CheckBuilt(model, "aclmdlRIBuildEnd"));
  REPRISE_RETURN_IF_ERROR(CheckNotBuilt(model, "aclmdlRIBuildEnd"));
  // Before the plan is made: it refers to the nodes as they are.
  for (const BoundStream& bound : model.bound()) bound.stream->store()->MakeSlots();
  REPRISE_RETURN_IF_ERROR(model.SealProgram());
  model.has_end = HasEndTask(model);
  for (const BoundStream& bound : model.bound()) bound.stream->store()->Seal();
  model.set_state(ModelState::kReady);
  return {};
}

namespace {

// Null for a stream that another thread is just destroying.
const ir::Graph* TasksOf(const Stream& stream) {
  return stream.store() != nullptr ? stream.store()->graph().get() : nullptr;
}

}  // namespace

Status SubmitActivate(Stream& stream, Stream& target) {
  REPRISE_RETURN_IF_ERROR(CheckBothBound(stream, target));
  exec::ActivatePayload payload{TasksOf(target), target.id()};
  return runtime::Submit(stream, ir::MakeTask(exec::kActivateTask, payload));
}

Status SubmitSwitch(Stream& stream, const void* left, const void* right, exec::SwitchCondition condition, bool is_int64,
                    Stream& target) {
  REPRISE_RETURN_IF_ERROR(CheckBothBound(stream, target));
  exec::SwitchPayload payload{left, right, condition, is_int64, TasksOf(target), target.id()};
  return runtime::Submit(stream, ir::MakeTask(exec::kSwitchTask, payload));
}

Status SetLabel(Label& label, Stream& stream) {
  if (label.context != &stream.context())
    return Error(kLabelContext, "the label belongs to another context than the stream")
        .Hint("create label and stream in one context");
  REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(stream, "aclrtSetLabel"));
  if (stream.bound_model.load() == nullptr) {
    return Error(kStreamModel, fmt::format("{} is not bound to a model", stream.Describe()))
        .Hint("bind it with aclmdlRIBindStream first");
  }
  if (label.target->is_set) {
    return Error(kInvalidValue, fmt::format("label {} is set already", label.target->number))
        .Hint("use one label for each position");
  }
  uint64_t nothing = 0;
  REPRISE_RETURN_IF_ERROR(runtime::Submit(stream, ir::MakeTask(exec::kLabelSetTask, nothing)));
  const std::shared_ptr<ir::Graph> stored = stream.store()->graph();
  label.target->graph = stored;
  label.target->node = static_cast<ir::NodeId>(stored->nodes().size() - 1);
  label.target->is_set = true;
  return {};
}

Status SubmitLabelSwitch(Stream& stream, const void* index, uint32_t most, const LabelList& list) {
  if (stream.bound_model.load() == nullptr) {
    return Error(kStreamModel, fmt::format("{} is not bound to a model", stream.Describe()))
        .Hint("bind it with aclmdlRIBindStream first");
  }
  exec::LabelSwitchPayload payload{static_cast<const uint32_t*>(index), most, new std::vector(list.targets)};
  return runtime::Submit(stream, ir::MakeTask(exec::kLabelSwitchTask, payload));
}

}  // namespace reprise::model
