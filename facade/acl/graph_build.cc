// SPDX-License-Identifier: Apache-2.0
//
// Models built by hand from persistent streams, labels, task groups and conditional tasks.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "acl/acl.h"
#include "capture/condition.h"
#include "capture/group.h"
#include "capture/session.h"
#include "check.h"
#include "graph.h"
#include "model/group.h"
#include "model/program.h"
#include "runtime/report.h"
#include "runtime/task_store.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
namespace capture = reprise::capture;
namespace model = reprise::model;
namespace exec = reprise::exec;
namespace runtime = reprise::runtime;
using model::Model;
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::Stream;

namespace {

StatusOr<model::Label*> FindLabel(const void* handle) { return runtime::FindObject(model::Labels(), handle, "label"); }

// A built model and a stream of the current context, checked in the order that the calls share.
struct ModelAndStream {
  Model* model = nullptr;
  Stream* stream = nullptr;
};

StatusOr<ModelAndStream> FindBoth(aclmdlRI model_handle, aclrtStream stream_handle) {
  ModelAndStream found;
  REPRISE_RETURN_IF_ERROR(NotNull(model_handle, "modelRI"));
  REPRISE_ASSIGN_OR_RETURN(found.model, model::FindOwnModel(model_handle));
  REPRISE_ASSIGN_OR_RETURN(found.stream, runtime::FindStream(stream_handle));
  return found;
}

}  // namespace

aclError aclmdlRIBuildBegin(aclmdlRI* modelRI, uint32_t flag) {
  return Api("aclmdlRIBuildBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flag, "flag", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::BeginBuild(*context));
    *modelRI = model->handle();
    return {};
  });
}

aclError aclmdlRIBindStream(aclmdlRI modelRI, aclrtStream stream, uint32_t flag) {
  return Api("aclmdlRIBindStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    if (flag != ACL_MODEL_STREAM_FLAG_HEAD && flag != ACL_MODEL_STREAM_FLAG_DEFAULT) {
      return Error(kInvalidValue, fmt::format("flag is {:#x}, must be ACL_MODEL_STREAM_FLAG_HEAD or "
                                              "ACL_MODEL_STREAM_FLAG_DEFAULT",
                                              flag))
          .Hint("pass ACL_MODEL_STREAM_FLAG_HEAD for a stream that starts with the model");
    }
    // What is wrong with model and stream counts before whose they are.
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindAnyStream(stream));
    return model::Bind(*model, *found, flag == ACL_MODEL_STREAM_FLAG_HEAD);
  });
}

aclError aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream) {
  return Api("aclmdlRIUnbindStream", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelAndStream both, FindBoth(modelRI, stream));
    return model::Unbind(*both.model, *both.stream);
  });
}

aclError aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream) {
  return Api("aclmdlRIEndTask", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const ModelAndStream both, FindBoth(modelRI, stream));
    return model::AddEndTask(*both.model, *both.stream);
  });
}

aclError aclmdlRIBuildEnd(aclmdlRI modelRI, void* reserve) {
  return Api("aclmdlRIBuildEnd", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    return model::EndBuild(*model);
  });
}

aclError aclrtPersistentTaskClean(aclrtStream stream) {
  return Api("aclrtPersistentTaskClean", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    if (!found->is_persistent()) {
      return Error(kInvalidValue, fmt::format("{} was created without ACL_STREAM_PERSISTENT", found->Describe()))
          .Hint("pass a stream made by aclrtCreateStreamWithConfig with ACL_STREAM_PERSISTENT");
    }
    found->store()->Clean();
    return {};
  });
}

aclError aclrtActiveStream(aclrtStream activeStream, aclrtStream stream) {
  return Api("aclrtActiveStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(activeStream, "activeStream"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(Stream * target, runtime::FindStream(activeStream));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return model::SubmitActivate(*on, *target);
  });
}

aclError aclrtSwitchStream(void* leftValue, aclrtCondition cond, void* rightValue, aclrtCompareDataType dataType,
                           aclrtStream trueStream, aclrtStream falseStream, aclrtStream stream) {
  return Api("aclrtSwitchStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(leftValue, "leftValue"));
    REPRISE_RETURN_IF_ERROR(NotNull(rightValue, "rightValue"));
    REPRISE_RETURN_IF_ERROR(NotNull(trueStream, "trueStream"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(IsReserved(falseStream, "falseStream", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(InRange(cond, ACL_RT_EQUAL, ACL_RT_LESS_OR_EQUAL, "cond"));
    REPRISE_RETURN_IF_ERROR(InRange(dataType, ACL_RT_SWITCH_INT32, ACL_RT_SWITCH_INT64, "dataType"));
    const bool is_int64 = dataType == ACL_RT_SWITCH_INT64;
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(leftValue, is_int64 ? 8 : 4, "leftValue"));
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(rightValue, is_int64 ? 8 : 4, "rightValue"));
    REPRISE_ASSIGN_OR_RETURN(Stream * target, runtime::FindStream(trueStream));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return model::SubmitSwitch(*on, leftValue, rightValue, static_cast<exec::SwitchCondition>(cond), is_int64, *target);
  });
}

aclError aclrtCreateLabel(aclrtLabel* label) {
  return Api("aclrtCreateLabel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(label, "label"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(const model::Label* made, model::CreateLabel(*context));
    *label = made->handle;
    return {};
  });
}

aclError aclrtSetLabel(aclrtLabel label, aclrtStream stream) {
  return Api("aclrtSetLabel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(label, "label"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(model::Label * found, FindLabel(label));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return model::SetLabel(*found, *on);
  });
}

