// SPDX-License-Identifier: Apache-2.0
//
// The steps of a call: their arguments, plan and submission.
#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "base/mutex.h"
#include "ir/task_info.h"
#include "ops/named_call.h"
#include "ops/op_call.h"
#include "ops/operator_chain.h"
#include "runtime/dump.h"
#include "runtime/stream.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::Scalar;

// The schema of a routine under the name of a type; tasks point to it, so it stays for ever. Their number is bounded by
// the table.
const OpSchema& SchemaOf(const NamedOp& op, const Routine& routine) {
  using Key = std::tuple<const NamedOp*, const Param*, const Computation*, uint32_t>;
  static auto* const mutex = new Mutex;
  static auto* const schemas = new std::map<Key, OpSchema>;
  MutexLock lock(*mutex);
  const Key key{&op, routine.params.data(), &routine.computation, routine.types.bits()};
  return schemas->try_emplace(key, OpSchema{OpId::kCount, op.type, routine.params, routine.types, routine.computation})
      .first->second;
}

// Makes the arguments of a step, whose objects live while it is planned.
class ArgumentMaker {
 public:
  ParamKind kind = ParamKind::kTensor;  ///< of the parameter that the next one is for

  Argument operator()(const StridedView& view) {
    if (kind == ParamKind::kTensorList) return (*this)(std::vector<StridedView>{view});
    return Argument::Object(ParamKind::kTensor, &tensors_.emplace_back(TensorOf(view)));
  }
  Argument operator()(const std::vector<StridedView>& views) {
    std::vector<Tensor>& list = lists_.emplace_back();
    for (const StridedView& view : views) list.push_back(TensorOf(view));
    return Argument::Object(ParamKind::kTensorList, &list);
  }
  Argument operator()(int64_t value) {
    switch (kind) {
      case ParamKind::kReal: return Argument::Real(static_cast<double>(value));
      case ParamKind::kBool: return Argument::Integer(kind, value != 0);
      case ParamKind::kDType: return Argument::Integer(kind, value);
      case ParamKind::kScalar: return (*this)(Scalar::Of<int64_t>(value));
      case ParamKind::kIntArray:
      case ParamKind::kFloatArray:
      case ParamKind::kBoolArray:
      case ParamKind::kScalarList: return (*this)(std::vector<int64_t>{value});
      default: return Argument::Integer(ParamKind::kInt, value);
    }
  }
  Argument operator()(bool value) {
    if (kind == ParamKind::kScalar) return (*this)(Scalar::Of<bool>(value));
    return Argument::Integer(kind == ParamKind::kInt ? kind : ParamKind::kBool, value ? 1 : 0);
  }
  Argument operator()(double value) {
    return kind == ParamKind::kScalar ? (*this)(Scalar::Of<double>(value)) : Argument::Real(value);
  }
  Argument operator()(DType type) {
    return Argument::Integer(kind == ParamKind::kInt ? kind : ParamKind::kDType, static_cast<int64_t>(type));
  }
  Argument operator()(const Scalar& value) {
    return Argument::Object(ParamKind::kScalar, &scalars_.emplace_back(value));
  }
  Argument operator()(const std::vector<int64_t>& values) {
    if (kind == ParamKind::kBoolArray) return (*this)(std::vector<bool>(values.begin(), values.end()));
    if (kind == ParamKind::kFloatArray) return (*this)(std::vector<float>(values.begin(), values.end()));
    if (kind == ParamKind::kScalarList) {
      std::vector<Scalar> list;
      for (const int64_t value : values) list.push_back(Scalar::Of<int64_t>(value));
      return (*this)(list);
    }
    return Argument::Object(ParamKind::kIntArray, &ints_.emplace_back(values));
  }
  Argument operator()(const std::vector<bool>& values) {
    return Argument::Object(ParamKind::kBoolArray, &bools_.emplace_back(values));
  }
  Argument operator()(const std::vector<float>& values) {
    if (kind == ParamKind::kScalarList) {
      std::vector<Scalar> list;
      for (const float value : values) list.push_back(Scalar::Of<float>(value));
      return (*this)(list);
    }
    return Argument::Object(ParamKind::kFloatArray, &floats_.emplace_back(values));
  }
  Argument operator()(const std::vector<Scalar>& values) {
    return Argument::Object(ParamKind::kScalarList, &scalar_lists_.emplace_back(values));
  }
  Argument operator()(const std::string& text) { return Argument::Text(texts_.emplace_back(text).c_str()); }
  Argument operator()(std::nullptr_t) {
    return kind == ParamKind::kString ? Argument::Text(nullptr) : Argument::Handle(kind, nullptr);
  }

 private:
  static Tensor TensorOf(const StridedView& view) {
    Tensor tensor = RowMajor(view.dtype, view.sizes, view.data);
    tensor.strides = view.strides;
    if (view.small_type >= 0) tensor.dtype_number = view.small_type;
    return tensor;
  }

  std::list<Tensor> tensors_;
  std::list<std::vector<Tensor>> lists_;
  std::list<Scalar> scalars_;
  std::list<std::vector<int64_t>> ints_;
  std::list<std::vector<bool>> bools_;
  std::list<std::vector<float>> floats_;
  std::list<std::vector<Scalar>> scalar_lists_;
  std::list<std::string> texts_;
};

