// SPDX-License-Identifier: Apache-2.0
#include "reprise/operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/streams.h"
#include "api/throw.h"
#include "kernels/cast.h"
#include "ops/argument.h"
#include "ops/executor.h"
#include "ops/launch.h"
#include "ops/op_call.h"
#include "ops/tensor.h"

namespace reprise {
namespace {

using ops::Argument;
using ops::ParamKind;
using Kind = OperatorArgument::Kind;

// The objects that a call is made of; they live while it is planned.
struct Objects {
  ops::InlineVector<Argument, 16> arguments;
  std::vector<ops::Tensor> tensors;
  ops::InlineVector<kernels::Scalar, 4> scalars;
  std::vector<std::vector<ops::Tensor>> tensor_lists;
  std::vector<std::vector<kernels::Scalar>> scalar_lists;
  std::vector<std::vector<int64_t>> ints;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<bool>> bools;
};

ops::Tensor MakeTensor(const TensorView& view) {
  ops::Tensor tensor;
  tensor.count = 1;
  for (int d = 0; d < view.rank; ++d) {
    tensor.sizes.push_back(view.sizes[d]);
    tensor.strides.push_back(view.strides[d]);
    tensor.count *= view.sizes[d];
  }
  tensor.data = view.data;
  tensor.dtype_number = view.dtype;
  return tensor;
}

bool MakeScalar(const OperatorArgument::ScalarValue& value, kernels::Scalar& scalar) {
  const auto dtype = static_cast<kernels::DType>(value.dtype);
  if (!kernels::IsKnown(dtype)) return false;
  scalar = kernels::Scalar(dtype, value.value);
  return true;
}

// Whether `arg` can be a parameter of `kind`; puts it there.
bool Convert(ParamKind kind, const OperatorArgument& arg, Objects& objects) {
  auto& to = objects.arguments;
  if (arg.kind == Kind::kNull && (kind <= ParamKind::kScalarList || kind == ParamKind::kString)) {
    to.push_back(kind == ParamKind::kString ? Argument::Text(nullptr) : Argument::Handle(kind, nullptr));
    return true;
  }
  const auto put = [&](const void* object) { to.push_back(Argument::Object(kind, object)); };
  switch (kind) {
    case ParamKind::kTensor:
      if (arg.kind != Kind::kTensor) return false;
      put(&objects.tensors.emplace_back(MakeTensor(*static_cast<const TensorView*>(arg.values))));
      return true;
    case ParamKind::kTensorList: {
      if (arg.kind != Kind::kTensors) return false;
      auto& list = objects.tensor_lists.emplace_back();
      for (size_t i = 0; i < arg.count; ++i) {
        list.push_back(MakeTensor(static_cast<const TensorView*>(arg.values)[i]));
      }
      put(&list);
      return true;
    }
    case ParamKind::kScalar: {
      if (arg.kind != Kind::kScalar) return false;
      kernels::Scalar& scalar = objects.scalars.emplace_back();
      put(&scalar);
      return MakeScalar(*static_cast<const OperatorArgument::ScalarValue*>(arg.values), scalar);
    }
    case ParamKind::kScalarList: {
      if (arg.kind != Kind::kScalars) return false;
      auto& list = objects.scalar_lists.emplace_back(arg.count);
      for (size_t i = 0; i < arg.count; ++i) {
        if (!MakeScalar(static_cast<const OperatorArgument::ScalarValue*>(arg.values)[i], list[i])) return false;
      }
      put(&list);
      return true;
    }
    case ParamKind::kIntArray: {
      if (arg.kind != Kind::kInts) return false;
      const auto* values = static_cast<const int64_t*>(arg.values);
      put(&objects.ints.emplace_back(values, values + arg.count));
      return true;
    }
    case ParamKind::kFloatArray: {
      if (arg.kind != Kind::kFloats) return false;
      const auto* values = static_cast<const float*>(arg.values);
      put(&objects.floats.emplace_back(values, values + arg.count));
      return true;
    }
    case ParamKind::kBoolArray: {
      if (arg.kind != Kind::kBools) return false;
      const auto* values = static_cast<const bool*>(arg.values);
      put(&objects.bools.emplace_back(values, values + arg.count));
      return true;
    }
    case ParamKind::kInt:
    case ParamKind::kBool:
    case ParamKind::kDType:
      if (arg.kind != Kind::kInt) return false;
      to.push_back(Argument::Integer(kind, arg.integer));
      return true;
    case ParamKind::kReal:
      if (arg.kind != Kind::kReal) return false;
      to.push_back(Argument::Real(arg.real));
      return true;
    case ParamKind::kString:
      if (arg.kind != Kind::kText) return false;
      to.push_back(Argument::Text(static_cast<const char*>(arg.values)));
      return true;
  }
  return false;
}

}  // namespace

int FindOperator(std::string_view name) noexcept {
  const ops::OpId id = ops::FindOp(name);
  return id == ops::OpId::kCount ? -1 : static_cast<int>(id);
}

struct PreparedOperator::Impl {
  explicit Impl(const ops::OpSchema& schema) : executor(schema) {}
  ops::Executor executor;
};

PreparedOperator::PreparedOperator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedOperator::~PreparedOperator() = default;

std::unique_ptr<PreparedOperator> PreparedOperator::Make(int op, const OperatorArgument* args, size_t count,
                                                         std::string* why) {
  auto impl = Prepare(op, args, count, /*only_tells_size=*/false, why);
  return impl == nullptr ? nullptr : std::unique_ptr<PreparedOperator>(new PreparedOperator(std::move(impl)));
}

uint64_t PreparedOperator::MostWorkspaceBytes(int op, const OperatorArgument* args, size_t count, std::string* why) {
  const auto impl = Prepare(op, args, count, /*only_tells_size=*/true, why);
  return impl == nullptr ? 0 : impl->executor.workspace_bytes;
}

std::unique_ptr<PreparedOperator::Impl> PreparedOperator::Prepare(int op, const OperatorArgument* args, size_t count,
                                                                  bool only_tells_size, std::string* why) {
  const auto refuse = [why](std::string text) -> std::unique_ptr<Impl> {
    if (why != nullptr) *why = std::move(text);
    return nullptr;
  };
  if (op < 0 || op >= static_cast<int>(ops::OpId::kCount)) return refuse("there is no such operator");
  const ops::OpSchema& schema = ops::SchemaOf(static_cast<ops::OpId>(op));
  if (count != schema.params.size()) {
    return refuse(fmt::format("{}: has {} parameters, not {}", schema.name, schema.params.size(), count));
  }
  // Nothing may move while it is pointed to.
  Objects objects;
  objects.arguments.reserve(count);
  objects.tensors.reserve(count);
  objects.scalars.reserve(count);
  const auto is_array = [](const OperatorArgument& arg) {
    return arg.kind != Kind::kNull && arg.kind != Kind::kTensor && arg.kind != Kind::kScalar && arg.kind < Kind::kInt;
  };
  if (std::any_of(args, args + count, is_array)) {
    objects.tensor_lists.reserve(count);
    objects.scalar_lists.reserve(count);
    objects.ints.reserve(count);
    objects.floats.reserve(count);
    objects.bools.reserve(count);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!Convert(schema.params[i].kind, args[i], objects)) {
      return refuse(fmt::format("{}: {} is of the wrong kind", schema.name, schema.params[i].name));
    }
  }
  auto impl = std::make_unique<Impl>(schema);
  impl->executor.only_tells_size = only_tells_size;
  const Status status = ops::OpCall(schema, objects.arguments, impl->executor).Run();
  if (!status.ok()) return refuse(why == nullptr ? std::string() : status.detail().what);
  return impl;
}

uint64_t PreparedOperator::workspace_bytes() const { return impl_->executor.workspace_bytes; }

bool PreparedOperator::can_move() const { return impl_->executor.can_move_all(); }

bool PreparedOperator::Move(void* const* data, size_t count) { return impl_->executor.MoveAll({data, count}); }

void PreparedOperator::Launch(void* stream, void* workspace, const std::shared_ptr<const OperationInfo>& info) {
  api::Call("reprise::PreparedOperator::Launch", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, api::FindStreamOrCurrent(stream));
    for (ops::Launch* launch : impl_->executor.launches) {
      if (launch->site != info) launch->site = info;
    }
    return impl_->executor.Submit(*on, workspace);
  });
}

}  // namespace reprise
