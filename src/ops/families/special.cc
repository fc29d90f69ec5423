// SPDX-License-Identifier: Apache-2.0
#include "kernels/special_functions.h"

#include <cmath>
#include <complex>

#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Types ----

// The real type of the result of Angle: that of complex numbers, float32 for integers.
Status AngleType(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputsAlone(call));
  if (kernels::CategoryOf(call.compute) < kernels::Category::kFloating) call.compute = DType::kFloat;
  const DType result = call.compute == DType::kComplex64    ? DType::kFloat
                       : call.compute == DType::kComplex128 ? DType::kDouble
                                                            : call.compute;
  const Operand& output = call.outputs[0];
  if (kernels::CanCast(result, output.dtype)) return {};
  return call.InvalidOperand(output,
                             fmt::format("has {}, which cannot hold the {} result of {}", kernels::Name(output.dtype),
                                         kernels::Name(result), call.InputTypes()));
}

// The complex type that has the precision of two real numbers.
Status PolarType(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputsAlone(call));
  const DType result = call.compute == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
  const Operand& output = call.outputs[0];
  if (output.dtype == result) return {};
  return call.InvalidOperand(output, fmt::format("has {}, expected {} for {}", kernels::Name(output.dtype),
                                                 kernels::Name(result), call.InputTypes()));
}

// ---- Functions with numbers ----

// Attribute eps limits the argument to [eps, 1 - eps] unless it is negative.
Status LowerWithEps(OpCall& call, const kernels::ElementFn& plain, const kernels::ElementFn& between,
                    std::initializer_list<const Operand*> inputs) {
  const double eps = call.Real("eps");
  if (std::isnan(eps)) return call.Invalid("eps is NaN, expected a number", "a negative one limits nothing");
  const std::span<const Operand* const> operands(inputs.begin(), inputs.size());
  if (eps < 0) return LowerElementwise(call, plain, {}, operands);
  const Scalar numbers[] = {Scalar::Of(eps), Scalar::Of(1 - eps)};
  return LowerElementwise(call, between, numbers, operands);
}

Status LowerLogit(OpCall& call) {
  return LowerWithEps(call, kernels::kLogitFn, kernels::kLogitBetweenFn, {&call.Get("input")});
}
Status LowerLogitGrad(OpCall& call) {
  return LowerWithEps(call, kernels::kLogitGradFn, kernels::kLogitBetweenGradFn, {&call.Get("dy"), &call.Get("x")});
}

// A scalar is the last operand: only there it keeps the precision of the arithmetic.
Status LowerXLogY(OpCall& call) {
  if (call.inputs[0].tensor != nullptr) return LowerElementwise(call, kernels::kXLogYFn);
  const Operand* inputs[] = {&call.inputs[1], &call.inputs[0]};
  return LowerElementwise(call, kernels::kXLogYOfFn, {}, inputs);
}

// out = max(input 0 + alpha * input 1, 0).
Status LowerAddRelu(OpCall& call) {
  Scalar alpha;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  return LowerElementwise(call, kernels::kAddReluFn, {&alpha, 1});
}

// ---- Outer products ----

// vec1 x vec2 has the shape to which self broadcasts.
Status AddrShape(OpCall& call) {
  Dims shape;
  for (std::string_view name : {"vec1", "vec2"}) {
    const Operand& vector = call.Get(name);
    if (vector.rank() != 1) {
      return call.InvalidOperand(vector, fmt::format("has shape {}, expected one dim", ShapeText(vector.sizes())));
    }
    shape.push_back(vector.sizes()[0]);
  }
  const Operand& self = call.inputs[0];
  Dims both;
  if (!Broadcast(shape, self.sizes(), both) || !(both == shape)) {
    return call.InvalidOperand(self,
                               fmt::format("has shape {}, which does not broadcast to the shape {} of the product",
                                           ShapeText(self.sizes()), ShapeText(shape)));
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape of the product,"; });
}

Status LowerAddr(OpCall& call) {
  Scalar numbers[2] = {Scalar::Of<int64_t>(1), Scalar::Of<int64_t>(1)};
  if (call.IsGiven("betaOptional")) REPRISE_RETURN_IF_ERROR(NumberOf(call, "betaOptional", numbers[0]));
  if (call.IsGiven("alphaOptional")) REPRISE_RETURN_IF_ERROR(NumberOf(call, "alphaOptional", numbers[1]));
  const Operand& column = call.Get("vec1");
  ElementView views[] = {{&call.inputs[0], call.RefOf(call.inputs[0])},
                         {&column, call.RefOf(column)},
                         {&call.Get("vec2"), call.RefOf(call.Get("vec2"))}};
  kernels::TensorRef& ref = views[1].ref;
  ref.rank = 2;
  ref.sizes[1] = 1;
  ref.strides[1] = 0;
  return LowerElementwise(call, kernels::kOuterSumFn, numbers, {&call.outputs[0], call.RefOf(call.outputs[0])}, views);
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/special.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
