// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic_functions.h"

#include <cmath>
#include <complex>

#include "kernels/math_functions.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using Complex = std::complex<double>;

Status LowerSwapped(OpCall& call, const kernels::ElementFn& fn) {
  const Operand* inputs[] = {&call.inputs[1], &call.inputs[0]};
  return LowerElementwise(call, fn, {}, inputs);
}

// ---- Sums and products ----

// out = input 0 + or - alpha * input 1; one alpha is no alpha.
Status LowerScaled(OpCall& call, const kernels::ElementFn& plain, const kernels::ElementFn& scaled) {
  if (!call.Has("alpha")) return LowerElementwise(call, plain);
  kernels::Scalar alpha;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  if (alpha.As<Complex>() == 1.0) return LowerElementwise(call, plain);
  return LowerElementwise(call, scaled, {&alpha, 1});
}

// out = input 1 - alpha * input 0.
Status LowerRsub(OpCall& call) {
  kernels::Scalar alpha;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  return LowerElementwise(call, kernels::kRsubScaledFn, {&alpha, 1});
}

template <const kernels::ElementFn& kFn>
Status LowerWithValue(OpCall& call) {
  kernels::Scalar value;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "value", value));
  return LowerElementwise(call, kFn, {&value, 1});
}

Status LowerLerps(OpCall& call) {
  kernels::Scalar weight;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "weight", weight));
  return LowerElementwise(call, kernels::kLerpByFn, {&weight, 1});
}

// ---- Division ----

enum DivMode : int64_t { kTrue, kTruncate, kFloor };

Status DivModTypes(OpCall& call) {
  return call.Int("mode") == kTrue ? PromoteInputsToFloating(call) : PromoteInputs(call);
}

Status LowerDivMod(OpCall& call) {
  const int64_t mode = call.Int("mode");
  switch (mode) {
    case kTrue: return LowerElementwise(call, kernels::kDivFn);
    case kTruncate: return LowerElementwise(call, kernels::kTruncateDivFn);
    case kFloor: return LowerElementwise(call, kernels::kFloorDivFn);
    default:
      return call.Invalid(fmt::format("mode is {}, expected 0 (true division), 1 (truncate) or 2 (floor)", mode));
  }
}

// ---- Bounds ----

bool IsNan(const kernels::Scalar& scalar) {
  return kernels::CategoryOf(scalar.dtype) == kernels::Category::kFloating && std::isnan(scalar.As<double>());
}

Status CheckBound(const OpCall& call, const Operand& bound) {
  if (KeepsValue(*bound.scalar, call.compute)) return {};
  return call.InvalidOperand(bound, fmt::format("is a {} whose value the computation's type {} cannot hold",
                                                kernels::Name(bound.dtype), kernels::Name(call.compute)));
}

// One bound, or two that are scalars.
Status LowerClamp(OpCall& call) {
  const Operand* low = call.Find("clipValueMin");
  const Operand* high = call.Find("clipValueMax");
  if (low == nullptr && high == nullptr) {
    return call.Invalid("clipValueMin and clipValueMax are both null", "pass at least one of them");
  }
  for (const Operand* bound : {low, high}) {
    if (bound != nullptr) REPRISE_RETURN_IF_ERROR(CheckBound(call, *bound));
  }
  // A NaN as a bound makes everything NaN, as in a maximum.
  const Operand* single = low == nullptr || (high != nullptr && IsNan(*high->scalar)) ? high : low;
  if (low == nullptr || high == nullptr || IsNan(*single->scalar)) {
    const Operand* inputs[] = {&call.inputs[0], single};
    return LowerElementwise(call, single == low ? kernels::kMaximumFn : kernels::kMinimumFn, {}, inputs);
  }
  const kernels::Scalar numbers[] = {*low->scalar, *high->scalar};
  return LowerElementwise(call, kernels::kClampFn, numbers);
}

Status LowerClampTensor(OpCall& call) {
  const Operand* low = call.Find("clipValueMin");
  const Operand* high = call.Find("clipValueMax");
  if (low != nullptr && high != nullptr) return LowerElementwise(call, kernels::kClampBetweenFn);
  if (low == nullptr && high == nullptr) {
    return call.Invalid("clipValueMin and clipValueMax are both null", "pass at least one of them");
  }
  return LowerElementwise(call, low != nullptr ? kernels::kMaximumFn : kernels::kMinimumFn);
}

// ---- Powers ----

bool IsInteger(DType type) { return kernels::CategoryOf(type) == kernels::Category::kInteger; }

Status LowerPowTensorScalar(OpCall& call) {
  const Operand& base = call.inputs[0];
  const Operand& exponent = call.inputs[1];
  const auto value = exponent.scalar->As<Complex>();
  if (value == 2.0) {
    const Operand* inputs[] = {&base, &base};
    return LowerElementwise(call, kernels::kMulFn, {}, inputs);
  }
  if (value == 3.0) return LowerElementwise(call, kernels::kCubeFn);
  if (IsInteger(call.compute)) {
    if (value.real() < 0) {
      return call.InvalidOperand(exponent, fmt::format("is {}: integers have no negative powers", value.real()),
                                 "cast self to a floating type");
    }
    return LowerElementwise(call, kernels::kPowFn);
  }
  if (value == 0.5) return LowerElementwise(call, kernels::kSqrtFn);
  if (value == -0.5) return LowerElementwise(call, kernels::kRsqrtFn);
  if (value == -1.0) return LowerElementwise(call, kernels::kReciprocalFn);
  if (value == -2.0) return LowerElementwise(call, kernels::kInverseSquareFn);
  return LowerElementwise(call, kernels::kPowFn);
}

Status LowerPowScalarTensor(OpCall& call) { return LowerSwapped(call, kernels::kPowOfFn); }

// The result of two real numbers is the complex type of their precision.
Status TypesOfParts(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputsAlone(call));
  const DType result = call.compute == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
  if (call.outputs[0].dtype == result) return {};
  return call.InvalidOperand(call.outputs[0],
                             fmt::format("has {}, expected {} for {}", kernels::Name(call.outputs[0].dtype),
                                         kernels::Name(result), call.InputTypes()));
}

}  // namespace

Status LowerAdd(OpCall& call) { return LowerScaled(call, kernels::kAddFn, kernels::kAddScaledFn); }
Status LowerSub(OpCall& call) { return LowerScaled(call, kernels::kSubFn, kernels::kSubScaledFn); }

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/arithmetic.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
