// SPDX-License-Identifier: Apache-2.0
//
// Functions and losses that are a few steps of arithmetic each. 16-bit floats round once, at the end.
#include <array>
#include <cmath>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

const Routine& Times() { return BinaryRoutine(kCodeMul); }

// The product of two operands, to be rounded later.
StatusOr<StridedView> WideProduct(NamedCall& call, const StridedView& a, const StridedView& b) {
  const StridedView product = call.Temporary(Wide(call.output().dtype()), BroadcastOf(a.sizes, b.sizes));
  REPRISE_RETURN_IF_ERROR(call.Step(Times(), {a, b, product}));
  return product;
}

Status LowerIsNan(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  return StepOf(call, "aclnnNeTensor", {x, x, call.OutputView()});
}

Status LowerSquaredDifference(NamedCall& call) {
  const StridedView difference = call.Temporary(Wide(call.output().dtype()), call.shape());
  REPRISE_RETURN_IF_ERROR(
      call.Step(BinaryRoutine(kCodeSub), {call.inputs[0].view(), call.inputs[1].view(), difference}));
  return call.Step(Times(), {difference, difference, call.OutputView()});
}

// x1 * x2 + x3 + ..
Status LowerMulAdd(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(StridedView sum, WideProduct(call, call.inputs[0].view(), call.inputs[1].view()));
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    const StridedView x = call.inputs[i].view();
    const bool is_last = i + 1 == call.inputs.size();
    const StridedView next = is_last ? call.OutputView() : call.Temporary(sum.dtype, BroadcastOf(sum.sizes, x.sizes));
    REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {sum, x, next}));
    sum = next;
  }
  return {};
}

// 0 where x2 is 0, whatever x1 is.
Status LowerNoNan(NamedCall& call) {
  const StridedView x2 = call.inputs[1].view();
  const StridedView out = call.OutputView();
  const StridedView result = call.Temporary(out.dtype, out.sizes);
  const StridedView is_zero = call.Temporary(DType::kBool, x2.sizes);
  constexpr char kZero[16] = {};
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(call.op.code), {call.inputs[0].view(), x2, result}));
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnEqScalar", {x2, Scalar::Of<double>(0), is_zero}));
  return StepOf(call, "aclnnSWhere", {is_zero, call.Numbers(out.dtype, {}, kZero), result, out});
}

// (scale * x + shift)^power
Status LowerPower(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  const StridedView line = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(call.context.Real("scale")), line}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {line, Scalar::Of<double>(call.context.Real("shift")), line}));
  return call.Step(kPowScalar, {line, Scalar::Of<double>(call.context.Real("power")), call.OutputView()});
}

// ---- Gradients by the result ----

enum ResultGradient : int { kOfReciprocal, kOfRoot, kOfInverseRoot };

// -dy * y^2, dy / (2 * y), -dy * y^3 / 2
Status LowerGradientByResult(NamedCall& call) {
  const StridedView y = call.inputs[0].view();
  const StridedView dy = call.inputs[1].view();
  const StridedView out = call.OutputView();
  if (call.op.code == kOfRoot) {
    const StridedView quotient = call.Temporary(Wide(out.dtype), out.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeDiv), {dy, y, quotient}));
    return call.Step(kMulScalar, {quotient, Scalar::Of<double>(0.5), out});
  }
  REPRISE_ASSIGN_OR_RETURN(StridedView product, WideProduct(call, y, y));
  if (call.op.code == kOfInverseRoot) REPRISE_RETURN_IF_ERROR(call.Step(Times(), {product, y, product}));
  REPRISE_RETURN_IF_ERROR(call.Step(Times(), {product, dy, product}));
  return call.Step(kMulScalar, {product, Scalar::Of<double>(call.op.code == kOfReciprocal ? -1.0 : -0.5), out});
}

// ---- Activations ----

// x / (1 + |x|)
Status LowerSoftsign(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  const StridedView divisor = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(UnaryRoutine(kCodeAbs), {x, divisor}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {divisor, Scalar::Of<double>(1), divisor}));
  return call.Step(BinaryRoutine(kCodeDiv), {x, divisor, call.OutputView()});
}

// Swish is silu(scale * x) / scale, so that its gradient is that of silu at scale * x.
Status LowerSwishGradient(NamedCall& call) {
  const double scale = call.context.Real("scale");
  StridedView x = call.Input("x").view();
  if (scale != 1) {
    const StridedView scaled = call.Temporary(x.dtype, x.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale), scaled}));
    x = scaled;
  }
  return StepOf(call, "aclnnSiluBackward", {call.Input("grad").view(), x, call.OutputView()});
}

// ---- Channels ----

Status LowerBiasAdd(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView bias = call.Input("bias").view();
  if (call.context.Text("data_format").back() == 'C') return call.Step(kAdd, {x, bias, call.OutputView()});
  std::vector<int64_t> sizes(x.sizes.size() - 1, 1);
  sizes[0] = bias.sizes[0];
  return call.Step(kAdd, {x, bias.As(sizes), call.OutputView()});
}

// ---- Losses ----

