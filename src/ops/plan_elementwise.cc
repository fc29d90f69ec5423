// SPDX-License-Identifier: Apache-2.0
#include <complex>

#include "kernels/elementwise.h"
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

void RunBinary(const Launch& launch, kernels::Range range, void*) {
  kernels::Binary(static_cast<kernels::BinaryOp>(launch.op.computation.code), launch.refs[1], launch.refs[2],
                  launch.scalars[0], launch.compute, launch.refs[0], range);
}

void RunUnary(const Launch& launch, kernels::Range range, void*) {
  kernels::Unary(static_cast<kernels::UnaryOp>(launch.op.computation.code), launch.refs[1], launch.compute,
                 launch.refs[0], range);
}

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
  return {};
}

}  // namespace reprise::ops
