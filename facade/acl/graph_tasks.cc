// SPDX-License-Identifier: Apache-2.0
//
// aclmdlRI*: what is inside of a model, and how to change it.
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "check.h"
#include "graph.h"
#include "ir/task_info.h"
#include "model/model.h"
#include "model/parameters.h"
#include "runtime/kernel.h"
#include "runtime/report.h"
#include "runtime/task_store.h"

namespace model = reprise::model;
namespace ir = reprise::ir;
namespace runtime = reprise::runtime;
using model::Model;
using reprise::Error;
using reprise::HandleBits;
using reprise::HandleKind;
using reprise::Status;
using reprise::StatusOr;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace reprise::facade {

namespace {

// A task handle is the model's serial number and the node: nothing has to be stored for a million tasks.
//   bits 63..56 kind, 55..32 serial number, 31..0 node
// In a model built by hand every stream counts its own tasks, hence two parts: 31..20 stream id, 19..0 node.
constexpr uint32_t kBoundNodeBits = 20;

aclmdlRITask TaskHandle(const Model& model, uint32_t node) {
  return reinterpret_cast<aclmdlRITask>((uint64_t{static_cast<uint8_t>(HandleKind::kTask)} << 56) |
                                        (uint64_t{model.serial()} << 32) | node);
}

uint32_t BoundNode(const runtime::Stream& stream, ir::NodeId node) {
  return static_cast<uint32_t>(stream.id()) << kBoundNodeBits | node;
}

// The node behind the lower half of a handle; graph null when there is none.
TaskRef Resolve(Model& model, uint32_t node) {
  if (model.kind() != model::ModelKind::kBuilt) {
    return node < model.graph().nodes().size() ? TaskRef{&model, &model.graph(), node} : TaskRef{};
  }
  for (const model::BoundStream& bound : model.bound()) {
    if (static_cast<uint32_t>(bound.stream->id()) != node >> kBoundNodeBits) continue;
    const ir::NodeId in_stream = node & ((1u << kBoundNodeBits) - 1);
    const ir::Graph& stored = *bound.stream->store()->graph();
    return in_stream < stored.nodes().size() ? TaskRef{&model, &stored, in_stream} : TaskRef{};
  }
  return {};
}

}  // namespace

StatusOr<TaskRef> FindTask(aclmdlRITask task, const char* api) {
  REPRISE_RETURN_IF_ERROR(NotNullInner(task, "task"));
  const uint64_t bits = HandleBits(task);
  if (reprise::HandleKindBits(task) == static_cast<uint8_t>(HandleKind::kTask)) {
    Model* model = model::FindSerial(static_cast<uint32_t>(bits >> 32) & 0xFFFFFF);
    const TaskRef found = model != nullptr ? Resolve(*model, static_cast<uint32_t>(bits)) : TaskRef{};
    if (found.graph != nullptr) {
      REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, api));
      return found;
    }
    return Error(kInvalidHandle, fmt::format("task handle {} belongs to a model that was destroyed", fmt::ptr(task)))
        .Hint("ask for the tasks of a live model with aclmdlRIGetTasksByStream");
  }
  return Error(kInvalidHandle, fmt::format("{} is not a task handle", fmt::ptr(task)))
      .Hint("pass a task that aclmdlRIGetTasksByStream wrote");
}

}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: the rest of this file is C functions

namespace {

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
  return Error(kInsufficientInputArray, fmt::format("the array has room for {} of {} {}", room, all, what))
      .Hint(fmt::format("pass an array for {} entries; a call with a null array asks for the number", all));
}

// Tasks of a stream that is bound to a model built by hand.
Status BoundTasks(const runtime::Stream& stream, const Model& model, aclmdlRITask* tasks, uint32_t* count) {
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
  if (&stream.context() != context) {
    return Error(kStreamContext, fmt::format("{} belongs to another context", stream.Describe()))
        .Hint("make the stream's context current with aclrtSetCurrentContext");
  }
  const size_t total = stream.store()->graph()->nodes().size();
  if (static_cast<uint32_t>(stream.id()) >= 1u << (32 - kBoundNodeBits) || total > size_t{1} << kBoundNodeBits) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} has {} tasks; handles name up to {} tasks of streams with ids below {}",
                             stream.Describe(), total, 1u << kBoundNodeBits, 1u << (32 - kBoundNodeBits)))
        .Hint("spread the tasks over more streams");
  }
  return FillArray(
      tasks, count, total, [&](size_t i) { return TaskHandle(model, BoundNode(stream, static_cast<ir::NodeId>(i))); },
      "tasks");
}