// Half the sum of the squares.
Status LowerL2Loss(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  REPRISE_ASSIGN_OR_RETURN(const StridedView square, WideProduct(call, x, x));
  const StridedView sum = call.Temporary(square.dtype, {});
  std::vector<int64_t> dims;
  for (size_t d = 0; d < x.sizes.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  REPRISE_RETURN_IF_ERROR(call.Step(kReduceSum, {square, std::move(dims), false, sum.dtype, sum}));
  return call.Step(kMulScalar, {sum, Scalar::Of<double>(0.5), call.OutputView()});
}

Status LowerSmoothL1(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t reduction, ReductionOf(call));
  return StepOf(
      call, "aclnnSmoothL1Loss",
      {call.inputs[0].view(), call.inputs[1].view(), reduction, call.context.Real("sigma"), call.OutputView()});
}

Status LowerKlDiv(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const bool is_batch_mean = call.context.Text("reduction") == "batchmean";
  int64_t reduction = 2;
  if (!is_batch_mean) {
    REPRISE_ASSIGN_OR_RETURN(reduction, ReductionOf(call));
  }
  const StridedView out = call.OutputView();
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnKlDiv", {x, call.Input("target").view(), reduction, false, out}));
  const int64_t batch = x.sizes.empty() ? 1 : x.sizes[0];
  if (!is_batch_mean || batch == 1) return {};
  return call.Step(kMulScalar, {out, Scalar::Of<double>(1.0 / static_cast<double>(batch)), out});
}

Status LowerCrossEntropy(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t reduction, ReductionOf(call));
  return StepOf(
      call, "aclnnBinaryCrossEntropy",
      {call.Input("x").view(), call.Input("y").view(), OptionalInput(call, "weight"), reduction, call.OutputView()});
}

constexpr NamedOp kFormulaRows[] = {
    {"BiasAdd", kArithmetic, LowerBiasAdd},
    {"BinaryCrossEntropy", kSingleAndFloat16, LowerCrossEntropy},
    As("BitwiseXor", kIntegerTypes, "aclnnBitwiseXorTensor"),
    {"DivNoNan", kNoBFloat16, LowerNoNan, kCodeDiv},
    As("EluGrad", {}, "aclnnEluBackward", "grads %1 %1 %1 %true activations ="),
    As("Erfc", kFloatingTypes, "aclnnErfc"),
    {"FusedMulAdd", {}, LowerMulAdd},
    {"FusedMulAddAdd", {}, LowerMulAdd},
    As("HardShrinkGrad", {}, "aclnnHardshrinkBackward", "gradients features @lambd ="),
    As("Inv", kNoBFloat16, "aclnnReciprocal"),
    {"InvGrad", kSingleAndFloat16, LowerGradientByResult, kOfReciprocal},
    {"IsNan", {}, LowerIsNan},
    {"KLDiv", {}, LowerKlDiv},
    {"L2Loss", kFloatingTypes, LowerL2Loss},
    As("LeftShift", {}, "aclnnLeftShift"),
    As("MishGrad", {}, "aclnnMishBackward", "grad x ="),
    {"MulNoNan", kNoBFloat16, LowerNoNan, kCodeMul},
    {"Power", kSingleAndHalfTypes, LowerPower},
    {"ReciprocalGrad", kUnary, LowerGradientByResult, kOfReciprocal},
    As("Relu6", {}, "aclnnHardtanh", "x %0 %6 ="),
    As("Relu6Grad", {}, "aclnnHardtanhBackward", "gradients features %0 %6 ="),
    As("Rint", kNoBFloat16, "aclnnRound"),
    {"RsqrtGrad", kUnary, LowerGradientByResult, kOfInverseRoot},
    As("Selu", kNoBFloat16, "aclnnElu", "x %1.6732632423543772 %1.0507009873554805 %1 ="),
    As("SeluGrad", {}, "aclnnEluBackward", "gradients %1.6732632423543772 %1.0507009873554805 %1 %true outputs ="),
    As("SigmoidCrossEntropyWithLogits", {}, "aclnnBinaryCrossEntropyWithLogits", "predict target %null %null %0 ="),
    {"SmoothL1LossV2", {}, LowerSmoothL1},
    As("SoftShrinkGrad", {}, "aclnnSoftshrinkBackward", "input_grad input_x @lambd ="),
    As("Softplus", {}, "aclnnSoftplus", "x %1 %40 ="),
    As("SoftplusGrad", {}, "aclnnSoftplusBackward", "gradients features %1 %40 ="),
    As("SoftplusV2", {}, "aclnnSoftplus", "x @beta @threshold ="),
    As("SoftplusV2Grad", {}, "aclnnSoftplusBackward", "input_gradients input_features @beta @threshold ="),
    {"Softsign", kFloatingTypes, LowerSoftsign},
    {"SqrtGrad", kUnary, LowerGradientByResult, kOfRoot},
    {"SquaredDifference", kArithmetic.Without(kNarrowOrUnsigned), LowerSquaredDifference},
    {"SwishGrad", {}, LowerSwishGradient},
    As("ThresholdedRelu", {}, "aclnnThreshold", "x @alpha %0 ="),
    As("TruncateMod", {}, "aclnnFmodTensor"),
    As("Xlogy", {}, "aclnnXLogYTensor"),
};

}  // namespace

std::span<const NamedOp> FormulaRows() { return kFormulaRows; }

}  // namespace reprise::ops::named
