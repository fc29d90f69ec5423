// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic_functions.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

// out = input 0 + or - alpha * input 1; one alpha is no alpha.
Status PlanScaled(OpCall& call, const kernels::ElementFn& plain, const kernels::ElementFn& scaled) {
  if (!call.Has("alpha")) return PlanElementwise(call, plain);
  kernels::Scalar alpha;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  if (alpha.As<std::complex<double>>() == 1.0) return PlanElementwise(call, plain);
  return PlanElementwise(call, scaled, {&alpha, 1});
}

}  // namespace

Status PlanAdd(OpCall& call) { return PlanScaled(call, kernels::kAddFn, kernels::kAddScaledFn); }
Status PlanSub(OpCall& call) { return PlanScaled(call, kernels::kSubFn, kernels::kSubScaledFn); }

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kAdd = ElementwiseWith(PlanAdd);
constexpr Computation kSub = ElementwiseWith(PlanSub);
constexpr Computation kMul = ElementwiseOf<kernels::kMulFn>();
constexpr Computation kDiv = ElementwiseOf<kernels::kDivFn>(PromoteInputsToFloating);

}  // namespace reprise::ops
