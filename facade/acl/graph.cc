// SPDX-License-Identifier: Apache-2.0
//
// aclmdlRI*: capture of streams into models, and their execution.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "capture/model.h"
#include "capture/session.h"
#include "check.h"
#include "observe/json_dump.h"
#include "runtime/report.h"
#include "runtime/thread.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::HandleBits;
using reprise::HandleKind;
using reprise::Status;
using reprise::StatusOr;
namespace capture = reprise::capture;
namespace ir = reprise::ir;
namespace observe = reprise::observe;
namespace runtime = reprise::runtime;
using capture::Model;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace {

constexpr size_t kMaxNameBytes = 512;

// Stream flags that cannot execute a graph.
constexpr uint32_t kNotExecutable = ACL_STREAM_PERSISTENT | ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;

Status CheckNotCapturingModel(const Model& model, const char* api) {
  if (model.state() == capture::ModelState::kReady) return {};
  return Error(107026, fmt::format("{} is not allowed on {}: it is being captured", api, model.Describe()));
}

// A task handle is the model's slot and the node: nothing has to be stored for a million tasks.
//   bits 63..56 kind, 55..36 model slot (20 bits), 35..32 low bits of the model's generation, 31..0 node
aclmdlRITask TaskHandle(const Model& model, ir::NodeId node) {
  const uint64_t bits = HandleBits(model.handle());
  const uint64_t slot = bits & 0xFFFFF;
  const uint64_t generation = (bits >> 32) & 0xF;
  return reinterpret_cast<aclmdlRITask>((uint64_t{static_cast<uint8_t>(HandleKind::kTask)} << 56) | (slot << 36) |
                                        (generation << 32) | node);
}

struct TaskRef {
  Model* model = nullptr;
  ir::NodeId node = 0;
};

StatusOr<TaskRef> FindTask(aclmdlRITask task) {
  REPRISE_RETURN_IF_ERROR(NotNullInner(task, "task"));
  const uint64_t bits = HandleBits(task);
  if (reprise::HandleKindBits(task) == static_cast<uint8_t>(HandleKind::kTask)) {
    const auto slot = static_cast<uint32_t>((bits >> 36) & 0xFFFFF);
    Model* model = capture::Models().FindSlot(slot, static_cast<uint32_t>((bits >> 32) & 0xF), 0xF);
    const auto node = static_cast<ir::NodeId>(bits);
    if (model != nullptr && node < model->graph().nodes().size()) return TaskRef{model, node};
    return Error(107017, fmt::format("task handle {} belongs to a model that was destroyed", fmt::ptr(task)));
  }
  return Error(107017, fmt::format("{} is not a task handle", fmt::ptr(task)));
}

aclmdlRITaskType TypeOf(const ir::Node& node) {
  switch (node.type->kind) {
    case ir::TaskKind::kKernel:
    case ir::TaskKind::kClosure: return ACL_MODEL_RI_TASK_KERNEL;
    case ir::TaskKind::kEventRecord: return ACL_MODEL_RI_TASK_EVENT_RECORD;
    case ir::TaskKind::kEventWait: return ACL_MODEL_RI_TASK_EVENT_WAIT;
    case ir::TaskKind::kEventReset: return ACL_MODEL_RI_TASK_EVENT_RESET;
    case ir::TaskKind::kValueWrite: return ACL_MODEL_RI_TASK_VALUE_WRITE;
    case ir::TaskKind::kValueWait: return ACL_MODEL_RI_TASK_VALUE_WAIT;
    default: return ACL_MODEL_RI_TASK_DEFAULT;
  }
}

// The array protocol of GetStreams and GetTasksByStream.
template <class At>
Status FillArray(void** array, uint32_t* count, size_t total, At at, const char* what) {
  const auto all = static_cast<uint32_t>(total);
  if (array == nullptr) {
    *count = all;
    return {};
  }
  const uint32_t room = *count;
  const uint32_t filled = room < all ? room : all;
  for (uint32_t i = 0; i < filled; ++i) array[i] = at(i);
  for (uint32_t i = filled; i < room; ++i) array[i] = nullptr;
  *count = filled;
  if (room >= all) return {};
  return Error(107039, fmt::format("the array has room for {} of {} {}", room, all, what));
}

}  // namespace

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return Api("aclmdlRICaptureBegin", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(InRange(mode, 0, 2, "mode"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
    return capture::Begin(*found, static_cast<capture::CaptureMode>(mode));
  });
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return Api("aclmdlRICaptureGetInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    if (status == nullptr && modelRI == nullptr) {
      return Error(100000, "parameters status and modelRI are both null").Hint("pass at least one of them");
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
    // A null modelRI leaves the capture as it is; on a stream without capture the more telling error comes first.
    if (modelRI == nullptr && found->is_capturing()) return runtime::NotNullInner(modelRI, "modelRI");
    REPRISE_ASSIGN_OR_RETURN(found, runtime::FindStream(stream));
    if (modelRI != nullptr) *modelRI = nullptr;
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::End(*found));
    *modelRI = model->handle();
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
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindModel(modelRI));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindAnyStream(stream));
    REPRISE_RETURN_IF_ERROR(capture::CheckNotCapturing(*on, "aclmdlRIExecuteAsync"));
    if ((on->flags() & kNotExecutable) != 0) {
      return Error(107000, fmt::format("{} was created with flags {:#x} and cannot execute a model", on->Describe(),
                                       on->flags()))
          .Hint("execute the model on a stream made by aclrtCreateStream");
    }
    REPRISE_ASSIGN_OR_RETURN(model, capture::FindOwnModel(modelRI));
    REPRISE_ASSIGN_OR_RETURN(on, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(CheckNotCapturingModel(*model, "aclmdlRIExecuteAsync"));
    return model->Execute(*on);
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  return Api("aclmdlRIDestroy", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(CheckNotCapturingModel(*model, "aclmdlRIDestroy"));
    return Model::Destroy(model);
  });
}

