// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/expression.h"

#include <utility>

namespace reprise::ops::named {

using kernels::Scalar;

void Expression::Fail(Status&& status) {
  if (status_.ok()) status_ = std::move(status);
}

StridedView Expression::In(std::string_view name) { return Convert(call_.Input(name).view()); }

StridedView Expression::Number(std::string_view name) {
  StatusOr<StridedView> number = OneNumber(call_, name);
  if (number.ok()) return *number;
  Fail(std::move(number).status());
  return call_.Input(name).view();
}

StridedView Expression::Ref(std::string_view name) {
  StatusOr<StridedView> view = call_.InPlace(name);
  if (view.ok()) return *view;
  Fail(std::move(view).status());
  return call_.Input(name).view();
}

StridedView Expression::Convert(const StridedView& x) {
  if (!status_.ok()) return x;
  StatusOr<StridedView> converted = Converted(call_, x, type_);
  if (converted.ok()) return *converted;
  Fail(std::move(converted).status());
  return x;
}

StridedView Expression::Apply(const Routine& routine, const StridedView& a, const StridedView& b) {
  const StridedView out = call_.Temporary(type_, BroadcastOf(a.sizes, b.sizes));
  if (status_.ok()) Fail(call_.Step(routine, {a, b, out}));
  return out;
}

StridedView Expression::ApplyNumber(const Routine& routine, const StridedView& x, double value) {
  const StridedView out = call_.Temporary(type_, x.sizes);
  if (status_.ok()) Fail(call_.Step(routine, {x, Scalar::Of<double>(value), out}));
  return out;
}

StridedView Expression::Of(std::string_view function, const StridedView& x) {
  const StridedView in = Convert(x);
  const StridedView out = call_.Temporary(type_, x.sizes);
  if (status_.ok()) Fail(StepOf(call_, function, {in, out}));
  return out;
}

StridedView Expression::Of(std::string_view function, const StridedView& a, const StridedView& b) {
  const StridedView one = Convert(a);
  const StridedView other = Convert(b);
  const StridedView out = call_.Temporary(type_, BroadcastOf(a.sizes, b.sizes));
  if (status_.ok()) Fail(StepOf(call_, function, {one, other, out}));
  return out;
}

StridedView Expression::Reduced(const StridedView& x, const std::vector<int64_t>& dims) {
  Dims sizes = x.sizes;
  for (const int64_t dim : dims) sizes[static_cast<size_t>(dim)] = 1;
  return call_.Temporary(type_, sizes);
}

StridedView Expression::Sum(const StridedView& x, std::vector<int64_t> dims) {
  const StridedView out = Reduced(x, dims);
  if (status_.ok()) Fail(call_.Step(kReduceSum, {x, std::move(dims), true, type_, out}));
  return out;
}

StridedView Expression::Mean(const StridedView& x, std::vector<int64_t> dims) {
  const StridedView out = Reduced(x, dims);
  if (status_.ok()) {
    Fail(StepWith(call_, "aclnnMean",
                  {{"self", x}, {"dim", std::move(dims)}, {"keepDim", true}, {"dtype", type_}, {"out", out}}));
  }
  return out;
}

StridedView Expression::Variance(const StridedView& x, std::vector<int64_t> dims) {
  const StridedView in = Convert(x);
  const StridedView out = Reduced(x, dims);
  if (status_.ok()) {
    Fail(StepWith(
        call_, "aclnnVarCorrection",
        {{"self", in}, {"dim", std::move(dims)}, {"correction", int64_t{0}}, {"keepdim", true}, {"out", out}}));
  }
  return out;
}

void Expression::Store(const StridedView& from, const StridedView& to) {
  if (status_.ok()) Fail(call_.Step(kSpread, {to, from}));
}

}  // namespace reprise::ops::named