// Whether the task has a public parameter set; edges between streams inside of the graph have, host functions have not.
bool HasParams(const ir::Node& node) { return TypeOf(node) != ACL_MODEL_RI_TASK_DEFAULT; }

// The event of an event task: the user's handle for an external event, else a value that stands for the graph's own.
aclrtEvent EventOf(const TaskRef& task, uint32_t* flags) {
  const ir::Node& node = *task;
  if (node.type == &runtime::kFlagRecord || node.type == &runtime::kFlagWait || node.type == &runtime::kFlagReset) {
    const auto& payload = *static_cast<const runtime::FlagPayload*>(node.payload);
    *flags = payload.event_flags;
    return payload.event_handle;
  }
  const auto& edge = *static_cast<const ir::EdgePayload*>(node.payload);
  *flags = edge.event_flag;
  return TaskHandle(*task.model, edge.record);  // edges are in captured models only
}

constexpr const char* kHasParams =
    "kernels and value tasks have parameters: see what aclmdlRITaskGetType tells of the task";

// "KERNEL_AIVEC", "memset (MEMCPY_ASYNC)"
std::string SpokenType(const ir::Node& node) {
  return node.type->kind == ir::TaskKind::kFill ? ir::SpokenName(*node.type) : ir::Describe(node).type_name;
}

Status CheckValueCell(const void* address) {
  REPRISE_RETURN_IF_ERROR(NotNullInner(address, "devAddr"));
  if (reinterpret_cast<uintptr_t>(address) % 8 != 0) {
    return Error(kInvalidValue, fmt::format("devAddr {} is not aligned to 8 bytes", fmt::ptr(address)))
        .Culprit("parameter devAddr")
        .Hint("pass an address that is a multiple of 8");
  }
  return DeviceReaches(address, 8, "devAddr");
}

