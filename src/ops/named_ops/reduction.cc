// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Reductions ----

Status LowerSum(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView out = call.OutputView();
  return call.Step(kReduceSum,
                   {call.inputs[0].view(), std::move(dims), call.context.Bool("keep_dims"), out.dtype, out});
}

// The exponent of a norm in two halves. Sums of powers do not lead to the norms that count or take the largest.
StatusOr<double> NormExponent(const NamedCall& call) {
  constexpr double kStandsForInfinity = 2147483648.0;
  const double p = call.context.Real("p");
  if (p != 0 && std::abs(p) < kStandsForInfinity) return p;
  return call.context.WrongAttribute("p", fmt::format("is {}, whose norm is no root of a sum of powers", p),
                                     "call aclnnLinalgVectorNorm");
}

// sum(|x|^p)
Status LowerNormSums(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const double p, NormExponent(call));
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView x = call.inputs[0].view();
  const StridedView power = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(UnaryRoutine(kCodeAbs), {x, power}));
  REPRISE_RETURN_IF_ERROR(call.Step(kPowScalar, {power, Scalar::Of<double>(p), power}));
  const StridedView out = call.OutputView();
  return call.Step(kReduceSum, {power, std::move(dims), call.context.Bool("keepdim"), out.dtype, out});
}

// x^(1/p)
Status LowerNormRoot(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const double p, NormExponent(call));
  return call.Step(kPowScalar, {call.inputs[0].view(), Scalar::Of<double>(1 / p), call.OutputView()});
}

// Sizes with neighbours that one softmax runs over as one dim: tensors lie without gaps.
std::vector<int64_t> MergedSizes(const NamedTensor& x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dims[static_cast<size_t>(d)];
    if (d > axes.front() && d <= axes.back()) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return sizes;
}

// Codes of the operators that run along axes.
enum : int { kSoftmaxOf, kLogSoftmaxOf, kSoftmaxGradOf, kLogSoftmaxGradOf };

Status LowerAlongAxes(NamedCall& call) {
  const bool is_log_grad = call.op.code == kLogSoftmaxGradOf;
  const std::string_view name = is_log_grad ? "axis" : "axes";
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, DimsOf(call, name));
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || axes.back() - axes.front() >= static_cast<int64_t>(axes.size())) {
    return call.context.WrongAttribute(name, fmt::format("is {}, which is no row of neighbours", ShapeText(axes)),
                                       "name dims that lie side by side");
  }
  const std::vector<int64_t> sizes = MergedSizes(call.inputs[0], axes);
  const StridedView first = call.inputs[0].view().As(sizes);
  const StridedView out = call.OutputView().As(sizes);
  switch (call.op.code) {
    case kSoftmaxOf: return call.Step(kSoftmax, {first, axes.front(), out});
    case kLogSoftmaxOf: return StepOf(call, "aclnnLogSoftmax", {first, axes.front(), out});
    case kSoftmaxGradOf:
      return StepOf(call, "aclnnSoftmaxBackward", {call.inputs[1].view().As(sizes), first, axes.front(), out});
    default:
      return StepOf(call, "aclnnLogSoftmaxBackward", {first, call.inputs[1].view().As(sizes), axes.front(), out});
  }
}

// The mean of the elements as the type of the result. No axes: all of them, or none if an attribute says so.
Status LowerMean(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView x = call.inputs[0].view();
  const StridedView out = call.OutputView();
  if (dims.empty() && call.context.Bool("noop_with_empty_axes")) return call.Step(kCopy, {x, out});
  return StepOf(call, "aclnnMean", {x, std::move(dims), call.context.Bool("keep_dims"), out.dtype, out});
}

// One dim after the other, each as size 1.
Status LowerProd(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  StridedView x = call.inputs[0].view();
  const StridedView out = call.OutputView();
  for (int64_t d = 0; dims.empty() && d < static_cast<int64_t>(x.sizes.size()); ++d) dims.push_back(d);
  if (x.sizes.empty()) dims.clear();  // dim 0 of a number is no dim
  for (const int64_t dim : dims) {
    std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
    sizes[static_cast<size_t>(dim)] = 1;
    const StridedView product = call.Temporary(Wide(out.dtype), sizes);
    REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnProdDim", {x, dim, true, product.dtype, product}));
    x = product;
  }
  return call.Step(kCopy, {x.As(out.sizes), out});
}

