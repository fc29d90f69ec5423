// SPDX-License-Identifier: Apache-2.0
#include "ops/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fault.h"
#include "base/strict.h"
#include "device/memory.h"
#include "device/timeline.h"
#include "ir/task_info.h"
#include "ops/op_call.h"
#include "ops/tensor.h"
#include "runtime/dump.h"
#include "runtime/stream.h"

namespace reprise::ops {

namespace {

// Where the parts of a divided allocation begin on a device.
constexpr uintptr_t kTensorAlignment = 64;
constexpr std::string_view kWorkspace = "the workspace";

// A refusal of the runtime as an operator's error: the runtime's number goes into the text.
Status FromRuntime(const OpSchema& op, Status&& cause) {
  const Status::Detail& detail = cause.detail();
  return Error(kOperatorRuntimeError, fmt::format("{}: {} (runtime error {} {})", op.name, detail.what, detail.code,
                                                  FindErrorInfo(detail.code).name))
      .Culprit(detail.culprit)
      .Hint(std::string(SolutionOf(detail)));
}

Status BadExecutor(const void* handle) {
  if (handle == nullptr) {
    return Error(kExecutorNull, "the executor is null")
        .Hint("pass the executor that the GetWorkspaceSize call returned");
  }
  const HandleState state = Executors().Classify(handle);
  Status status = Error(kExecutorForeign, DescribeBadHandle(state, handle, "aclOpExecutor"));
  if (state != HandleState::kDestroyed) {
    return std::move(status).Hint("pass the executor that the GetWorkspaceSize call wrote");
  }
  return std::move(status).Hint(
      "phase two uses an executor up: call phase one again, or call aclSetAclOpExecutorRepeatable "
      "before the first use");
}

StatusOr<Executor*> FindExecutor(const void* handle) {
  if (Executor* executor = Executors().Find(handle)) return executor;
  return BadExecutor(handle);
}

Status ExecuteOn(const Executor& executor, OpId id, void* workspace, uint64_t workspace_bytes, const void* stream) {
  const OpSchema& op = executor.op;
  if (op.id != id) [[unlikely]] {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("{}: the executor was planned by {}GetWorkspaceSize", SchemaOf(id).name, op.name))
        .Hint("pass each executor to the second phase of its own operator");
  }
  if (executor.only_tells_size) [[unlikely]] {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("{0}: the executor was made by {0}GetMaxWorkspaceSize, which tells a size", op.name))
        .Hint(fmt::format("prepare the call with {}GetWorkspaceSize", op.name));
  }
  if (workspace_bytes < executor.workspace_bytes) {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("{}: the workspace of {} bytes is too small, {} bytes were planned", op.name,
                             workspace_bytes, executor.workspace_bytes))
        .Hint("pass at least as many bytes of device memory as GetWorkspaceSize wrote to workspaceSize");
  }
  if (workspace == nullptr && executor.workspace_bytes != 0) {
    return Error(kOperatorArgumentInvalid,
                 fmt::format("{}: the workspace is null, {} bytes were planned", op.name, executor.workspace_bytes))
        .Hint("allocate the bytes that GetWorkspaceSize wrote to workspaceSize, with aclrtMalloc");
  }
  auto found = runtime::FindStream(stream);
  if (!found.ok()) return FromRuntime(op, std::move(found).status());
  REPRISE_RETURN_IF_ERROR(executor.CheckMemory());
  if (executor.workspace_bytes != 0) {
    REPRISE_RETURN_IF_ERROR(executor.CheckRange(workspace, executor.workspace_bytes, kWorkspace));
  }
  const bool waits = executor.found_shapes != nullptr;
  if (waits) {
    if (found.value()->is_capturing() || found.value()->sink() != nullptr) {
      return FromRuntime(
          op, Error(kStreamCaptured,
                    fmt::format("{} is being captured, and the shape of the result is known only when the host "
                                "has seen what the kernels found",
                                found.value()->Describe()))
                  .Hint("call the operator before or after the capture, or on a stream outside of it; inside, use an "
                        "operator whose output shape is fixed"));
    }
    REPRISE_RETURN_IF_ERROR(executor.CheckOutputObjects());
  }
  if (Status status = executor.Submit(*found.value(), workspace); !status.ok()) {
    return FromRuntime(op, std::move(status));
  }
  if (!waits) return {};
  Status status = found.value()->Synchronize(runtime::DeadlineAfterMs(-1));
  if (!status.ok()) return FromRuntime(op, std::move(status));
  return executor.SetOutputShapes();
}

}  // namespace

