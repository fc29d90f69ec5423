// SPDX-License-Identifier: Apache-2.0
#include "kernels/math_functions.h"

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/math_rows.h"

namespace reprise::kernels {
namespace {

using simd::MathRow;

template <class T>
struct Exp {
  T operator()(T a) const { return std::exp(a); }
};

template <class T>
struct Neg {
  T operator()(T a) const { return NegValue(a); }
};

template <class T>
struct Abs {
  auto operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return std::abs(a);
    } else {
      return AbsValue(a);
    }
  }
};

// Vectors of float32, float16 and bfloat16, plain loops of the other types.
template <MathRow kRow, template <class> class Functor, class Others>
ElementRow Find(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindMathRow(kRow, compute);
  return PlainRows1<Functor, Others>(compute);
}

using Wide = TypeList<double, std::complex<float>, std::complex<double>>;
using WideAndIntegers = TypeList<double, int32_t, int64_t, uint64_t, std::complex<float>, std::complex<double>>;

}  // namespace

const ElementFn kExpFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kExp, Exp, Wide>};
const ElementFn kNegFn = {.inputs = 1, .find = Find<MathRow::kNeg, Neg, WideAndIntegers>};
const ElementFn kAbsFn = {.inputs = 1, .find = Find<MathRow::kAbs, Abs, WideAndIntegers>};

}  // namespace reprise::kernels