// Root of the sum of the squares of (x - mean) through their number less the correction; or its reciprocal.
Status LowerStdWithMean(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "dim"));
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  int64_t count = 1;
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    const bool is_reduced = dims.empty() || std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    if (is_reduced) count *= x.sizes[d];
  }
  const int64_t correction = call.context.Bool("unbiased") ? call.context.Int("correction") : 0;
  const auto divisor = static_cast<double>(std::max<int64_t>(0, count - correction));
  const StridedView square = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeSub), {x, call.Input("mean").view(), square}));
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {square, square, square}));
  const StridedView sum = call.Temporary(square.dtype, out.sizes);
  REPRISE_RETURN_IF_ERROR(
      call.Step(kReduceSum, {square, std::move(dims), call.context.Bool("keepdim"), sum.dtype, sum}));
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {sum, Scalar::Of<double>(1 / divisor), sum}));
  if (!call.context.Bool("invert")) return StepOf(call, "aclnnSqrt", {sum, out});
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {sum, Scalar::Of<double>(call.context.Real("epsilon")), sum}));
  return StepOf(call, "aclnnRsqrt", {sum, out});
}

Status LowerLpNorm(NamedCall& call) {
  constexpr double kStandsForInfinity = 2147483647.0;
  double p = call.context.Real("p");
  if (std::abs(p) >= kStandsForInfinity) p = std::copysign(HUGE_VAL, p);
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView out = call.OutputView();
  return StepOf(
      call, "aclnnLinalgVectorNorm",
      {call.inputs[0].view(), Scalar::Of<double>(p), std::move(dims), call.context.Bool("keepdim"), out.dtype, out});
}

// Running sums or products along a dim.
Status AddScan(NamedCall& call, const StridedView& x, int64_t axis, const StridedView& out) {
  return StepOf(call, call.op.code == kCodeMul ? "aclnnCumprod" : "aclnnCumsum", {x, axis, out.dtype, out});
}

// Running sums or products: of the elements before each one if they are exclusive, from the end if they are reversed.
Status LowerScan(NamedCall& call) {
  const Routine& set_first = call.op.code == kCodeMul ? kSetOne : kSetZero;
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, DimOf(call, "axis", call.Input("x").dims.size()));
  const bool is_exclusive = call.context.Bool("exclusive");
  const bool is_reversed = call.context.Bool("reverse");
  StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  if (!is_exclusive && !is_reversed) return AddScan(call, x, axis, out);
  if (CountOf(call.shape()) == 0) return {};
  const std::vector<int64_t> axes = {axis};
  if (is_reversed) {
    const StridedView turned = call.Temporary(x.dtype, x.sizes);
    REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnFlip", {x, axes, turned}));
    x = turned;
  }
  const StridedView sums = is_reversed || out.data == x.data ? call.Temporary(out.dtype, out.sizes) : out;
  if (is_exclusive && !x.sizes.empty()) {
    const auto dim = static_cast<size_t>(axis);
    const int64_t size = x.sizes[dim];
    REPRISE_RETURN_IF_ERROR(call.Step(set_first, {Narrowed(sums, dim, 0, 1)}));
    if (size > 1) {
      REPRISE_RETURN_IF_ERROR(AddScan(call, Narrowed(x, dim, 0, size - 1), axis, Narrowed(sums, dim, 1, size - 1)));
    }
  } else if (is_exclusive) {
    REPRISE_RETURN_IF_ERROR(call.Step(set_first, {sums}));
  } else {
    REPRISE_RETURN_IF_ERROR(AddScan(call, x, axis, sums));
  }
  if (is_reversed) return StepOf(call, "aclnnFlip", {sums, axes, out});
  return sums.data == out.data ? Status() : call.Step(kCopy, {sums, out});
}

Status LowerMseLoss(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t reduction, ReductionOf(call));
  const StridedView predict = call.Input("predict").view();
  const StridedView label = call.Input("label").view();
  if (call.op.code == 0) return StepOf(call, "aclnnMseLoss", {predict, label, reduction, call.OutputView()});
  return StepOf(call, "aclnnMseLossBackward",
                {call.Input("dout").view(), predict, label, reduction, call.OutputView()});
}

Status LowerNllLoss(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t reduction, ReductionOf(call));
  const StridedView x = call.Input("x").view();
  const StridedView target = call.Input("target").view();
  const int64_t ignored = call.context.Int("ignore_index");
  const bool is_image = x.sizes.size() == 4;
  const StepArgument weight = call.Has("weight") ? StepArgument(call.Input("weight").view()) : nullptr;
  if (call.op.code == 0) {
    return StepOf(call, is_image ? "aclnnNLLLoss2d" : "aclnnNLLLoss",
                  {x, target, weight, reduction, ignored, call.Output("y").view(), call.Output("total_weight").view()});
  }
  return StepOf(call, is_image ? "aclnnNLLLoss2dBackward" : "aclnnNLLLossBackward",
                {call.Input("y_grad").view(), x, target, weight, reduction, ignored, call.Input("total_weight").view(),
                 call.OutputView()});
}

Status LowerNonZero(NamedCall& call) {
  const bool is_transposed = call.context.Bool("transpose");
  return StepOf(call, is_transposed ? "aclnnNonzeroV2" : "aclnnNonzero", {call.inputs[0].view(), call.OutputView()});
}

