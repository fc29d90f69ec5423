// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.h"

#include <fmt/format.h>

#include <new>

#include "ir/slot.h"
#include "runtime/tasks.h"

namespace reprise::model {
namespace {

// A node that is no launch of a loaded kernel, an operator say, has none.
runtime::LaunchAttributes AttributesOfNode(const ir::Node& node) {
  const auto of = [](const ir::TaskType& type, const void* payload) {
    return runtime::IsLoadedKernel(type) ? runtime::AttributesOf(payload) : runtime::LaunchAttributes();
  };
  if (!ir::IsSlot(node.type)) return of(*node.type, node.payload);
  ir::TaskSlot& slot = *static_cast<const ir::SlotPayload*>(node.payload)->slot;
  return slot.Peek([&](const ir::HeldTask& content) { return of(content.type(), content.payload()); });
}

Status Put(Model& model, ir::NodeId node, const ir::Task& task) {
  try {
    model.graph().Replace(node, task);
  } catch (const std::bad_alloc&) {
    return Fault(model, Error(kResourceExhausted, "no memory for the new parameters")
                            .Hint("free memory of the host, and capture the graph anew"));
  }
  model.set_state(ModelState::kUpdating);
  return {};
}

}  // namespace

Status CheckChangeable(const Model& model) {
  if (model.kind() == ModelKind::kBuilt) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} was built, not captured: its tasks cannot be changed", model.Describe()))
        .Hint("change the tasks of captured models; stored tasks of a bound stream have aclrtTaskUpdateAsync");
  }
  const ModelState state = model.state();
  if (state != ModelState::kReady && state != ModelState::kUpdating) {
    return Error(kModelUpdateFailed,
                 fmt::format("the tasks of {} cannot be changed: it is {}", model.Describe(), StateName(state)))
        .Hint(state == ModelState::kFault ? "destroy the model and capture again"
                                          : "end its capture with aclmdlRICaptureEnd first");
  }
  if (model.executing()) {
    return Error(kModelUpdateFailed,
                 fmt::format("the tasks of {} cannot be changed: executions are pending", model.Describe()))
        .Hint("synchronise the streams that execute it first");
  }
  return {};
}

Status Fault(Model& model, Status why) {
  model.set_state(ModelState::kFault);
  return why;
}

Status SetKernel(Model& model, ir::NodeId node, runtime::KernelFunction& function, uint32_t blocks,
                 const runtime::LaunchAttributes* attributes, const void* args, size_t args_bytes) {
  runtime::LaunchAttributes kept;
  if (attributes == nullptr) {
    kept = AttributesOfNode(model.graph().node(node));
    attributes = &kept;
  }
  return runtime::WithKernelTask(function, blocks, *attributes, args, args_bytes,
                                 [&](const ir::Task& task) { return Put(model, node, task); });
}

void* ArgumentsInPlace(Model& model, ir::NodeId id, const runtime::KernelFunction& function, uint32_t blocks,
                       size_t args_bytes) {
  const ir::Node node = model.graph().node(id);
  void* const args = runtime::SameLaunchArguments(*node.type, node.payload, function, blocks, args_bytes);
  if (args == nullptr) return nullptr;
  model.graph().NoteNewArguments(id);
  model.set_state(ModelState::kUpdating);
  return args;
}

Status SetValueWrite(Model& model, ir::NodeId node, void* address, uint64_t value) {
  return runtime::WithValueWrite(address, value, [&](const ir::Task& task) { return Put(model, node, task); });
}

Status SetValueWait(Model& model, ir::NodeId node, void* address, uint64_t value, uint32_t compare) {
  return runtime::WithValueWait(address, value, static_cast<runtime::ValueCompare>(compare),
                                [&](const ir::Task& task) { return Put(model, node, task); });
}

Status Disable(Model& model, ir::NodeId node) {
  model.graph().Disable(node);
  model.set_state(ModelState::kUpdating);
  return {};
}

Status UpdateModel(Model& model) {
  if (model.kind() == ModelKind::kBuilt) {
    return Error(kFeatureNotSupported,
                 fmt::format("{} was built, not captured: there is nothing to update", model.Describe()))
        .Hint("leave the call out: aclmdlRIUpdate belongs to changes of captured models");
  }
  if (model.state() == ModelState::kReady && !model.executing()) return {};
  REPRISE_RETURN_IF_ERROR(CheckChangeable(model));
  try {
    model.SealChanges();
  } catch (const std::bad_alloc&) {
    return Fault(model, Error(kResourceExhausted, "no memory to bring the graph up to date")
                            .Hint("free memory of the host, and capture the graph anew"));
  }
  model.set_state(ModelState::kReady);
  return {};
}

}  // namespace reprise::model