aclError aclrtDestroyLabel(aclrtLabel label) {
  return Api("aclrtDestroyLabel", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(label, "label"));
    if (model::Labels().Destroy(label, true)) return {};
    return FindLabel(label).status();
  });
}

aclError aclrtCreateLabelList(aclrtLabel* labels, size_t num, aclrtLabelList* labelList) {
  return Api("aclrtCreateLabelList", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(labels, "labels"));
    REPRISE_RETURN_IF_ERROR(NotNull(labelList, "labelList"));
    REPRISE_RETURN_IF_ERROR(InRange(num, 1, static_cast<int64_t>(model::kMaxLabels), "num"));
    auto list = std::make_unique<model::LabelList>();
    for (size_t i = 0; i < num; ++i) {
      REPRISE_RETURN_IF_ERROR(NotNullInner(labels[i], "labels[]"));
      REPRISE_ASSIGN_OR_RETURN(const model::Label* label, FindLabel(labels[i]));
      list->targets.push_back(label->target);
    }
    list->handle = model::LabelLists().Insert(list.get());
    if (list->handle == nullptr)
      return Error(kResourceExhausted, "the process has too many label lists")
          .Hint("destroy label lists that are no longer needed with aclrtDestroyLabelList");
    *labelList = list.release()->handle;
    return {};
  });
}

aclError aclrtDestroyLabelList(aclrtLabelList labelList) {
  return Api("aclrtDestroyLabelList", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(labelList, "labelList"));
    if (model::LabelLists().Destroy(labelList, true)) return {};
    return runtime::FindObject(model::LabelLists(), labelList, "label list").status();
  });
}

aclError aclrtSwitchLabelByIndex(void* ptr, uint32_t maxValue, aclrtLabelList labelList, aclrtStream stream) {
  return Api("aclrtSwitchLabelByIndex", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(labelList, "labelList"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(const model::LabelList* list,
                             runtime::FindObject(model::LabelLists(), labelList, "label list"));
    REPRISE_RETURN_IF_ERROR(InRange(maxValue, 1, static_cast<int64_t>(list->targets.size()), "maxValue"));
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(ptr, 4, "ptr"));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return model::SubmitLabelSwitch(*on, ptr, maxValue, *list);
  });
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  return Api("aclmdlRICaptureTaskGrpBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    return capture::BeginGroup(*found);
  });
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  return Api("aclmdlRICaptureTaskGrpEnd", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    *handle = nullptr;
    REPRISE_ASSIGN_OR_RETURN(const model::TaskGroup* group, capture::EndGroup(*found));
    *handle = group->handle;
    return {};
  });
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  return Api("aclmdlRICaptureTaskUpdateBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_ASSIGN_OR_RETURN(model::TaskGroup * group, runtime::FindObject(model::TaskGroups(), handle, "task group"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    if (found->bound_model.load() != nullptr) {
      return Error(kStreamModel, fmt::format("{} is bound to a built model", found->Describe()))
          .Hint("update the group on a stream that is bound to no model");
    }
    REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*found, "aclmdlRICaptureTaskUpdateBegin"));
    return model::BeginUpdate(*found, *group);
  });
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  return Api("aclmdlRICaptureTaskUpdateEnd", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(runtime::CheckNotCapturing(*found, "aclmdlRICaptureTaskUpdateEnd"));
    return model::EndUpdate(*found);
  });
}

aclError aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue, aclmdlRICondHandleFlag flag,
                                  aclmdlRICondHandle* handle) {
  return Api("aclmdlRICondHandleCreate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(InRange(flag, 0, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, "flag"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    if (model->kind() == model::ModelKind::kBuilt) {
      return Error(kFeatureNotSupported,
                   fmt::format("{} was built, not captured: it has no conditional tasks", model->Describe()))
          .Hint("use aclrtSwitchStream or aclrtSwitchLabelByIndex in a model built by hand");
    }
    REPRISE_ASSIGN_OR_RETURN(model, model::FindOwnModel(modelRI));
    if (model->state() != model::ModelState::kCapturing) {
      return Error(kInvalidValue, fmt::format("{} is {}; a condition handle is created while it is being captured",
                                              model->Describe(), StateName(model->state())))
          .Hint("create it between aclmdlRICaptureBegin and aclmdlRICaptureEnd");
    }
    REPRISE_ASSIGN_OR_RETURN(const model::Condition* condition,
                             model->AddCondition(defaultLaunchValue, flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT));
    *handle = condition->handle;
    return {};
  });
}

aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t** ptr) {
  return Api("aclmdlRICondHandleGetCondPtr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_ASSIGN_OR_RETURN(const model::Condition* condition,
                             runtime::FindObject(model::Conditions(), handle, "condition"));
    *ptr = condition->cell;
    return {};
  });
}

aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags) {
  return Api("aclmdlRIAddCondTask", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(
        InRange(params.type, ACL_MODEL_RI_COND_TYPE_IF, ACL_MODEL_RI_COND_TYPE_SWITCH, "params.type"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(NotNullInner(params.handle, "params.handle"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(params.modelRIArray, "params.modelRIArray"));
    REPRISE_ASSIGN_OR_RETURN(model::Condition * condition,
                             runtime::FindObject(model::Conditions(), params.handle, "condition"));
    const uint32_t most = params.type == ACL_MODEL_RI_COND_TYPE_IF      ? 2
                          : params.type == ACL_MODEL_RI_COND_TYPE_WHILE ? 1
                                                                        : UINT32_MAX;
    REPRISE_RETURN_IF_ERROR(InRange(params.size, 1, most, "params.size"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    return capture::AddConditionTask(*found, *condition, static_cast<model::ConditionKind>(params.type),
                                     {params.modelRIArray, params.size});
  });
}