Status LowerSearchSorted(NamedCall& call) {
  const StridedView out = call.OutputView();
  const StepArgument sorter = call.Has("sorter") ? StepArgument(call.Input("sorter").view()) : nullptr;
  return StepOf(call, "aclnnSearchSorted",
                {call.Input("sorted_sequence").view(), call.Input("values").view(), out.dtype == DType::kInt32,
                 call.context.Bool("right"), sorter, out});
}

constexpr NamedOp kReductionRows[] = {
    As("ArgMaxD", kSingleAndFloat16, "aclnnArgMax", "x #dimension %false ="),
    As("ArgMaxV2", kRealTypes, "aclnnArgMax", "x #dimension %false ="),
    As("ArgMaxWithValue", kSingleAndHalfTypes, "aclnnMaxDim", "x @dimension @keep_dims =values =indice"),
    As("ArgMin", kRealTypes, "aclnnArgMin", "x #dimension %false ="),
    As("ArgMinD", kSingleAndFloat16, "aclnnArgMin", "x #dimension %false ="),
    As("ArgMinWithValue", kSingleAndFloat16, "aclnnMinDim", "x @dimension @keep_dims =values =indice"),
    {"Cumprod", {}, LowerScan, kCodeMul},
    {"CumprodD", {}, LowerScan, kCodeMul},
    {"Cumsum", {}, LowerScan, kCodeAdd},
    {"CumsumD", {}, LowerScan, kCodeAdd},
    {"LogSoftmaxGrad", {}, LowerAlongAxes, kLogSoftmaxGradOf},
    {"LogSoftmaxV2", kFloatingTypes, LowerAlongAxes, kLogSoftmaxOf},
    {"LpNormReduceV2", kNormTypes, LowerNormSums},
    {"LpNormUpdateV2", kNormTypes, LowerNormRoot},
    {"LpNormV2", {}, LowerLpNorm},
    {"MseLoss", {}, LowerMseLoss, 0},
    {"MseLossGrad", {}, LowerMseLoss, 1},
    {"NLLLoss", {}, LowerNllLoss, 0},
    {"NLLLossGrad", {}, LowerNllLoss, 1},
    {"NonZero", {}, LowerNonZero},
    As("ReduceAll", kBoolType, "aclnnAll", "x #axes @keep_dims ="),
    As("ReduceAllD", kBoolType, "aclnnAll", "x #axes @keep_dims ="),
    As("ReduceAny", kBoolType, "aclnnAny", "x #axes @keep_dims ="),
    As("ReduceAnyD", kBoolType, "aclnnAny", "x #axes @keep_dims ="),
    As("ReduceLogSumExp", kFloatingTypes, "aclnnLogSumExp", "x #axes @keep_dims ="),
    As("ReduceMax", kRealTypes, "aclnnAmax", "x #axes @keep_dims ="),
    As("ReduceMaxD", {}, "aclnnAmax", "x #axes @keep_dims ="),
    {"ReduceMean", kFloatingTypes, LowerMean},
    {"ReduceMeanD", kSingleAndHalfTypes, LowerMean},
    {"ReduceMeanWithCast", {}, LowerMean},
    As("ReduceMin", kRealTypes, "aclnnAmin", "x #axes @keep_dims ="),
    As("ReduceMinD", {}, "aclnnAmin", "x #axes @keep_dims ="),
    {"ReduceProd", {}, LowerProd},
    {"ReduceProdD", {}, LowerProd},
    As("ReduceStdV2", {}, "aclnnStdMeanCorrection", "x @dim @correction @keepdim =std =mean"),
    {"ReduceStdWithMean", {}, LowerStdWithMean},
    {"ReduceSum", kArithmetic, LowerSum},
    {"ReduceSumD", kArithmetic, LowerSum},
    {"SearchSorted", {}, LowerSearchSorted},
    {"SoftmaxGrad", kSingleAndHalfTypes, LowerAlongAxes, kSoftmaxGradOf},
    {"SoftmaxV2", kFloatingTypes, LowerAlongAxes, kSoftmaxOf},
    As("Sort", {}, "aclnnSort", "x @stable @axis @descending =y1 =y2"),
    As("TopK", kRealTypes, "aclnnTopk", "x #k @dim @largest @sorted =values =indices"),
    As("TopKD", kRealTypes, "aclnnTopk", "x #k @dim @largest @sorted =values =indices"),
    As("TopKV2", kRealTypes, "aclnnTopk", "x #k @dim @largest @sorted =values =indices"),
    As("TopKV2D", kRealTypes, "aclnnTopk", "x #k @dim @largest @sorted =values =indices"),
    As("Unique", {}, "aclnnUnique2", "x %true %true %false =y =idx %null"),
    As("Where", {}, "aclnnNonzero"),
};

}  // namespace

std::span<const NamedOp> ReductionRows() { return kReductionRows; }

}  // namespace reprise::ops::named
