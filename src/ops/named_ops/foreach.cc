// SPDX-License-Identifier: Apache-2.0
//
// Operators on lists. Most are one function for all tensors; where that wants numbers that are not known at the call,
// each tensor is a step of its own.
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// The number for each tensor; one for all will do.
StatusOr<std::vector<StridedView>> NumbersFor(const NamedCall& call, std::string_view name, size_t tensors) {
  const NamedTensor& numbers = call.Input(name);
  const int64_t count = CountOf(numbers.dims);
  if (count != 1 && count != static_cast<int64_t>(tensors)) {
    return call.WrongInput(numbers, fmt::format("has {} numbers for {} tensors", count, tensors),
                           "pass one number for each tensor");
  }
  std::vector<StridedView> views;
  for (size_t i = 0; i < tensors; ++i) {
    views.push_back(ElementOf(numbers.view(), count == 1 ? 0 : static_cast<int64_t>(i)));
  }
  return views;
}

// A list and a number for each tensor. NamedOp::function names the function of one tensor.
Status LowerByNumbers(NamedCall& call) {
  const std::vector<StridedView> x = ViewsOf(call.List("x"));
  const std::vector<StridedView> y = OutputViews(call, "y");
  REPRISE_ASSIGN_OR_RETURN(const std::vector<StridedView> numbers, NumbersFor(call, "scalars", x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    if (CountOf(x[i].sizes) == 0) continue;
    if (call.op.function.empty()) {
      REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(call.op.code), {x[i], numbers[i], y[i]}));
    } else {
      REPRISE_RETURN_IF_ERROR(StepOf(call, call.op.function, {x[i], numbers[i], y[i]}));
    }
  }
  return {};
}

constexpr NamedOp ByNumbers(std::string_view type, DTypeSet types, int code) {
  return {type, types, LowerByNumbers, code};
}

// x + number * (x1 times or through x2), a number for each tensor.
Status LowerProductByNumbers(NamedCall& call) {
  const std::string_view last = call.context.op.inputs[3].name;
  const std::vector<StridedView> y = OutputViews(call, "y");
  std::vector<StridedView> lists[3];
  for (size_t i = 0; i < 3; ++i) lists[i] = ViewsOf(call.List(call.context.op.inputs[i].name));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<StridedView> numbers, NumbersFor(call, last, y.size()));
  for (size_t i = 0; i < y.size(); ++i) {
    if (CountOf(y[i].sizes) == 0) continue;
    const StridedView both = call.Temporary(Wide(y[i].dtype), y[i].sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(call.op.code), {lists[1][i], lists[2][i], both}));
    REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {both, numbers[i], both}));
    REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {lists[0][i], both, y[i]}));
  }
  return {};
}

// Weights: one number for all, one for each tensor, or known at the call.
Status LowerLerp(NamedCall& call) {
  if (call.Input("weight").has_constant && CountOf(call.Input("weight").dims) == 1) {
    return StepAsFunction(call, "aclnnForeachLerpScalar", "x1 x2 $weight =");
  }
  const std::vector<StridedView> x1 = ViewsOf(call.List("x1"));
  const std::vector<StridedView> x2 = ViewsOf(call.List("x2"));
  const std::vector<StridedView> y = OutputViews(call, "y");
  REPRISE_ASSIGN_OR_RETURN(std::vector<StridedView> weights, NumbersFor(call, "weight", y.size()));
  for (size_t i = 0; i < y.size(); ++i) {
    if (CountOf(y[i].sizes) == 0) continue;
    if (weights[i].dtype != y[i].dtype) {
      const StridedView weight = call.Temporary(y[i].dtype, {});
      REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {weights[i], weight}));
      weights[i] = weight;
    }
    REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnLerp", {x1[i], x2[i], weights[i], y[i]}));
  }
  return {};
}

Status LowerPowOfNumber(NamedCall& call) {
  if (call.Input("scalar").has_constant) {
    return StepAsFunction(call, "aclnnForeachPowScalarAndTensor", "$scalar x =");
  }
  REPRISE_ASSIGN_OR_RETURN(const StridedView number, OneNumber(call, "scalar"));
  const std::vector<StridedView> x = ViewsOf(call.List("x"));
  for (size_t i = 0; i < x.size(); ++i) {
    if (CountOf(x[i].sizes) == 0) continue;
    REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnPowTensorTensor", {number, x[i], call.OutputList("y")[i].view()}));
  }
  return {};
}

