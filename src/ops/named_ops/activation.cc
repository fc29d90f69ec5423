// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::Scalar;

Status LowerGelu(NamedCall& call) {
  const std::string method = call.context.Text("approximate");
  if (method != "none" && method != "tanh") {
    return call.context.WrongAttribute("approximate", fmt::format("is '{}'", method), "set it to none or tanh");
  }
  return StepAsFunction(call, "aclnnGeluV2", method == "none" ? "x %0 =" : "x %1 =");
}

// alpha * x + beta, in the type that `of` computes in.
StatusOr<StridedView> HardLine(NamedCall& call, const StridedView& x, kernels::DType type) {
  const StridedView line = call.Temporary(type, x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(call.context.Real("alpha")), line}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {line, Scalar::Of<double>(call.context.Real("beta")), line}));
  return line;
}

Status LowerHardSigmoid(NamedCall& call) {
  const StridedView out = call.OutputView();
  REPRISE_ASSIGN_OR_RETURN(const StridedView line, HardLine(call, call.inputs[0].view(), Wide(out.dtype)));
  return StepOf(call, "aclnnClamp", {line, Scalar::Of<double>(0), Scalar::Of<double>(1), out});
}

// alpha times the gradient where the line lies between 0 and 1.
Status LowerHardSigmoidGrad(NamedCall& call) {
  const StridedView grad = call.Input("grads").view();
  REPRISE_ASSIGN_OR_RETURN(const StridedView line, HardLine(call, call.Input("input_x").view(), Wide(grad.dtype)));
  const StridedView scaled = call.Temporary(line.dtype, grad.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {grad, Scalar::Of<double>(call.context.Real("alpha")), scaled}));
  return StepOf(call, "aclnnHardtanhBackward",
                {scaled, line, Scalar::Of<double>(0), Scalar::Of<double>(1), call.OutputView()});
}

// x * sigmoid(scale * x).
Status LowerSwish(NamedCall& call) {
  const double scale = call.context.Real("scale");
  const StridedView x = call.inputs[0].view();
  if (scale == 1) return StepOf(call, "aclnnSilu", {x, call.OutputView()});
  const StridedView gate = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale), gate}));
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnSigmoid", {gate, gate}));
  return call.Step(BinaryRoutine(kCodeMul), {x, gate, call.OutputView()});
}

// x above the threshold, else the value; both are on the device. NaN is above nothing, but stays.
Status LowerThreshold(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView is_below = call.Temporary(kernels::DType::kBool, x.sizes);
  constexpr char kZero[16] = {};
  const StridedView value = call.Has("value") ? call.Input("value").view().As({}) : call.Numbers(x.dtype, {}, kZero);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnLeTensor", {x, call.Input("threshold").view().As({}), is_below}));
  return StepOf(call, "aclnnSWhere", {is_below, value, x, call.OutputView()});
}

constexpr NamedOp kActivationRows[] = {
    As("CeluV2", kSingleAndFloat16, "aclnnCelu", "x @alpha ="),
    As("ClippedSwiglu", {}, "aclnnClippedSwiglu", "x group_index @dim @alpha @limit @bias @interleaved ="),
    As("Elu", kFloatingTypes, "aclnnElu", "x @alpha @scale @input_scale ="),
    As("EluGradV2", {}, "aclnnEluBackward", "grads @alpha @scale @input_scale @is_result activations ="),
    As("FastGelu", {}, "aclnnFastGelu"),
    As("FastGeluGrad", {}, "aclnnFastGeluBackward"),
    As("GLU", {}, "aclnnGlu", "x @dim ="),
    As("GLUGrad", {}, "aclnnGluBackward", "y_grad x @dim ="),
    As("GeGluV2", {}, "aclnnGeGluV3", "x @dim @approximate @activate_left =y =gelu"),
    As("Gelu", {}, "aclnnGeluV2", "x %1 ="),
    As("GeluGrad", {}, "aclnnGeluBackwardV2", "dy x %text:tanh ="),
    As("GeluGradV2", {}, "aclnnGeluBackwardV2", "dy x @approximate ="),
    {"GeluV2", {}, LowerGelu},
    As("HardShrink", kSingleAndFloat16, "aclnnHardshrink", "input_x @lambd ="),
    {"HardSigmoid", {}, LowerHardSigmoid},
    {"HardSigmoidGrad", {}, LowerHardSigmoidGrad},
    As("HardSwish", kSingleAndFloat16, "aclnnHardswish"),
    As("HardSwishGrad", {}, "aclnnHardswishBackward"),
    As("HardtanhGrad", {}, "aclnnHardtanhBackward", "grad result @min_val @max_val ="),
    As("LeakyRelu", kNoBFloat16, "aclnnLeakyRelu", "x @negative_slope ="),
    As("LeakyReluGrad", {}, "aclnnLeakyReluBackward", "gradients features @negative_slope %false ="),
    As("LogSigmoid", {}, "aclnnLogSigmoid"),
    As("LogSigmoidGrad", {}, "aclnnLogSigmoidBackward", "grads features features ="),
    As("Mish", kSingleAndFloat16, "aclnnMish"),
    As("PRelu", {}, "aclnnPrelu"),
    As("PReluGrad", {}, "aclnnPreluBackward", "grads features weights =dx =da"),
    {"Relu", kRealTypes, LowerNamedUnary, kCodeRelu},
    As("ReluGrad", {}, "aclnnThresholdBackward", "gradients features %0 ="),
    As("Sigmoid", kUnary, "aclnnSigmoid"),
    As("SigmoidGrad", kFloatingTypes, "aclnnSigmoidBackward", "dy y ="),
    As("SoftShrink", kSingleAndFloat16, "aclnnSoftshrink", "input_x @lambd ="),
    As("SwiGlu", {}, "aclnnSwiGlu", "x @dim ="),
    As("SwiGluGrad", {}, "aclnnSwiGluGrad", "y_grad x @dim ="),
    {"Swish", {}, LowerSwish},
    As("TanhGrad", kFloatingTypes, "aclnnTanhBackward", "dy y ="),
    As("ThresholdGradV2D", {}, "aclnnThresholdBackward", "gradients features @threshold ="),
    {"ThresholdV2", {}, LowerThreshold},
    As("ThresholdV2D", kRealTypes, "aclnnThreshold", "x @threshold @value ="),
};

}  // namespace

std::span<const NamedOp> ActivationRows() { return kActivationRows; }

}  // namespace reprise::ops::named