HandleTable<Executor, HandleKind::kExecutor>& Executors() {
  static constinit NoDestroy<HandleTable<Executor, HandleKind::kExecutor>> table;
  return table.value;
}

Executor::~Executor() {
  for (const Launch* launch : launches) launch->Release();
}

void Executor::NoteShapes() const {
  std::string in, out;
  for (const TensorSlot& slot : slots) {
    const Param& param = op.params[slot.param];
    const Tensor* tensor = slot.handle != nullptr ? Tensors().Find(slot.handle) : nullptr;
    if (tensor == nullptr) continue;  // it was destroyed behind phase one
    const std::string text = fmt::format("{}[{}]", DTypeText(tensor->dtype_number),
                                         fmt::join(tensor->sizes.begin(), tensor->sizes.end(), ","));
    if (param.role != Role::kOutput) in += (in.empty() ? "" : ", ") + text;
    if (param.role != Role::kInput) out += (out.empty() ? "" : ", ") + text;
  }
  if (in.empty() && out.empty()) return;
  auto site = std::make_shared<OperationInfo>();
  site->shapes = fmt::format("{} -> {}", in, out);
  for (Launch* launch : launches) {
    if (launch->site == nullptr && !launch->is_shared()) launch->site = site;
  }
}

Status Executor::Submit(runtime::Stream& stream, void* workspace) const {
  // The tasks hold it from here on, those of a captured call as long as the model lives.
  const std::unique_ptr<const TaskMemory, TaskMemoryRelease> memory(own_bytes != 0 ? new TaskMemory(own_bytes)
                                                                                   : nullptr);
  if (memory != nullptr) workspace = memory->first();
  if (stream.is_capturing() || device::Timeline::wants_shapes()) [[unlikely]]
    NoteShapes();
  return SubmitLaunches(stream, {launches.data(), launches.size()}, workspace, memory.get());
}

void Executor::MoveSlot(size_t index, uintptr_t base) {
  TensorSlot& slot = slots[index];
  std::shared_ptr<const ir::OperatorInfo> told;
  if (!launches.empty() && launches[0]->call != nullptr) [[unlikely]] {
    auto moved = std::make_shared<ir::OperatorInfo>(*launches[0]->call);
    for (ir::TensorInfo& tensor : moved->tensors) {
      if (tensor.slot == static_cast<int32_t>(index)) tensor.data = reinterpret_cast<void*>(base + slot.offset_bytes);
    }
    told = std::move(moved);
  }
  for (Launch*& launch : launches) {
    const auto is_slot = [&](const OperandUse& use) { return use.slot == static_cast<int32_t>(index); };
    if (told == nullptr && std::none_of(launch->uses.begin(), launch->uses.end(), is_slot)) continue;
    if (launch->is_shared()) {  // queued or in a graph: that one keeps its addresses
      auto* copy = new Launch(*launch);
      launch->Release();
      launch = copy;
    }
    for (size_t i = 0; i < launch->refs.size(); ++i) {
      void*& data = launch->refs[i].data;
      if (is_slot(launch->uses[i]))
        data = reinterpret_cast<void*>(base + (reinterpret_cast<uintptr_t>(data) - slot.base));
    }
    if (told != nullptr) launch->call = told;
    launch->Bind();
  }
  slot.base = base;
}

bool Executor::can_move_all() const {
  if (found_shapes != nullptr || only_tells_size || slots.size() > kMostMoved) return false;
  // What a launch has prepared may be as large as its operands: callers keep many of these.
  constexpr uint64_t kMostWithState = 64 << 10;
  uint64_t most_bytes = 0;
  for (const TensorSlot& slot : slots) {
    if (slot.offset_bytes != 0) return false;
    most_bytes = std::max(most_bytes, slot.extent_bytes);
  }
  return std::all_of(launches.begin(), launches.end(), [&](const Launch* launch) {
    return launch->call == nullptr && (launch->state == nullptr || most_bytes <= kMostWithState);
  });
}

