// SPDX-License-Identifier: Apache-2.0
//
// Formulas on tensors of one call:
//
//     Expression f(call, Wide(var.dtype));
//     f.Store(f.Sub(var, f.Mul(f.Number("lr"), grad)), var);
//     return f.status();
//
// Each step computes in the type of the expression and writes memory of its own; sizes broadcast. The first failure
// stays: what follows it adds no steps.
#pragma once

#include <string_view>
#include <vector>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {

/// Threads: belongs to the thread that makes the call.
class Expression {
 public:
  Expression(NamedCall& call, kernels::DType type) : call_(call), type_(type) {}

  const Status& status() const { return status_; }
  Status TakeStatus() { return std::move(status_); }

  /// An input in the type of the expression.
  StridedView In(std::string_view name);
  /// The only element of an input, as a tensor of rank 0. 100021 for other numbers of elements.
  StridedView Number(std::string_view name);
  /// An input that is written in place, in its own type.
  StridedView Ref(std::string_view name);
  StridedView Convert(const StridedView& x);

  StridedView Add(const StridedView& a, const StridedView& b) { return Apply(kAdd, a, b); }
  StridedView Sub(const StridedView& a, const StridedView& b) { return Apply(BinaryRoutine(kCodeSub), a, b); }
  StridedView Mul(const StridedView& a, const StridedView& b) { return Apply(BinaryRoutine(kCodeMul), a, b); }
  StridedView Div(const StridedView& a, const StridedView& b) { return Apply(BinaryRoutine(kCodeDiv), a, b); }
  /// x + value, x * value, x ^ value.
  StridedView Plus(const StridedView& x, double value) { return ApplyNumber(kAddScalar, x, value); }
  StridedView Times(const StridedView& x, double value) { return ApplyNumber(kMulScalar, x, value); }
  StridedView Power(const StridedView& x, double value) { return ApplyNumber(kPowScalar, x, value); }
  /// value - x.
  StridedView From(double value, const StridedView& x) { return Plus(Times(x, -1), value); }
  /// An aclnn function of tensors and an output of their type and shape: "aclnnSqrt", "aclnnMaximum".
  StridedView Of(std::string_view function, const StridedView& x);
  StridedView Of(std::string_view function, const StridedView& a, const StridedView& b);
  /// Sums and means over dims, which stay with size 1; the variance divides by the number of elements.
  StridedView Sum(const StridedView& x, std::vector<int64_t> dims);
  StridedView Mean(const StridedView& x, std::vector<int64_t> dims);
  StridedView Variance(const StridedView& x, std::vector<int64_t> dims);

  /// The value into `to`, converted and broadcast.
  void Store(const StridedView& from, const StridedView& to);
  void Fail(Status&& status);

 private:
  StridedView Apply(const Routine& routine, const StridedView& a, const StridedView& b);
  StridedView ApplyNumber(const Routine& routine, const StridedView& x, double value);
  StridedView Reduced(const StridedView& x, const std::vector<int64_t>& dims);

  NamedCall& call_;
  const kernels::DType type_;
  Status status_;
};

}  // namespace reprise::ops::named
