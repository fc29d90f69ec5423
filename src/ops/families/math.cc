// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/math_functions.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::Scalar;

// The modulus of complex numbers is real.
Status AbsType(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  const kernels::DType result = call.compute == kernels::DType::kComplex64    ? kernels::DType::kFloat
                                : call.compute == kernels::DType::kComplex128 ? kernels::DType::kDouble
                                                                              : call.compute;
  for (const Operand& output : call.outputs) {
    if (kernels::CanCast(result, output.dtype)) continue;
    return call.InvalidOperand(output,
                               fmt::format("has {}, which cannot hold the {} result of {}", kernels::Name(output.dtype),
                                           kernels::Name(result), call.InputTypes()));
  }
  return {};
}

Status PlanNanToNum(OpCall& call) {
  const Scalar numbers[] = {Scalar::Of(call.Real("nan")), Scalar::Of(call.Real("posinf")),
                            Scalar::Of(call.Real("neginf"))};
  return PlanElementwise(call, kernels::kNanToNumFn, numbers);
}

Status PlanRoundDecimals(OpCall& call) {
  const int64_t decimals = call.Int("decimals");
  if (decimals == 0) return PlanElementwise(call, kernels::kRoundFn);
  const Scalar scale = Scalar::Of(std::pow(10.0, std::abs(static_cast<double>(decimals))));
  return PlanElementwise(call, decimals > 0 ? kernels::kRoundScaledUpFn : kernels::kRoundScaledDownFn, {&scale, 1});
}

}  // namespace

constexpr Computation kAbs = ElementwiseOf<kernels::kAbsFn>(AbsType);
constexpr Computation kAcos = ElementwiseOf<kernels::kAcosFn>(PromoteInputsToFloating);
constexpr Computation kAsin = ElementwiseOf<kernels::kAsinFn>(PromoteInputsToFloating);
constexpr Computation kAtan = ElementwiseOf<kernels::kAtanFn>(PromoteInputsToFloating);
constexpr Computation kCeil = ElementwiseOf<kernels::kCeilFn>();
constexpr Computation kCos = ElementwiseOf<kernels::kCosFn>(PromoteInputsToFloating);
constexpr Computation kCosh = ElementwiseOf<kernels::kCoshFn>(PromoteInputsToFloating);
constexpr Computation kErf = ElementwiseOf<kernels::kErfFn>(PromoteInputsToFloating);
constexpr Computation kErfc = ElementwiseOf<kernels::kErfcFn>(PromoteInputsToFloating);
constexpr Computation kErfinv = ElementwiseOf<kernels::kErfinvFn>(PromoteInputsToFloating);
constexpr Computation kExp = ElementwiseOf<kernels::kExpFn>(PromoteInputsToFloating);
constexpr Computation kExp2 = ElementwiseOf<kernels::kExp2Fn>(PromoteInputsToFloating);
constexpr Computation kExpm1 = ElementwiseOf<kernels::kExpm1Fn>(PromoteInputsToFloating);
constexpr Computation kFloor = ElementwiseOf<kernels::kFloorFn>();
constexpr Computation kFrac = ElementwiseOf<kernels::kFracFn>();
constexpr Computation kLog = ElementwiseOf<kernels::kLogFn>(PromoteInputsToFloating);
constexpr Computation kLog10 = ElementwiseOf<kernels::kLog10Fn>(PromoteInputsToFloating);
constexpr Computation kLog1p = ElementwiseOf<kernels::kLog1pFn>(PromoteInputsToFloating);
constexpr Computation kLog2 = ElementwiseOf<kernels::kLog2Fn>(PromoteInputsToFloating);
constexpr Computation kNanToNum = ElementwiseWith(PlanNanToNum);
constexpr Computation kNeg = ElementwiseOf<kernels::kNegFn>();
constexpr Computation kReciprocal = ElementwiseOf<kernels::kReciprocalFn>(PromoteInputsToFloating);
constexpr Computation kRound = ElementwiseOf<kernels::kRoundFn>();
constexpr Computation kRoundDecimals = ElementwiseWith(PlanRoundDecimals);
constexpr Computation kRsqrt = ElementwiseOf<kernels::kRsqrtFn>(PromoteInputsToFloating);
constexpr Computation kSign = ElementwiseOf<kernels::kSignFn>();
constexpr Computation kSin = ElementwiseOf<kernels::kSinFn>(PromoteInputsToFloating);
constexpr Computation kSinh = ElementwiseOf<kernels::kSinhFn>(PromoteInputsToFloating);
constexpr Computation kSqrt = ElementwiseOf<kernels::kSqrtFn>(PromoteInputsToFloating);
constexpr Computation kTan = ElementwiseOf<kernels::kTanFn>(PromoteInputsToFloating);
constexpr Computation kTanh = ElementwiseOf<kernels::kTanhFn>(PromoteInputsToFloating);
constexpr Computation kTrunc = ElementwiseOf<kernels::kTruncFn>();

}  // namespace reprise::ops
