// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Element by element ----

Status LowerCast(NamedCall& call) {
  const NamedTensor& x = call.inputs[0];
  if (x.dtype_number == call.output().dtype_number || !(x.is_small() || call.output().is_small())) {
    return LowerNamedCopy(call);
  }
  return call.Step(kConvert, {x.view(), call.OutputView(), static_cast<int64_t>(x.dtype_number),
                              static_cast<int64_t>(call.output().dtype_number)});
}

// x1 + alpha * x2, x1 - alpha * x2 with alpha as an attribute.
Status LowerAxpy(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar alpha, ScalarFor(call, "alpha", call.output().dtype()));
  return call.Step(kAddScaled, {call.inputs[0].view(), call.inputs[1].view(), alpha, call.OutputView()});
}

// As LowerAxpy, with alpha on the device, which is there only when the kernels run.
Status LowerAxpyV2(NamedCall& call) {
  const StridedView x1 = call.Input("x1").view();
  StridedView x2 = call.Input("x2").view();
  if (call.Has("alpha")) {
    const StridedView product = call.Temporary(Wide(x2.dtype), x2.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {x2, call.Input("alpha").view().As({}), product}));
    x2 = product;
  }
  const Routine& last = call.op.code == kCodeSub ? kSubScaled : kAddScaled;
  // With alpha 1 the scaled forms are the plain ones.
  if (x2.dtype == x1.dtype) return call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), call.OutputView()});
  const StridedView sum = call.Temporary(x2.dtype, call.shape());
  REPRISE_RETURN_IF_ERROR(call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), sum}));
  return call.Step(kCopy, {sum, call.OutputView()});
}

Status LowerMuls(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(call.op.code == kCodeMul ? kMulScalar : kAddScalar,
                   {call.inputs[0].view(), value, call.OutputView()});
}

// base^(scale * x + shift); base -1 is e.
Status LowerNamedExp(NamedCall& call) {
  const double base = call.context.Real("base");
  const double scale = call.context.Real("scale");
  const double shift = call.context.Real("shift");
  const double log_base = base == -1 ? 1 : std::log(base);
  const StridedView x = call.inputs[0].view();
  if (scale * log_base == 1 && shift == 0) return call.Step(kExp, {x, call.OutputView()});
  const StridedView exponent = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale * log_base), exponent}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {exponent, Scalar::Of<double>(shift * log_base), exponent}));
  // The exponential is computed in the type of its result.
  REPRISE_RETURN_IF_ERROR(call.Step(kExp, {exponent, exponent}));
  return call.Step(kCopy, {exponent, call.OutputView()});
}

Status LowerAddN(NamedCall& call) {
  if (call.inputs.size() == 1) return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()});
  const StridedView sum = call.Temporary(Wide(call.output().dtype()), call.shape());
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {call.inputs[0].view(), call.inputs[1].view(), sum}));
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {sum, call.inputs[i].view(), sum}));
  }
  return call.Step(kCopy, {sum, call.OutputView()});
}

Status LowerSquare(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  return call.Step(BinaryRoutine(kCodeMul), {x, x, call.OutputView()});
}

// ---- With parts of their own ----

// ln(scale * x + shift) / ln(base); base -1 is e.
Status LowerNamedLog(NamedCall& call) {
  const double base = call.context.Real("base");
  const double scale = call.context.Real("scale");
  const double shift = call.context.Real("shift");
  const StridedView x = call.inputs[0].view();
  const StridedView out = call.OutputView();
  if (base == -1 && scale == 1 && shift == 0) return StepOf(call, "aclnnLog", {x, out});
  const StridedView power = call.Temporary(Wide(out.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale), power}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {power, Scalar::Of<double>(shift), power}));
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnLog", {power, power}));
  return call.Step(kMulScalar, {power, Scalar::Of<double>(base == -1 ? 1 : 1 / std::log(base)), out});
}