bool Executor::MoveAll(std::span<void* const> data) {
  if (runtime::Dump::wants_tensors()) [[unlikely]]
    return false;  // launches tell of the call then
  uintptr_t bases[kMostMoved];
  size_t next = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const TensorSlot& slot = slots[i];
    if (slot.handle == nullptr) continue;
    if (next == data.size()) return false;
    const auto base = bases[i] = reinterpret_cast<uintptr_t>(data[next++]);
    if ((base == 0) != (slot.base == 0) || (base ^ slot.base) % kTensorAlignment != 0) return false;
    for (size_t j = 0; j < i; ++j) {
      const TensorSlot& other = slots[j];
      if (other.handle == nullptr) continue;
      const auto overlap = [&](uintptr_t a, uintptr_t b) {
        return a < b + other.extent_bytes && b < a + slot.extent_bytes;
      };
      if ((overlap(base, bases[j]) || overlap(slot.base, other.base)) && base - bases[j] != slot.base - other.base) {
        return false;
      }
    }
  }
  if (next != data.size()) return false;
  for (Launch*& launch : launches) {
    if (!launch->is_shared()) [[likely]]
      continue;
    auto* copy = new Launch(*launch);  // queued or in a graph: that one keeps its addresses
    launch->Release();
    launch = copy;
  }
  for (Launch* launch : launches) {
    for (size_t i = 0; i < launch->refs.size(); ++i) {
      const int32_t slot = launch->uses[i].slot;
      if (slot < 0) continue;
      const auto at = static_cast<size_t>(slot);
      void*& address = launch->refs[i].data;
      address = reinterpret_cast<void*>(bases[at] + (reinterpret_cast<uintptr_t>(address) - slots[at].base));
    }
    launch->Rebind();
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].handle != nullptr) slots[i].base = bases[i];
  }
  return true;
}

Status Executor::CheckRange(const void* pointer, uint64_t bytes, std::string_view what) const {
  if (!device::ChecksPointers()) return {};
  const device::MemoryRegistry& registry = device::MemoryRegistry::Get();
  auto range = registry.CheckRange(pointer, bytes, "it");
  if (range.ok() && range.value().kind != device::MemoryKind::kPageable) [[likely]] {
    if (!IsStrict() || !range.value().is_host() || registry.IsRegisteredForDevice(pointer)) [[likely]]
      return {};
    return StrictRefusal(kOperatorRuntimeError,
                         fmt::format("{}: {} at {} is host memory, which a device does not reach", op.name, what,
                                     fmt::ptr(pointer)))
        .Culprit(fmt::format("{} {}", what, registry.Explain(pointer)))
        .Hint("allocate the tensor's memory with aclrtMalloc");
  }
  std::string why =
      range.ok() ? fmt::format("it {}", registry.Explain(pointer)) : std::move(range).status().detail().what;
  return Error(kOperatorRuntimeError, fmt::format("{}: {} needs {} bytes at {}, which are not device memory: {}",
                                                  op.name, what, bytes, fmt::ptr(pointer), why))
      .Hint(what == kWorkspace
                ? "pass memory of aclrtMalloc with as many bytes as GetWorkspaceSize wrote to workspaceSize"
                : "pass memory of aclrtMalloc, aclrtMallocHost or aclrtHostRegister that is large enough "
                  "for shape, strides and offset");
}

Status Executor::CheckMemory() const {
  for (const TensorSlot& slot : slots) {
    if (slot.extent_bytes == 0) continue;
    if (slot.base == 0) {
      return Error(kOperatorArgumentNull,
                   fmt::format("{}: {} has {} elements and no data (null)", op.name, NameOf(slot), slot.count))
          .Hint("give the tensor an address when it is created, or with aclSetRawTensorAddr before phase one");
    }
    if (slot.base % kTensorAlignment != 0 && IsStrict()) [[unlikely]] {
      return StrictRefusal(kOperatorArgumentInvalid,
                           fmt::format("{}: the data of {} begin at {:#x}, which is not a multiple of {} bytes",
                                       op.name, NameOf(slot), slot.base, kTensorAlignment))
          .Culprit(NameOf(slot))
          .Hint(fmt::format("begin each tensor's memory at a multiple of {}, and name the first element of a view by "
                            "the offset of aclCreateTensor",
                            kTensorAlignment));
    }
    REPRISE_RETURN_IF_ERROR(
        CheckRange(reinterpret_cast<const void*>(slot.base + slot.offset_bytes), slot.extent_bytes, NameOf(slot)));
  }
  return {};
}

