// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

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

Status LowerNamedSoftmax(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, DimsOf(call, "axes"));
  std::sort(axes.begin(), axes.end());
  // Neighbours are one dim: tensors lie without gaps.
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dims[static_cast<size_t>(d)];
    if (d > axes.front() && d <= axes.back()) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return call.Step(kSoftmax, {x.view().As(sizes), axes.front(), call.OutputView().As(sizes)});
}

constexpr NamedOp kReductionRows[] = {
    As("ArgMaxWithValue", kSingleAndHalfTypes, "aclnnMaxDim", "x @dimension @keep_dims =values =indice"),
    As("ArgMinWithValue", kSingleAndFloat16, "aclnnMinDim", "x @dimension @keep_dims =values =indice"),
    {"LpNormReduceV2", kNormTypes, LowerNormSums},
    {"LpNormUpdateV2", kNormTypes, LowerNormRoot},
    As("ReduceAll", kBoolType, "aclnnAll", "x #axes @keep_dims ="),
    As("ReduceAny", kBoolType, "aclnnAny", "x #axes @keep_dims ="),
    As("ReduceLogSumExp", kFloatingTypes, "aclnnLogSumExp", "x #axes @keep_dims ="),
    As("ReduceMax", kRealTypes, "aclnnAmax", "x #axes @keep_dims ="),
    As("ReduceMean", kFloatingTypes, "aclnnMean", "x #axes @keep_dims =type ="),
    As("ReduceMeanD", kSingleAndHalfTypes, "aclnnMean", "x @axes @keep_dims =type ="),
    As("ReduceMin", kRealTypes, "aclnnAmin", "x #axes @keep_dims ="),
    {"ReduceSum", kArithmetic, LowerSum},
    {"ReduceSumD", kArithmetic, LowerSum},
    {"SoftmaxV2", kFloatingTypes, LowerNamedSoftmax},
    As("TopKV2", kRealTypes, "aclnnTopk", "x #k @dim @largest @sorted =values =indices"),
};

}  // namespace

std::span<const NamedOp> ReductionRows() { return kReductionRows; }

}  // namespace reprise::ops::named