Status SetKernelParams(const TaskRef& task, const aclmdlRITaskParams& params) {
  const aclmdlRIKernelTaskParams& kernel = params.kernelTaskParams;
  if (TypeOf(*task) != ACL_MODEL_RI_TASK_KERNEL) {
    return Error(kInvalidValue, fmt::format("the task is a {}, not a kernel", SpokenType(*task)))
        .Hint("set params->type to the sort of the task, which aclmdlRITaskGetType tells");
  }
  if (params.taskGrp != nullptr) {
    return Error(kInvalidValue, "taskGrp is not null: tasks of a group are changed by a group update")
        .Hint("pass NULL for taskGrp, or change the group with aclmdlRICaptureTaskUpdateBegin");
  }
  // Looked at together first: programs set the parameters of thousands of tasks in a row.
  constexpr size_t kMostBytes = 64 << 10;
  if (kernel.funcHandle == nullptr || kernel.args == nullptr || kernel.argsSize - 1 >= kMostBytes ||
      kernel.numBlocks == 0) [[unlikely]] {
    REPRISE_RETURN_IF_ERROR(NotNullInner(kernel.funcHandle, "kernelTaskParams.funcHandle"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(kernel.args, "kernelTaskParams.args"));
    REPRISE_RETURN_IF_ERROR(InRange(kernel.argsSize, 1, kMostBytes, "kernelTaskParams.argsSize"));
    REPRISE_RETURN_IF_ERROR(InRange(kernel.numBlocks, 1, UINT32_MAX, "kernelTaskParams.numBlocks"));
  }
  auto function = runtime::FindObject(runtime::KernelFunctions(), kernel.funcHandle, "kernel function");
  if (!function.ok()) return std::move(function).status();
  runtime::LaunchAttributes attributes;
  if (kernel.cfg != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(attributes, ReadLaunchAttributes(kernel.cfg));
  }
  // Nearly always the arguments are all that changes. After a failure the model is good for nothing anyway.
  auto* const place =
      static_cast<std::byte*>(kernel.cfg != nullptr ? nullptr
                                                    : model::ArgumentsInPlace(*task.model, task.node, **function,
                                                                              kernel.numBlocks, kernel.argsSize));
  const auto distance = reinterpret_cast<uintptr_t>(place) - reinterpret_cast<uintptr_t>(kernel.args);
  const bool overlap = distance < kernel.argsSize || -distance < kernel.argsSize;  // arguments that a task tells
  std::byte small[512];
  std::unique_ptr<std::byte[]> large;
  std::byte* block = place;
  if (place == nullptr || overlap) {
    if (kernel.argsSize > sizeof small) large.reset(new std::byte[kernel.argsSize]);
    block = large != nullptr ? large.get() : small;
  }
  if (!reprise::device::CopyFromUntrusted(block, kernel.args, kernel.argsSize)) {
    return Error(kInvalidValue, fmt::format("kernelTaskParams.args {} is not accessible for {} bytes",
                                            fmt::ptr(kernel.args), kernel.argsSize))
        .Hint("pass the host address of the arguments, and their number of bytes in argsSize");
  }
  if (place != nullptr) {
    if (block != place) std::memcpy(place, block, kernel.argsSize);
    return {};
  }
  return model::SetKernel(*task.model, task.node, **function, kernel.numBlocks,
                          kernel.cfg != nullptr ? &attributes : nullptr, block, kernel.argsSize);
}

Status SetValueParams(const TaskRef& task, const aclmdlRITaskParams& params) {
  if (params.taskGrp != nullptr || params.opInfoPtr != nullptr) {
    return Error(kInvalidValue, "taskGrp and opInfoPtr must be null for a value task")
        .Hint("pass NULL for both: they belong to kernels");
  }
  if (!HasParams(*task)) {
    return Error(kInvalidValue, fmt::format("the task is a {}, which has no public parameters", SpokenType(*task)))
        .Hint(kHasParams);
  }
  if (params.type == ACL_MODEL_RI_TASK_VALUE_WRITE) {
    REPRISE_RETURN_IF_ERROR(CheckValueCell(params.valueWriteTaskParams.devAddr));
    return model::SetValueWrite(*task.model, task.node, params.valueWriteTaskParams.devAddr,
                                params.valueWriteTaskParams.value);
  }
  REPRISE_RETURN_IF_ERROR(CheckValueCell(params.valueWaitTaskParams.devAddr));
  REPRISE_RETURN_IF_ERROR(InRange(params.valueWaitTaskParams.flag, 0, 3, "valueWaitTaskParams.flag"));
  return model::SetValueWait(*task.model, task.node, params.valueWaitTaskParams.devAddr,
                             params.valueWaitTaskParams.value, params.valueWaitTaskParams.flag);
}

Status SetParams(const TaskRef& task, const aclmdlRITaskParams& params) {
  switch (params.type) {
    case ACL_MODEL_RI_TASK_KERNEL: return SetKernelParams(task, params);
    case ACL_MODEL_RI_TASK_VALUE_WRITE:
    case ACL_MODEL_RI_TASK_VALUE_WAIT: return SetValueParams(task, params);
    default:
      return Error(kInvalidValue, fmt::format("params->type is {}; only kernel and value parameters can be set",
                                              static_cast<int>(params.type)))
          .Hint("set params->type to what aclmdlRITaskGetType tells of the task");
  }
}

}  // namespace

aclError aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream* streams, uint32_t* numStreams) {
  return Api("aclmdlRIGetStreams", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(numStreams, "numStreams"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindOwnModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIGetStreams"));
    if (model->kind() == model::ModelKind::kBuilt) {
      const auto& bound = model->bound();
      return FillArray(
          streams, numStreams, bound.size(), [&](size_t i) { return bound[bound.size() - 1 - i].stream->handle(); },
          "streams");
    }
    const auto& lanes = model->lanes();
    // The stream that joined last comes first, the origin last.
    return FillArray(
        streams, numStreams, lanes.size(), [&](size_t i) { return lanes[lanes.size() - 1 - i]->handle; }, "streams");
  });
}

