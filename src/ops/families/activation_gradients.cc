// SPDX-License-Identifier: Apache-2.0
//
// Gradients of activation functions, and the functions that activation.cc does not have.
#include "kernels/activation_gradients.h"

#include <algorithm>
#include <complex>

#include "kernels/activation_functions.h"
#include "kernels/staged.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::ElementFn;
using kernels::Scalar;

// ---- Functions of numbers ----

// fn(inputs) with the numbers that the scalar attributes `names` are.
template <size_t kCount>
Status LowerGivenNumbers(OpCall& call, const ElementFn& fn, const std::string_view (&names)[kCount]) {
  Scalar numbers[kCount];
  for (size_t i = 0; i < kCount; ++i) REPRISE_RETURN_IF_ERROR(NumberOf(call, names[i], numbers[i]));
  return LowerElementwise(call, fn, numbers);
}

// The bound of hard shrinkage: below 0 no element lies within it.
Status LowerHardShrink(OpCall& call, const ElementFn& fn) {
  Scalar bound;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "lambd", bound));
  if (kernels::CategoryOf(bound.dtype) == kernels::Category::kComplex) {
    return call.Invalid("lambd is complex, expected a real number");
  }
  return LowerElementwise(call, fn, {&bound, 1});
}

// The bound of soft shrinkage, which must not be negative.
Status LowerShrink(OpCall& call, const ElementFn& fn, std::string_view name) {
  Scalar bound;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, name, bound));
  if (kernels::CategoryOf(bound.dtype) == kernels::Category::kComplex || !(bound.As<double>() >= 0)) {
    return call.Invalid(
        fmt::format("{} is {}, expected a number that is not negative", name, bound.As<std::complex<double>>().real()));
  }
  return LowerElementwise(call, fn, {&bound, 1});
}

Status LowerHardshrink(OpCall& call) { return LowerHardShrink(call, kernels::kHardshrinkFn); }
Status LowerSoftshrink(OpCall& call) { return LowerShrink(call, kernels::kSoftshrinkFn, "lambd"); }
Status LowerHardshrinkBackward(OpCall& call) { return LowerHardShrink(call, kernels::kShrinkBackwardFn); }
Status LowerSoftshrinkBackward(OpCall& call) { return LowerShrink(call, kernels::kShrinkBackwardFn, "lambda"); }
Status LowerHardtanhBackward(OpCall& call) {
  return LowerGivenNumbers(call, kernels::kHardtanhBackwardFn, {"min", "max"});
}
Status LowerSoftplusBackward(OpCall& call) {
  return LowerGivenNumbers(call, kernels::kSoftplusBackwardFn, {"beta", "threshold"});
}

Status LowerCelu(OpCall& call) {
  Scalar alpha;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  const auto value = alpha.As<double>();
  if (value == 0) return call.Invalid("alpha is 0, by which self is divided", "pass another number");
  const Scalar numbers[] = {alpha, Scalar::Of(1.0), Scalar::Of(1 / value)};
  return LowerElementwise(call, kernels::kEluFn, numbers);
}

Status LowerEluBackward(OpCall& call) {
  Scalar alpha;
  Scalar scale;
  Scalar inner;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "alpha", alpha));
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "scale", scale));
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "inputScale", inner));
  const bool is_result = call.Bool("isResult");
  if (is_result && alpha.As<double>() < 0) {
    return call.Invalid(
        fmt::format("alpha is {} and isResult is true: a result does not tell the input then", alpha.As<double>()),
        "pass the input, with isResult false");
  }
  const Scalar numbers[] = {Scalar::Of(alpha.As<double>() * scale.As<double>()), scale, inner};
  return LowerElementwise(call, is_result ? kernels::kEluResultBackwardFn : kernels::kEluBackwardFn, numbers);
}

// For a slope that is positive, the result has the sign of the input.
Status LowerLeakyReluBackward(OpCall& call) {
  Scalar slope;
  REPRISE_RETURN_IF_ERROR(NumberOf(call, "negativeSlope", slope));
  if (call.Bool("selfIsResult") && slope.As<double>() < 0) {
    return call.Invalid(fmt::format("negativeSlope is {} and selfIsResult is true: a result does not tell the input "
                                    "then",
                                    slope.As<double>()),
                        "pass the input, with selfIsResult false");
  }
  return LowerElementwise(call, kernels::kLeakyReluBackwardFn, {&slope, 1});
}

// ---- LogSigmoid ----

// buffer is memory for devices that keep a part of the work; this one does not.
Status LogSigmoidShape(OpCall& call) {
  return call.CheckShape(call.outputs[0], call.Get("self").sizes(), [] { return "the shape of self,"; });
}

Status LogSigmoidBackwardShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const auto name = [] { return "the shape of self,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOutput"), self.sizes(), name));
  return call.CheckShape(call.outputs[0], self.sizes(), name);
}

Status LowerLogSigmoid(OpCall& call) {
  const Operand* self = &call.Get("self");
  return LowerElementwise(call, kernels::kLogSigmoidFn, {}, {&self, 1});
}

