// SPDX-License-Identifier: Apache-2.0
#include <complex>
#include <cstring>

#include "kernels/elementwise.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// An exponential, a division cost about as much as this many additions.
constexpr int64_t kHeavyCost = 8;

// Whether converting the scalar to `type` and back keeps its value.
bool Survives(const kernels::Scalar& scalar, DType type) {
  if (kernels::CanCast(scalar.dtype, type)) return true;
  const auto before = scalar.As<std::complex<double>>();
  return kernels::DispatchAll(type, [&](auto tag) {
    const auto converted = scalar.As<typename decltype(tag)::Type>();
    return kernels::Scalar::Of(converted).template As<std::complex<double>>() == before;
  });
}

void RunBinary(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Binary(static_cast<kernels::BinaryOp>(launch.op.computation.code), launch.refs[1], launch.refs[2],
                  launch.scalars[0], launch.compute, launch.refs[0], range);
}

void RunUnary(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Unary(static_cast<kernels::UnaryOp>(launch.op.computation.code), launch.refs[1], launch.compute,
                 launch.refs[0], range);
}

// The vector function, where the operands are of the computation's own type.
bool FindBinaryRow(Launch& launch, ir::RowCall& call) {
  const auto op = static_cast<kernels::BinaryOp>(launch.op.computation.code);
  const auto is_single = [](const kernels::TensorRef& ref) { return ref.rank != 0 && ref.strides[0] == 0; };
  const bool b_is_scalar = launch.uses[2].slot < 0;
  if (launch.refs[0].dtype != launch.compute || launch.refs[1].dtype != launch.compute || is_single(launch.refs[1]) ||
      (!b_is_scalar && launch.refs[2].dtype != launch.compute)) {
    return false;
  }
  kernels::RowArgs args{launch.refs[0].data, launch.refs[1].data, launch.refs[2].data, {}};
  if (b_is_scalar) {
    const auto& scalar = launch.scalars[static_cast<size_t>(-1 - launch.uses[2].slot)];
    launch.single = kernels::DispatchAll(
        launch.compute, [&](auto tag) { return kernels::Scalar::Of(scalar.As<typename decltype(tag)::Type>()); });
    args.b = launch.single.bytes;
  }
  bool is_scaled = false;
  if (op == kernels::BinaryOp::kAdd || op == kernels::BinaryOp::kSub) {
    kernels::DispatchAll(launch.compute, [&](auto tag) {
      using Math = kernels::MathType<typename decltype(tag)::Type>;
      const auto alpha = launch.scalars[0].As<Math>();
      std::memcpy(args.alpha, &alpha, sizeof alpha);
      if constexpr (std::is_arithmetic_v<Math>) is_scaled = alpha != Math{1};
    });
  }
  const kernels::RowFn function = kernels::FindBinaryRow(op, launch.compute, is_scaled, is_single(launch.refs[2]));
  if (function == nullptr) return false;
  call.function = function;
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

bool FindUnaryRow(Launch& launch, ir::RowCall& call) {
  if (launch.refs[0].dtype != launch.compute || launch.refs[1].dtype != launch.compute ||
      (launch.refs[1].rank != 0 && launch.refs[1].strides[0] == 0)) {
    return false;
  }
  const kernels::RowArgs args{launch.refs[0].data, launch.refs[1].data, nullptr, {}};
  call.function = kernels::FindUnaryRow(static_cast<kernels::UnaryOp>(launch.op.computation.code), launch.compute);
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

static_assert(sizeof(kernels::RowArgs) <= sizeof(ir::RowCall::args));

}  // namespace

Status PlanBinary(OpCall& call) {
  kernels::Scalar alpha = kernels::Scalar::Of<int64_t>(1);
  if (call.Has("alpha")) {
    alpha = *call.Scalar("alpha");
    if (!Survives(alpha, call.compute)) {
      return call.Invalid(fmt::format("alpha is a {} whose value the computation's type {} of {} cannot hold",
                                      kernels::Name(alpha.dtype), kernels::Name(call.compute), call.InputTypes()),
                          "pass an integer alpha for integer tensors and a real one for real tensors");
    }
  }
  Launch& launch = call.AddLaunch(RunBinary);
  launch.scalars.push_back(alpha);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  call.Read(launch, call.inputs[1]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  const bool is_division = static_cast<kernels::BinaryOp>(call.op.computation.code) == kernels::BinaryOp::kDiv;
  launch.grain = GrainOf(is_division ? kHeavyCost / 2 : 1);
  launch.find_row = FindBinaryRow;
  return {};
}

Status PlanUnary(OpCall& call) {
  Launch& launch = call.AddLaunch(RunUnary);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  const bool is_exp = static_cast<kernels::UnaryOp>(call.op.computation.code) == kernels::UnaryOp::kExp;
  launch.grain = GrainOf(is_exp ? kHeavyCost : 1);
  launch.find_row = FindUnaryRow;
  return {};
}

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kAdd = {.dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = static_cast<uint8_t>(kernels::BinaryOp::kAdd)};
constexpr Computation kSub = {.dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = static_cast<uint8_t>(kernels::BinaryOp::kSub)};
constexpr Computation kMul = {.dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = static_cast<uint8_t>(kernels::BinaryOp::kMul)};
constexpr Computation kDiv = {.dtype_rule = PromoteInputsToFloating,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = static_cast<uint8_t>(kernels::BinaryOp::kDiv)};
constexpr Computation kExp = {.dtype_rule = PromoteInputsToFloating,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanUnary,
                              .code = static_cast<uint8_t>(kernels::UnaryOp::kExp)};
constexpr Computation kRelu = {.dtype_rule = PromoteInputs,
                               .shape_rule = BroadcastInputs,
                               .aliasing = Aliasing::kSameView,
                               .plan = PlanUnary,
                               .code = static_cast<uint8_t>(kernels::UnaryOp::kRelu)};

}  // namespace reprise::ops