aclError aclmdlRISetName(aclmdlRI modelRI, const char* name) {
  return Api("aclmdlRISetName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    model->set_name(std::string(name, strnlen(name, kMaxNameBytes - 1)));
    return {};
  });
}

aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char* name) {
  return Api("aclmdlRIGetName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(name, "name"));
    REPRISE_RETURN_IF_ERROR(InRange(maxLen, 1, UINT32_MAX, "maxLen"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    const std::string own = model->name();
    if (own.size() + 1 > maxLen) {
      return Error(507000, fmt::format("maxLen is {}, the name needs {} bytes", maxLen, own.size() + 1))
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
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    *modelRIId = model->id();
    return {};
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return Api("aclmdlRIDebugPrint", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    observe::LogTasks(*model);
    return {};
  });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  return Api("aclmdlRIDebugJsonPrint", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNull(path, "path"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    return observe::WriteJsonDump(*model, path, (flags & ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE) != 0);
  });
}

aclError aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream* streams, uint32_t* numStreams) {
  return Api("aclmdlRIGetStreams", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(numStreams, "numStreams"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, capture::FindOwnModel(modelRI));
    const auto& lanes = model->lanes();
    // The stream that joined last comes first, the origin last.
    return FillArray(streams, numStreams, lanes.size(), [&](size_t i) { return lanes[lanes.size() - 1 - i]->handle; },
                     "streams");
  });
}

aclError aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask* tasks, uint32_t* numTasks) {
  return Api("aclmdlRIGetTasksByStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(numTasks, "numTasks"));
    const capture::LaneHandle* lane = capture::LaneHandles().Find(stream);
    if (lane == nullptr) {
      if (const runtime::Stream* user = runtime::Streams().Find(stream)) {
        return Error(107000, fmt::format("{} is not a stream of a model", user->Describe()))
            .Hint("pass a stream that aclmdlRIGetStreams returned");
      }
      return Error(107017, reprise::DescribeBadHandle(capture::LaneHandles().Classify(stream), stream,
                                                      "graph-internal stream"));
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    if (&lane->model->context() != context) {
      return Error(107003, fmt::format("the stream belongs to {} of another context", lane->model->Describe()));
    }
    const auto& nodes = lane->model->graph().lanes()[lane->lane].nodes;
    return FillArray(tasks, numTasks, nodes.size(), [&](size_t i) { return TaskHandle(*lane->model, nodes[i]); },
                     "tasks");
  });
}

aclError aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType* type) {
  return Api("aclmdlRITaskGetType", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(type, "type"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task));
    *type = TypeOf(found.model->graph().node(found.node));
    return {};
  });
}

aclError aclmdlRITaskGetSeqId(aclmdlRITask task, uint32_t* id) {
  return Api("aclmdlRITaskGetSeqId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(id, "id"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task));
    *id = found.node;
    return {};
  });
}