Status LowerLogSigmoidBackward(OpCall& call) {
  const Operand* inputs[] = {&call.Get("gradOutput"), &call.Get("self")};
  return LowerElementwise(call, kernels::kLogSigmoidBackwardFn, {}, inputs);
}

// ---- PReLU ----

// Dim of the weights that counts channels: the only one, or dim 1 of a shape that broadcasts to that of self.
int ChannelDim(const Operand& weight) { return weight.rank() > 1 ? 1 : 0; }

// weight as it broadcasts to self: one number for all, or one for each position of dim 1.
StatusOr<kernels::TensorRef> WeightView(const OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& weight = call.Get("weight");
  kernels::TensorRef view = call.RefOf(self);
  const int64_t channels = self.rank() >= 2 ? self.sizes()[1] : 1;
  const int64_t count = weight.tensor->count;
  const int dim = ChannelDim(weight);
  bool fits = count == 1 || count == channels;
  for (int d = 0; d < weight.rank(); ++d) fits = fits && (d == dim || weight.sizes()[static_cast<size_t>(d)] == 1);
  if (!fits || (weight.rank() > 1 && weight.rank() != self.rank())) {
    return call.InvalidOperand(
        weight, fmt::format("has shape {}, expected [1], or [{}] for the size of dim 1 of self {}, or that as a shape "
                            "that broadcasts to self",
                            ShapeText(weight.sizes()), channels, ShapeText(self.sizes())));
  }
  const kernels::TensorRef given = call.RefOf(weight);
  view.data = given.data;
  view.dtype = given.dtype;
  for (int d = 0; d < view.rank; ++d) {
    view.strides[d] = d == 1 && count != 1 ? given.strides[dim] : 0;
  }
  return view;
}

Status PreluShape(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const kernels::TensorRef view, WeightView(call));
  const auto name = [] { return "the shape of self,"; };
  if (call.Has("gradOutput")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOutput"), self.sizes(), name));
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(call.outputs[1], call.Get("weight").sizes(), [] { return "the shape of weight,"; }));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), name);
}

ElementView Whole(const OpCall& call, const Operand& operand) { return {&operand, call.RefOf(operand)}; }

Status LowerPrelu(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TensorRef weight, WeightView(call));
  const ElementView inputs[] = {Whole(call, call.Get("self")), {&call.Get("weight"), weight}};
  return LowerElementwise(call, kernels::kPreluFn, {}, Whole(call, call.outputs[0]), inputs);
}

// refs: the gradient of the weights, that of the result, self. A unit is a weight: the sum of the products of its
// elements, in float64.
void RunPreluWeight(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  constexpr int64_t kBlock = 512;
  const bool is_single = launch.ints[0] == 0;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    kernels::TensorRef refs[2] = {launch.refs[1], launch.refs[2]};
    for (kernels::TensorRef& ref : refs) {
      if (is_single) continue;
      ref.data = static_cast<char*>(ref.data) + unit * ref.strides[1] * kernels::ItemSize(ref.dtype);
      ref.sizes[1] = 1;
    }
    const kernels::Staged<double> grad(refs[0]);
    const kernels::Staged<double> self(refs[1]);
    alignas(64) double grad_block[kBlock];
    alignas(64) double self_block[kBlock];
    const int64_t count = kernels::ElementCount(refs[0]);
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      const double* g = grad.Read(begin, n, grad_block);
      const double* x = self.Read(begin, n, self_block);
      for (int64_t i = 0; i < n; ++i) sum += x[i] > 0 ? 0 : g[i] * x[i];
    }
    const kernels::TensorRef& out = launch.refs[0];
    const int64_t stride = is_single ? 0 : out.strides[out.rank > 1 ? 1 : 0];
    char* at = static_cast<char*>(out.data) + unit * stride * kernels::ItemSize(out.dtype);
    kernels::FindCast(kernels::DType::kDouble, out.dtype)(reinterpret_cast<const char*>(&sum), 0, at, 0, 1);
  }
}

Status LowerPreluBackward(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TensorRef weight, WeightView(call));
  const Operand& grad = call.Get("gradOutput");
  const Operand& self = call.Get("self");
  const ElementView inputs[] = {Whole(call, grad), Whole(call, self), {&call.Get("weight"), weight}};
  REPRISE_RETURN_IF_ERROR(LowerElementwise(call, kernels::kPreluBackwardFn, {}, Whole(call, call.outputs[0]), inputs));
  Launch& launch = call.AddLaunch(RunPreluWeight);
  call.Write(launch, call.outputs[1]);
  call.Read(launch, grad);
  call.Read(launch, self);
  const bool is_single = call.outputs[1].tensor->count == 1;
  launch.ints.push_back(is_single ? 0 : 1);
  launch.units = call.outputs[1].tensor->count;
  launch.grain = launch.units == 0 ? 0 : GrainOf(self.tensor->count / launch.units);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/activation_gradients.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