Status Executor::CheckOutputObjects() const {
  for (const FoundShapes::Output& output : found_shapes->outputs) {
    const TensorSlot& slot = slots[static_cast<size_t>(output.slot)];
    if (Tensors().Find(slot.handle) != nullptr) continue;
    return Error(kOperatorArgumentInvalid,
                 fmt::format("{}: {}: {}", op.name, NameOf(slot),
                             DescribeBadHandle(Tensors().Classify(slot.handle), slot.handle, "aclTensor")))
        .Hint("keep the object until phase two has returned: it takes the shape of the result");
  }
  return {};
}

Status Executor::SetOutputShapes() const {
  REPRISE_RETURN_IF_ERROR(CheckOutputObjects());
  for (const FoundShapes::Output& output : found_shapes->outputs) {
    Tensor& tensor = *Tensors().Find(slots[static_cast<size_t>(output.slot)].handle);
    tensor.sizes.assign(output.sizes, static_cast<size_t>(output.rank));
    tensor.strides.resize(static_cast<size_t>(output.rank));
    tensor.count = 1;
    for (size_t d = tensor.sizes.size(); d-- > 0;) {
      if (output.is_packed) tensor.strides[d] = std::max<int64_t>(1, tensor.count);
      tensor.count *= tensor.sizes[d];
    }
  }
  return {};
}

std::string Executor::NameOf(const TensorSlot& slot) const {
  const std::string_view name = op.params[slot.param].name;
  return slot.element < 0 ? std::string(name) : fmt::format("{}[{}]", name, slot.element);
}

Status Prepare(OpId id, std::span<const Argument> args, uint64_t* workspace_bytes, void** executor,
               bool only_tells_size) {
  const OpSchema& op = SchemaOf(id);
  if (executor != nullptr) *executor = nullptr;
  if (workspace_bytes != nullptr) *workspace_bytes = 0;
  if (executor == nullptr || workspace_bytes == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: {} is null", op.name, executor == nullptr ? "executor" : "workspaceSize"))
        .Hint("pass the address of a variable that takes the result");
  }
  auto planned = std::make_unique<Executor>(op);
  planned->only_tells_size = only_tells_size;
  REPRISE_RETURN_IF_ERROR(OpCall(op, args, *planned).Run());
  void* handle = FaultPoint("ops.executor") ? nullptr : Executors().Insert(planned.get());
  if (handle == nullptr) {
    return Error(kExecutorCreationFailed, fmt::format("{}: the process has too many executors", op.name))
        .Hint("pass each executor to phase two, or destroy it with aclDestroyAclOpExecutor");
  }
  *workspace_bytes = planned.release()->workspace_bytes;
  *executor = handle;
  return {};
}

Status Execute(OpId id, void* workspace, uint64_t workspace_bytes, const void* handle, const void* stream) {
  Executor* executor = Executors().Find(handle);
  if (executor == nullptr) [[unlikely]] {
    Status status = BadExecutor(handle);
    return Error(status.code(), fmt::format("{}: {}", SchemaOf(id).name, status.detail().what))
        .Hint(status.detail().hint);
  }
  if (executor->is_repeatable) return ExecuteOn(*executor, id, workspace, workspace_bytes, stream);
  // Taken out of the table first: of two threads that use it, one gets it.
  const std::unique_ptr<Executor> consumed(Executors().Erase(handle));
  if (consumed == nullptr) return BadExecutor(handle);
  return ExecuteOn(*consumed, id, workspace, workspace_bytes, stream);
}

Status SetRepeatable(const void* handle) {
  REPRISE_ASSIGN_OR_RETURN(Executor * executor, FindExecutor(handle));
  if (executor->found_shapes != nullptr) {
    return Error(kOperatorInternalError,
                 fmt::format("{}: the executor cannot be repeatable, the shape of the result is known only on the "
                             "host when a run has ended",
                             executor->op.name))
        .Hint("prepare the operator anew for each call");
  }
  executor->is_repeatable = true;
  return {};
}

Status DestroyExecutor(const void* handle) {
  const std::unique_ptr<Executor> executor(Executors().Erase(handle));
  return executor != nullptr ? Status() : BadExecutor(handle);
}