aclError aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask* tasks, uint32_t* numTasks) {
  return Api("aclmdlRIGetTasksByStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(numTasks, "numTasks"));
    const model::LaneHandle* lane = model::LaneHandles().Find(stream);
    if (lane == nullptr) {
      if (const runtime::Stream* user = runtime::Streams().Find(stream)) {
        if (const auto* model = static_cast<const Model*>(user->bound_model.load())) {
          return BoundTasks(*user, *model, tasks, numTasks);
        }
        return Error(kInvalidValue, fmt::format("{} is not a stream of a model", user->Describe()))
            .Hint("pass a stream that aclmdlRIGetStreams returned");
      }
      const reprise::HandleState state = model::LaneHandles().Classify(stream);
      return Error(kInvalidHandle, reprise::DescribeBadHandle(state, stream, "graph-internal stream"))
          .Hint("pass a stream that aclmdlRIGetStreams wrote, of a model that is alive");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    if (&lane->model->context() != context) {
      return Error(kStreamContext, fmt::format("the stream belongs to {} of another context", lane->model->Describe()))
          .Hint("make the model's context current with aclrtSetCurrentContext");
    }
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*lane->model, "aclmdlRIGetTasksByStream"));
    const auto& nodes = lane->model->graph().lanes()[lane->lane].nodes;
    return FillArray(
        tasks, numTasks, nodes.size(), [&](size_t i) { return TaskHandle(*lane->model, nodes[i]); }, "tasks");
  });
}

aclError aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType* type) {
  return Api("aclmdlRITaskGetType", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(type, "type"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRITaskGetType"));
    *type = TypeOf(*found);
    return {};
  });
}

aclError aclmdlRITaskGetSeqId(aclmdlRITask task, uint32_t* id) {
  return Api("aclmdlRITaskGetSeqId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(id, "id"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRITaskGetSeqId"));
    if (found.model->kind() == model::ModelKind::kBuilt) {
      return Error(kFeatureNotSupported,
                   fmt::format("{} was built by hand: its streams run side by side, and no sequence holds for "
                               "all of their tasks",
                               found.model->Describe()))
          .Hint("the order within a stream is that of aclmdlRIGetTasksByStream");
    }
    *id = found.node;
    return {};
  });
}

aclError aclmdlRITaskGetParams(aclmdlRITask task, aclmdlRITaskParams* params) {
  return Api("aclmdlRITaskGetParams", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(params, "params"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRITaskGetParams"));
    const ir::Node& node = *found;
    const ir::TaskInfo info = ir::Describe(node);
    const aclmdlRITaskType type = TypeOf(node);
    if (type == ACL_MODEL_RI_TASK_DEFAULT) {
      return Error(kInvalidValue, fmt::format("the task is a {}, which has no public parameters", SpokenType(node)))
          .Hint(kHasParams);
    }
    *params = {};
    params->type = type;
    uint32_t event_flags = 0;
    switch (type) {
      case ACL_MODEL_RI_TASK_KERNEL: {
        if (const model::TaskGroup* group = found.model->GroupOf(node)) params->taskGrp = group->handle;
        if (const std::string* op_info = found.graph->op_info(found.node)) {
          params->opInfoPtr = const_cast<char*>(op_info->data());
          params->opInfoSize = op_info->size();
        }
        aclmdlRIKernelTaskParams& kernel = params->kernelTaskParams;
        kernel.funcHandle = info.function;
        kernel.args = const_cast<void*>(info.args_address);
        kernel.argsSize = info.args_bytes;
        kernel.numBlocks = info.num_blocks;
        break;
      }
      case ACL_MODEL_RI_TASK_EVENT_RECORD:
        params->eventRecordTaskParams.event = EventOf(found, &event_flags);
        params->eventRecordTaskParams.eventFlag = event_flags;
        break;
      case ACL_MODEL_RI_TASK_EVENT_WAIT:
        params->eventWaitTaskParams.event = EventOf(found, &event_flags);
        params->eventWaitTaskParams.eventFlag = event_flags;
        break;
      case ACL_MODEL_RI_TASK_EVENT_RESET:
        params->eventResetTaskParams.event = EventOf(found, &event_flags);
        params->eventResetTaskParams.eventFlag = event_flags;
        break;
      case ACL_MODEL_RI_TASK_VALUE_WRITE:
        params->valueWriteTaskParams.devAddr = reinterpret_cast<void*>(info.address);
        params->valueWriteTaskParams.value = info.value;
        break;
      case ACL_MODEL_RI_TASK_VALUE_WAIT:
        params->valueWaitTaskParams.devAddr = reinterpret_cast<void*>(info.address);
        params->valueWaitTaskParams.value = info.value;
        params->valueWaitTaskParams.flag = info.compare;
        break;
      default: break;
    }
    return {};
  });
}