// input_data + value * (x1 times or through x2); value may be known only on the device.
Status LowerAddcmul(NamedCall& call) {
  const bool is_product = call.op.code == kCodeMul;
  const NamedTensor& value = call.Input("value");
  if (value.has_constant && CountOf(value.dims) == 1) {
    return StepAsFunction(call, is_product ? "aclnnAddcmul" : "aclnnAddcdiv", "input_data x1 x2 $value =");
  }
  const StridedView x1 = call.Input("x1").view();
  const StridedView x2 = call.Input("x2").view();
  std::vector<int64_t> shape = BroadcastOf(call.Input("x1").dims, call.Input("x2").dims);
  const StridedView both = call.Temporary(Wide(x1.dtype), shape);
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(call.op.code), {x1, x2, both}));
  shape = BroadcastOf(shape, value.dims);
  const StridedView scaled = call.Temporary(both.dtype, shape);
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {both, value.view(), scaled}));
  return call.Step(kAdd, {call.Input("input_data").view(), scaled, call.OutputView()});
}

Status LowerMaskedFill(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView value, OneNumber(call, "value"));
  const StridedView out = call.OutputView();
  REPRISE_RETURN_IF_ERROR(call.Step(kSpread, {out, call.Input("x").view()}));
  return StepOf(call, "aclnnInplaceMaskedFillTensor", {out, call.Input("mask").view(), value});
}

Status LowerIsInf(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  const StridedView magnitude = call.Temporary(x.dtype, x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(UnaryRoutine(kCodeAbs), {x, magnitude}));
  return StepOf(call, "aclnnEqScalar", {magnitude, Scalar::Of<double>(HUGE_VAL), call.OutputView()});
}

// The real or the imaginary parts, which lie between each other.
Status LowerComplexPart(NamedCall& call) {
  StridedView part = call.inputs[0].view();
  part.dtype = call.output().dtype();
  for (int64_t& stride : part.strides) stride *= 2;
  part.data = Behind(part.data, call.op.code, part.dtype);
  return call.Step(kCopy, {part, call.OutputView()});
}