namespace {

// The index-th tensor or list parameter of the range, or why there is none.
StatusOr<const ParamSlots*> FindParamSlots(const Executor& executor, TensorRange range, uint64_t index) {
  const auto role_of = [&](const ParamSlots& slots) { return executor.op.params[slots.param].role; };
  uint64_t position = 0;
  if (range != TensorRange::kOutputs) {
    for (const ParamSlots& slots : executor.params) {
      if (role_of(slots) != Role::kOutput && position++ == index) return &slots;
    }
  }
  if (range != TensorRange::kInputs) {
    for (const ParamSlots& slots : executor.params) {
      if (role_of(slots) != Role::kInput && position++ == index) return &slots;
    }
  }
  const char* const what = range == TensorRange::kInputs    ? "inputs"
                           : range == TensorRange::kOutputs ? "outputs"
                                                            : "inputs and outputs";
  return Error(kOperatorArgumentInvalid, fmt::format("{}: index {} is out of range, the operator has {} {}",
                                                     executor.op.name, index, position, what))
      .Hint("count from 0, in the order of the operator's parameters; a list is one of them");
}

}  // namespace

Status MoveTensor(const void* handle, TensorRange range, uint64_t index, int64_t element, const void* object,
                  void* address) {
  REPRISE_ASSIGN_OR_RETURN(Executor * executor, FindExecutor(handle));
  if (object == nullptr) {
    return Error(kExecutorNull, fmt::format("{}: the tensor is null", executor->op.name))
        .Hint("pass the object that was given to phase one");
  }
  if (!executor->is_repeatable) {
    return Error(kOperatorInternalError,
                 fmt::format("{}: the executor is not repeatable, its addresses are fixed", executor->op.name))
        .Hint("call aclSetAclOpExecutorRepeatable right after phase one");
  }
  REPRISE_ASSIGN_OR_RETURN(const ParamSlots* param, FindParamSlots(*executor, range, index));
  const bool is_list = executor->op.params[param->param].kind == ParamKind::kTensorList;
  const std::string_view name = executor->op.params[param->param].name;
  const auto invalid = [&](std::string text, std::string hint = {}) {
    return Error(kOperatorArgumentInvalid, fmt::format("{}: {}", executor->op.name, text)).Hint(std::move(hint));
  };
  if (is_list != (element >= 0)) {
    return invalid(
        fmt::format("{} (index {}) is {}", name, index, is_list ? "a list of tensors" : "a tensor, not a list"),
        is_list ? "use the Dynamic form of the function" : "use the form without Dynamic");
  }
  const auto offset = static_cast<uint64_t>(is_list ? element : 0);
  if (offset >= param->count) {
    return invalid(fmt::format("{} has {} tensors, relativeIndex is {}", name, param->count, offset),
                   "pass the place of the tensor in its list, counted from 0");
  }
  const TensorSlot& slot = executor->slots[param->first + offset];
  if (slot.handle == nullptr) {
    return invalid(fmt::format("{} was null in phase one", executor->NameOf(slot)),
                   "an executor cannot take on arguments: prepare the operator anew with this one");
  }
  // The object: a live one that describes the planned view.
  const void* tensor_handle = object;
  if (is_list) {
    REPRISE_ASSIGN_OR_RETURN(const TensorListObject* list, FindTensorList(object));
    if (offset >= list->tensors.size()) {
      return invalid(fmt::format("the list has {} tensors, relativeIndex is {}", list->tensors.size(), offset),
                     "pass the list of phase one");
    }
    tensor_handle = list->tensors[offset];
  }
  REPRISE_ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(tensor_handle));
  if (tensor_handle != slot.handle && (tensor->count != slot.count || tensor->dtype() != slot.dtype)) {
    return invalid(
        fmt::format("the tensor given for {} has {} elements of {}, planned were {} of {}", executor->NameOf(slot),
                    tensor->count, DTypeText(tensor->dtype_number), slot.count, kernels::Name(slot.dtype)),
        "shapes and types of an executor cannot change: pass the object of phase one");
  }
  if (address == nullptr && slot.extent_bytes != 0) {
    return Error(kExecutorNull,
                 fmt::format("{}: the new address of {} is null", executor->op.name, executor->NameOf(slot)))
        .Hint("pass an address in device memory");
  }
  executor->MoveSlot(param->first + offset, reinterpret_cast<uintptr_t>(address));
  return {};
}

}  // namespace reprise::ops