aclError aclmdlRITaskSetParams(aclmdlRITask task, aclmdlRITaskParams* params) {
  return Api("aclmdlRITaskSetParams", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(params, "params"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRITaskSetParams"));
    REPRISE_RETURN_IF_ERROR(model::CheckChangeable(*found.model));
    Status status = SetParams(found, *params);
    return status.ok() ? Status() : model::Fault(*found.model, std::move(status));
  });
}

aclError aclmdlRITaskDisable(aclmdlRITask task) {
  return Api("aclmdlRITaskDisable", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRITaskDisable"));
    REPRISE_RETURN_IF_ERROR(model::CheckChangeable(*found.model));
    if (!HasParams(*found)) {
      return model::Fault(
          *found.model,
          Error(kInvalidValue, fmt::format("the task is a {}, which cannot be disabled", SpokenType(*found)))
              .Hint("disable kernels and value tasks only; this model has to be captured again now"));
    }
    return model::Disable(*found.model, found.node);
  });
}

aclError aclmdlRIUpdate(aclmdlRI modelRI) {
  return Api("aclmdlRIUpdate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(modelRI, "modelRI"));
    REPRISE_ASSIGN_OR_RETURN(Model * model, model::FindModel(modelRI));
    REPRISE_RETURN_IF_ERROR(model::CheckNotBody(*model, "aclmdlRIUpdate"));
    REPRISE_ASSIGN_OR_RETURN(model, model::FindOwnModel(modelRI));
    return model::UpdateModel(*model);
  });
}

aclError aclmdlRIKernelTaskGetAttribute(aclmdlRITask task, aclrtLaunchKernelAttrId attrId,
                                        aclrtLaunchKernelAttrValue* attrValue) {
  return Api("aclmdlRIKernelTaskGetAttribute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(task, "task"));
    REPRISE_RETURN_IF_ERROR(NotNull(attrValue, "attrValue"));
    REPRISE_ASSIGN_OR_RETURN(const TaskRef found, FindTask(task, "aclmdlRIKernelTaskGetAttribute"));
    const ir::TaskInfo info = ir::Describe(*found);
    if (TypeOf(*found) != ACL_MODEL_RI_TASK_KERNEL) {
      return Error(kInvalidValue, fmt::format("the task is a {}, not a kernel", SpokenType(*found)))
          .Hint("ask tasks for which aclmdlRITaskGetType tells ACL_MODEL_RI_TASK_KERNEL");
    }
    aclrtLaunchKernelAttrValue value{};
    switch (attrId) {
      case ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE: value.schemMode = static_cast<uint8_t>(info.schem_mode); break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE: value.dynUBufSize = info.dynamic_ubuf; break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP: value.isDataDump = static_cast<uint8_t>(info.data_dump); break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT: value.timeout = static_cast<uint16_t>(info.timeout_s); break;
      case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US:
        value.timeoutUs = {static_cast<uint32_t>(info.timeout_us), static_cast<uint32_t>(info.timeout_us >> 32)};
        break;
      default:
        return Error(kInvalidValue,
                     fmt::format("attrId is {}; a task tells SCHEM_MODE, DYN_UBUF_SIZE, DATA_DUMP, TIMEOUT and "
                                 "TIMEOUT_US",
                                 static_cast<int>(attrId)))
            .Hint("pass one of these five");
    }
    *attrValue = value;
    return {};
  });
}