// The mode as the function takes it.
Status LowerRounding(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView given, OneNumber(call, "roundMode"));
  const StridedView mode = call.Temporary(DType::kInt8, {});
  REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {given, mode}));
  return StepOf(call, "aclnnForeachRoundOffNumber", {ViewsOf(call.List("x")), mode, OutputViews(call, "y")});
}

constexpr NamedOp kForeachRows[] = {
    As("ForeachACos", {}, "aclnnForeachAcos"),
    As("ForeachASin", {}, "aclnnForeachAsin"),
    As("ForeachATan", {}, "aclnnForeachAtan"),
    As("ForeachAbs", {}, "aclnnForeachAbs"),
    As("ForeachAddList", {}, "aclnnForeachAddList"),
    As("ForeachAddScalar", {}, "aclnnForeachAddScalar"),
    ByNumbers("ForeachAddScalarList", {}, kCodeAdd),
    {"ForeachAddcdivList", kSingleAndFloat16, LowerProductByNumbers, kCodeDiv},
    As("ForeachAddcdivScalar", kSingleAndFloat16, "aclnnForeachAddcdivScalar"),
    {"ForeachAddcdivScalarList", kSingleAndFloat16, LowerProductByNumbers, kCodeDiv},
    {"ForeachAddcmulList", {}, LowerProductByNumbers, kCodeMul},
    As("ForeachAddcmulScalar", {}, "aclnnForeachAddcmulScalar"),
    {"ForeachAddcmulScalarList", {}, LowerProductByNumbers, kCodeMul},
    As("ForeachCos", {}, "aclnnForeachCos"),
    As("ForeachCosh", {}, "aclnnForeachCosh"),
    As("ForeachDivList", {}, "aclnnForeachDivList"),
    As("ForeachDivScalar", kSingleAndFloat16, "aclnnForeachDivScalar"),
    ByNumbers("ForeachDivScalarList", kSingleAndFloat16, kCodeDiv),
    As("ForeachErf", {}, "aclnnForeachErf"),
    As("ForeachErfc", {}, "aclnnForeachErfc"),
    As("ForeachExp", {}, "aclnnForeachExp"),
    As("ForeachExpm1", {}, "aclnnForeachExpm1"),
    {"ForeachLerpList", {}, LowerLerp},
    {"ForeachLerpScalar", {}, LowerLerp},
    As("ForeachLog", {}, "aclnnForeachLog"),
    As("ForeachLog10", {}, "aclnnForeachLog10"),
    As("ForeachLog1p", {}, "aclnnForeachLog1p"),
    As("ForeachLog2", {}, "aclnnForeachLog2"),
    As("ForeachMaximumList", {}, "aclnnForeachMaximumList"),
    As("ForeachMaximumScalar", {}, "aclnnForeachMaximumScalar"),
    {"ForeachMaximumScalarList", {}, LowerByNumbers, 0, "aclnnMaximum", {}},
    As("ForeachMinimumList", {}, "aclnnForeachMinimumList"),
    As("ForeachMinimumScalar", {}, "aclnnForeachMinimumScalar"),
    {"ForeachMinimumScalarList", {}, LowerByNumbers, 0, "aclnnMinimum", {}},
    As("ForeachMulList", {}, "aclnnForeachMulList"),
    As("ForeachMulScalar", {}, "aclnnForeachMulScalar"),
    ByNumbers("ForeachMulScalarList", {}, kCodeMul),
    As("ForeachNorm", {}, "aclnnForeachNorm", "x1 $scalar ="),
    As("ForeachPowList", {}, "aclnnForeachPowList"),
    As("ForeachPowScalar", {}, "aclnnForeachPowScalar"),
    {"ForeachPowScalarAndTensor", {}, LowerPowOfNumber},
    {"ForeachPowScalarList", {}, LowerByNumbers, 0, "aclnnPowTensorTensor", {}},
    {"ForeachRoundOffNumber", {}, LowerRounding},
    As("ForeachSigmoid", {}, "aclnnForeachSigmoid"),
    As("ForeachSin", {}, "aclnnForeachSin"),
    As("ForeachSinh", {}, "aclnnForeachSinh"),
    As("ForeachSubList", {}, "aclnnForeachSubList"),
    As("ForeachSubScalar", {}, "aclnnForeachSubScalar"),
    ByNumbers("ForeachSubScalarList", {}, kCodeSub),
    As("ForeachTan", {}, "aclnnForeachTan"),
    As("ForeachTanh", {}, "aclnnForeachTanh"),
};

}  // namespace

std::span<const NamedOp> ForeachRows() { return kForeachRows; }

}  // namespace reprise::ops::named
