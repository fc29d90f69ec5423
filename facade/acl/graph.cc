// SPDX-License-Identifier: Apache-2.0
//
// aclmdlRI*: capture of streams into models, and their execution.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "base/log.h"
#include "capture/session.h"
#include "check.h"
#include "graph.h"
#include "model/execution_policy.h"
#include "model/model.h"
#include "observe/json_dump.h"
#include "runtime/report.h"
#include "runtime/thread.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace capture = reprise::capture;
namespace model = reprise::model;
namespace observe = reprise::observe;
namespace runtime = reprise::runtime;
using model::Model;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace {

constexpr size_t kMaxNameBytes = 512;

// The stream to capture: its flags count before its owner.
StatusOr<runtime::Stream*> FindCapturable(aclrtStream stream) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindAnyStream(stream));
  REPRISE_RETURN_IF_ERROR(capture::CheckFlags(*found));
  return runtime::FindStream(stream);
}

}  // namespace

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return Api("aclmdlRICaptureBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(InRange(mode, 0, 2, "mode"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, FindCapturable(stream));
    return capture::Begin(*found, static_cast<capture::CaptureMode>(mode));
  });
}

aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI, aclmdlRICaptureMode mode) {
  return Api("aclmdlRICaptureToModelRIBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(InRange(mode, 0, 2, "mode"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    if (!model->is_sub()) {
      return Error(kInvalidValue, fmt::format("{} is not a body of a conditional task", model->Describe()))
          .Hint("pass a model that aclmdlRIAddCondTask returned");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, FindCapturable(stream));
    REPRISE_ASSIGN_OR_RETURN(model, model::FindOwnModel(modelRI));
    return capture::Begin(*found, static_cast<capture::CaptureMode>(mode), model);
  });
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return Api("aclmdlRICaptureGetInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    if (status == nullptr && modelRI == nullptr) {
      return Error(kInvalidArgument, "parameters status and modelRI are both null").Hint("pass at least one of them");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
    const capture::CaptureInfo info = capture::Info(*found);
    if (status != nullptr) *status = static_cast<aclmdlRICaptureStatus>(info.status);
    if (modelRI != nullptr) *modelRI = info.model != nullptr ? info.model->handle() : nullptr;
    return {};
  });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  return Api("aclmdlRICaptureEnd", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindAnyStream(stream));
    REPRISE_RETURN_IF_ERROR(capture::CheckFlags(*found));
    // A null modelRI leaves the capture as it is; on a stream without capture the more telling error comes first. The
    // model of a body is known to the caller.
    const capture::CaptureInfo info = capture::Info(*found);
    if (modelRI == nullptr && info.model != nullptr && !info.model->is_sub()) {
      return runtime::NotNullInner(modelRI, "modelRI");
    }
    REPRISE_ASSIGN_OR_RETURN(found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(capture::CheckCapturable(*found));
    if (modelRI != nullptr) *modelRI = nullptr;  // from here on there is an answer, if only that there is none
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::End(*found));
    if (modelRI != nullptr) *modelRI = model->handle();
    return {};
  });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  return Api("aclmdlRICaptureThreadExchangeMode", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(mode, "mode"));
    REPRISE_RETURN_IF_ERROR(InRange(*mode, 0, 2, "*mode"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] auto* context, runtime::CurrentContext());
    const auto previous = runtime::ThisThread().exchange_mode;
    runtime::ThisThread().exchange_mode = static_cast<capture::CaptureMode>(*mode);
    *mode = static_cast<aclmdlRICaptureMode>(previous);
    return {};
  });
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  return Api("aclmdlRIExecuteAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindAnyStream(stream));
    on->PrepareSubmit();
    REPRISE_RETURN_IF_ERROR(model::CheckStreamExecutes(*on, model::kExecuteAsyncWords));
    REPRISE_RETURN_IF_ERROR(model::CheckModelExecutes(*model, *on, model::kExecuteAsyncWords));
    return model->Execute(*on);
  });
}

aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout) {
  return Api("aclmdlRIExecute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(IsTimeout(timeout));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    if (model->kind() != model::ModelKind::kBuilt) {
      return Error(kInvalidValue,
                   fmt::format("{} was captured; aclmdlRIExecute is for built models", model->Describe()))
          .Hint("execute it with aclmdlRIExecuteAsync and synchronise the stream");
    }
    REPRISE_ASSIGN_OR_RETURN(model, model::FindOwnModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckReady(*model, model::kExecuteAsyncWords));
    return model->ExecuteAndWait(timeout);
  });
}

aclError aclmdlRIAbort(aclmdlRI modelRI) {
  return Api("aclmdlRIAbort", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIAbort"));
    REPRISE_ASSIGN_OR_RETURN(model, model::FindOwnModel(modelRI));
    if (model->kind() != model::ModelKind::kBuilt) {
      return Error(kFeatureNotSupported,
                   fmt::format("{} was captured; only built models can be aborted", model->Describe()))
          .Hint("abort the stream that executes it with aclrtStreamAbort");
    }
    if (model->replay() == nullptr) return {};
    // Not running is fine: there is nothing to abort.
    model->replay()->Abort(Error(kModelAborted, fmt::format("{} was aborted", model->Describe()))
                               .Hint("execute it again, if aclmdlRIAbort was not meant to end it for good"));
    return {};
  });
}

aclError aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void* userData) {
  return Api("aclmdlRIDestroyRegisterCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(reinterpret_cast<const void*>(func), "func"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIDestroyRegisterCallback"));
    for (const Model::DestroyCallback& other : model->destroy_callbacks) {
      if (other.function == func) {
        return Error(kInvalidValue, fmt::format("func is registered for {} already", model->Describe()))
            .Hint("register a function once for a model");
      }
    }
    model->destroy_callbacks.push_back({func, userData});
    return {};
  });
}

aclError aclmdlRIDestroyUnregisterCallback(aclmdlRI modelRI, aclrtCallback func) {
  return Api("aclmdlRIDestroyUnregisterCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(reinterpret_cast<const void*>(func), "func"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIDestroyUnregisterCallback"));
    const size_t removed = std::erase_if(
        model->destroy_callbacks, [&](const Model::DestroyCallback& callback) { return callback.function == func; });
    if (removed == 0)
      return Error(kInvalidValue, fmt::format("func is not registered for {}", model->Describe()))
          .Hint("pass the function that was given to aclmdlRIDestroyRegisterCallback");
    return {};
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  return Api("aclmdlRIDestroy", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIDestroy"));
    REPRISE_RETURN_IF_ERROR(model::CheckNotCapturingModel(*model, "aclmdlRIDestroy"));
    // The specification: no error, and no effect. It goes with its context.
    auto current = runtime::CurrentContext();
    if (!current.ok() || *current != &model->context()) {
      REPRISE_LOG(kWarning, "ASCENDCL", "{} is not destroyed: its context is not current", model->Describe());
      return {};
    }
    return Model::Destroy(model);
  });
}

aclError aclmdlRISetName(aclmdlRI modelRI, const char* name) {
  return Api("aclmdlRISetName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    model->set_name(std::string(name, strnlen(name, kMaxNameBytes - 1)));
    return {};
  });
}

aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char* name) {
  return Api("aclmdlRIGetName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    REPRISE_RETURN_IF_ERROR(InRange(maxLen, 1, UINT32_MAX, "maxLen"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    const std::string own = model->name();
    if (own.size() + 1 > maxLen) {
      return Error(kRuntimeCannot, fmt::format("maxLen is {}, the name needs {} bytes", maxLen, own.size() + 1))
          .Hint("pass a buffer of 512 bytes, which holds every name");
    }
    std::memcpy(name, own.c_str(), own.size() + 1);
    return {};
  });
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t* modelRIId) {
  return Api("aclmdlRIGetId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(modelRIId, "modelRIId"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    *modelRIId = model->id();
    return {};
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return Api("aclmdlRIDebugPrint", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    observe::LogTasks(*model);
    return {};
  });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  return Api("aclmdlRIDebugJsonPrint", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(path, "path"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    return observe::WriteJsonDump(*model, path, (flags & ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE) != 0);
  });
}