constexpr NamedOp kElementwiseRows[] = {
    {"Abs", kRealTypes, LowerNamedUnary, kCodeAbs},
    As("Acos", kUnary.Without({DType::kBFloat16}), "aclnnAcos"),
    As("Acosh", kUnary, "aclnnAcosh"),
    {"Add", kAllTypes, LowerNamedBinary, kCodeAdd},
    {"AccumulateNV2", kArithmetic, LowerAddN},
    {"AddN", kArithmetic, LowerAddN},
    {"AddV2", kAllTypes, LowerNamedBinary, kCodeAdd},
    {"Addcdiv", kFloatingTypes, LowerAddcmul, kCodeDiv},
    {"Addcmul", {}, LowerAddcmul, kCodeMul},
    {"Adds", kRealTypes, LowerMuls, kCodeAdd},
    As("Asin", kUnary.Without({DType::kBFloat16}), "aclnnAsin"),
    As("Asinh", kUnary, "aclnnAsinh"),
    As("Atan", kUnary, "aclnnAtan"),
    As("Atan2", kFloatingTypes, "aclnnAtan2"),
    As("Atanh", kUnary, "aclnnAtanh"),
    {"Axpy", kRealTypes, LowerAxpy},
    {"AxpyV2", kArithmetic, LowerAxpyV2, kCodeAdd},
    As("BitwiseAnd", kIntegerTypes, "aclnnBitwiseAndTensor"),
    As("BitwiseOr", kIntegerTypes, "aclnnBitwiseOrTensor"),
    MovesBits({"Cast", kAllTypes, LowerCast}),
    As("Ceil", kFloatingTypes, "aclnnCeil"),
    As("ClipByValue", kRealTypes, "aclnnClampTensor"),
    As("ClipByValueV2", kRealTypes, "aclnnClampTensor"),
    As("Complex", {}, "aclnnComplex"),
    As("Cos", kUnary, "aclnnCos"),
    As("Cosh", kUnary, "aclnnCosh"),
    {"Div", kArithmetic, LowerNamedBinary, kCodeDiv},
    As("Equal", kComparable, "aclnnEqTensor"),
    As("Erf", kFloatingTypes, "aclnnErf"),
    As("Erfinv", {}, "aclnnErfinv"),
    {"Exp", kUnary, LowerNamedExp},
    As("Expm1", kUnary, "aclnnExpm1"),
    As("Floor", kFloatingTypes, "aclnnFloor"),
    As("FloorDiv", kRealTypes.Without({DType::kUInt32, DType::kUInt64}), "aclnnFloorDivide"),
    As("FloorMod", kWideOrFloat16, "aclnnRemainderTensorTensor"),
    As("Greater", kRealTypes, "aclnnGtTensor"),
    As("GreaterEqual", kRealTypes, "aclnnGeTensor"),
    {"Imag", {}, LowerComplexPart, 1},
    As("Invert", kIntegerTypes, "aclnnBitwiseNot"),
    As("IsClose", kRealTypes, "aclnnIsClose", "x1 x2 @rtol @atol @equal_nan ="),
    As("IsFinite", kFloatingTypes, "aclnnIsFinite"),
    {"IsInf", {}, LowerIsInf},
    As("Lerp", kSingleAndHalfTypes, "aclnnLerp"),
    As("Less", kRealTypes, "aclnnLtTensor"),
    As("LessEqual", kRealTypes, "aclnnLeTensor"),
    {"Log", kUnary, LowerNamedLog},
    As("Log1p", kUnary, "aclnnLog1p"),
    As("LogicalAnd", kBoolType, "aclnnLogicalAnd"),
    As("LogicalNot", kBoolType, "aclnnLogicalNot"),
    As("LogicalOr", kBoolType, "aclnnLogicalOr"),
    {"MaskedFill", {}, LowerMaskedFill},
    As("Maximum", kWideOrFloat16, "aclnnMaximum"),
    As("Minimum", kWideOrFloat16, "aclnnMinimum"),
    As("Mod", kWideOrFloat16, "aclnnFmodTensor"),
    {"Mul", kAllTypes, LowerNamedBinary, kCodeMul},
    {"Muls", kRealTypes, LowerMuls, kCodeMul},
    As("NanToNum", {}, "aclnnNanToNum", "x @nan @posinf @neginf ="),
    {"Neg", kArithmetic, LowerNamedUnary, kCodeNeg},
    As("NotEqual", kRealTypes, "aclnnNeTensor"),
    As("Pow", kArithmetic, "aclnnPowTensorTensor"),
    {"Real", {}, LowerComplexPart, 0},
    {"RealDiv", kArithmetic, LowerNamedBinary, kCodeRealDiv},
    As("Reciprocal", kUnary, "aclnnReciprocal"),
    As("RightShift", {}, "aclnnRightShift"),
    As("Round", kWideOrFloat16, "aclnnRound"),
    As("Rsqrt", kUnary, "aclnnRsqrt"),
    As("Select", {}, "aclnnSWhere"),
    As("SelectV2", {}, "aclnnSWhere"),
    As("Sign", kWideOrFloat16, "aclnnSign"),
    As("Sin", kUnary, "aclnnSin"),
    As("Sinh", kUnary, "aclnnSinh"),
    As("Sqrt", kUnary, "aclnnSqrt"),
    {"Square", kArithmetic.Without(kNarrowOrUnsigned), LowerSquare},
    {"Sub", kArithmetic, LowerNamedBinary, kCodeSub},
    {"Sxpy", kArithmetic, LowerAxpyV2, kCodeSub},
    As("Tan", kUnary.Without({DType::kBFloat16}), "aclnnTan"),
    As("Tanh", kUnary, "aclnnTanh"),
    As("Trunc", kSingleAndHalfTypes, "aclnnTrunc"),
    As("TruncateDiv", kRealTypes.Without({DType::kUInt32, DType::kUInt64, DType::kBFloat16}), "aclnnDivMod",
       "x1 x2 %1 ="),
};

}  // namespace

std::span<const NamedOp> ElementwiseRows() { return kElementwiseRows; }

}  // namespace reprise::ops::named