// A refusal of the operator machinery with a number of this interface.
Status AsNamed(Status&& status) {
  const Status::Detail& detail = status.detail();
  const bool is_argument = detail.code == kOperatorArgumentNull || detail.code == kOperatorArgumentInvalid;
  return Error(is_argument ? kInvalidArgument : kInternalError, detail.what, detail.function, detail.file, detail.line)
      .Culprit(detail.culprit)
      .Hint(detail.hint);
}

}  // namespace

Routine Routine::Of(std::string_view function) {
  const OpSchema& schema = ops::SchemaOf(FindOp(function));
  return {schema.params, schema.computation, schema.types};
}

void* NamedCall::Allocate(uint64_t bytes) {
  return arena_ != nullptr ? arena_->Allocate(bytes) : memory_->Allocate(bytes);
}

void* NamedCall::Keep(std::span<const char> bytes) {
  if (arena_ != nullptr) return arena_->Keep(bytes);
  void* const block = memory_->Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(block, bytes.data(), bytes.size());
  return block;
}

StridedView NamedCall::Temporary(DType dtype, std::span<const int64_t> sizes) {
  const uint64_t bytes = *BytesOf(sizes, static_cast<uint64_t>(kernels::ItemSize(dtype)));
  return StridedView::Of(dtype, sizes, Allocate(bytes));
}

StridedView NamedCall::Numbers(DType dtype, std::span<const int64_t> sizes, const void* values) {
  const uint64_t bytes = *BytesOf(sizes, static_cast<uint64_t>(kernels::ItemSize(dtype)));
  return StridedView::Of(dtype, sizes, Keep({static_cast<const char*>(values), bytes}));
}

Status NamedCall::Lower() { return op.lower(*this); }

Status NamedCall::Step(const Routine& routine, std::span<const StepArgument> arguments) {
  ArgumentMaker maker;
  std::vector<Argument> packed;
  packed.reserve(arguments.size());
  for (const StepArgument& argument : arguments) {
    if (packed.size() < routine.params.size()) maker.kind = routine.params[packed.size()].kind;
    packed.push_back(std::visit(maker, argument));
  }
  const OpSchema& schema = SchemaOf(op, routine);
  Executor executor(schema);
  if (Status status = OpCall(schema, packed, executor).Run(); !status.ok()) return AsNamed(std::move(status));
  const uint64_t bytes = executor.workspace_bytes + executor.own_bytes;
  void* workspace = bytes != 0 ? Allocate(bytes) : nullptr;
  launches_.reserve(launches_.size() + executor.launches.size());
  for (Launch* launch : executor.launches) {
    launch->Retain();
    launches_.push_back(launch);
  }
  steps_.push_back({executor.launches.size(), workspace, bytes});
  if (executor.found_shapes != nullptr) NoteFound(executor);
  return {};
}

// Outputs are found by their addresses.
void NamedCall::NoteFound(const Executor& executor) {
  for (size_t entry = 0; entry < executor.found_shapes->outputs.size(); ++entry) {
    const auto slot = static_cast<size_t>(executor.found_shapes->outputs[entry].slot);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_bound || reinterpret_cast<uintptr_t>(outputs[i].data) != executor.slots[slot].base) continue;
      found_.push_back({i, executor.found_shapes, entry});
      break;
    }
  }
}

Status NamedCall::CopyInput(const NamedTensor& input, const NamedTensor& output) {
  if (input.data == output.data) return {};
  return Step(Routine::Of("aclnnInplaceCopy"), {output.view(), input.view()});
}

StatusOr<StridedView> NamedCall::InPlace(std::string_view name) {
  REPRISE_RETURN_IF_ERROR(CopyInput(Input(name), Output(name)));
  return Output(name).view();
}

StatusOr<std::vector<StridedView>> NamedCall::InPlaceList(std::string_view name) {
  std::vector<StridedView> views;
  const std::span<const NamedTensor> given = List(name);
  for (const NamedTensor& output : OutputList(name)) {
    REPRISE_RETURN_IF_ERROR(CopyInput(given[views.size()], output));
    views.push_back(output.view());
  }
  return views;
}

// What the program passed, for dumps: the steps behind it are kernels of one call.
void NamedCall::TellTensors() {
  auto call = std::make_shared<ir::OperatorInfo>();
  call->type = call->name = op.type;
  call->tensors = std::move(told);
  const auto add = [&](const NamedTensor& tensor, const void* data, bool is_write) {
    const StridedView view = StridedView::Of(tensor.dtype(), tensor.dims, const_cast<void*>(data));
    call->tensors.push_back(TensorInfoOf(tensor.name, view, !is_write, is_write));
  };
  for (const NamedTensor& input : inputs) {
    if (input.is_absent) continue;
    const void* data = input.data;
    if (input.has_constant && data == nullptr && !input.constant.empty()) data = Keep(input.constant);
    add(input, data, false);
  }
  for (const NamedTensor& output : outputs) {
    if (!output.is_absent) add(output, output.data, true);
  }
  Tell(launches_, call);
}

Status NamedCall::Submit(runtime::Stream& stream) {
  if (runtime::Dump::wants_tensors() && !launches_.empty()) [[unlikely]]
    TellTensors();
  std::span<Launch* const> left(launches_);
  for (const PlannedStep& step : steps_) {
    REPRISE_RETURN_IF_ERROR(SubmitLaunches(stream, left.first(step.launches), step.workspace, memory_));
    left = left.subspan(step.launches);
  }
  return {};
}

}  // namespace reprise::ops
