// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/math_functions.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
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

Status LowerNanToNum(OpCall& call) {
  const Scalar numbers[] = {Scalar::Of(call.Real("nan")), Scalar::Of(call.Real("posinf")),
                            Scalar::Of(call.Real("neginf"))};
  return LowerElementwise(call, kernels::kNanToNumFn, numbers);
}

Status LowerRoundDecimals(OpCall& call) {
  const int64_t decimals = call.Int("decimals");
  if (decimals == 0) return LowerElementwise(call, kernels::kRoundFn);
  const Scalar scale = Scalar::Of(std::pow(10.0, std::abs(static_cast<double>(decimals))));
  return LowerElementwise(call, decimals > 0 ? kernels::kRoundScaledUpFn : kernels::kRoundScaledDownFn, {&scale, 1});
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/math.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
