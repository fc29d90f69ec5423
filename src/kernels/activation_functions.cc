// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_functions.h"

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/math_rows.h"

namespace reprise::kernels {
namespace {

template <class T>
struct Relu {
  T operator()(T a) const { return ReluValue(a); }
};

ElementRow FindRelu(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindMathRow(simd::MathRow::kRelu, compute);
  return PlainRows1<Relu, TypeList<double, int32_t, int64_t, uint64_t>>(compute);
}

}  // namespace

const ElementFn kReluFn = {.inputs = 1, .find = FindRelu};

}  // namespace reprise::kernels
