// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic_functions.h"

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/arithmetic_rows.h"

namespace reprise::kernels {
namespace {

using simd::ArithmeticRow;

using WrappingTypes =
    TypeList<double, int8_t, int16_t, int32_t, int64_t, Bool, std::complex<float>, std::complex<double>>;
using DividingTypes = TypeList<double, int32_t, int64_t, uint64_t, Bool, std::complex<float>, std::complex<double>>;

constexpr bool HasVectorRow(DType type) { return MathDType(type) == DType::kFloat; }

// Bits of a bool, whatever its byte.
constexpr bool Truth(Bool a) { return a.byte != 0; }

template <class T>
struct Add {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) | Truth(b));
    } else {
      return AddValue(a, b);
    }
  }
};

template <class T>
struct AddScaled {
  explicit AddScaled(const T* numbers) : alpha(numbers[0]) {}
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) | (Truth(alpha) & Truth(b)));
    } else {
      return AddValue(a, MulValue(alpha, b));
    }
  }
  T alpha;
};

template <class T>
struct Sub {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) ^ Truth(b));
    } else {
      return SubValue(a, b);
    }
  }
};

template <class T>
struct SubScaled {
  explicit SubScaled(const T* numbers) : alpha(numbers[0]) {}
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) ^ (Truth(alpha) & Truth(b)));
    } else {
      return SubValue(a, MulValue(alpha, b));
    }
  }
  T alpha;
};

template <class T>
struct Mul {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) & Truth(b));
    } else {
      return MulValue(a, b);
    }
  }
};

template <class T>
struct Div {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) & Truth(b));
    } else {
      return DivValue(a, b);
    }
  }
};

template <ArithmeticRow kRow, template <class> class Functor>
ElementRow FindWrapping(DType compute) {
  return HasVectorRow(compute) ? simd::FindArithmeticRow(kRow, compute)
                               : WrappingRows2<Functor, WrappingTypes>(compute);
}

ElementRow FindDivision(DType compute) {
  return HasVectorRow(compute) ? simd::FindArithmeticRow(ArithmeticRow::kDiv, compute)
                               : PlainRows2<Div, DividingTypes>(compute);
}

}  // namespace

const ElementFn kAddFn = {.inputs = 2, .find = FindWrapping<ArithmeticRow::kAdd, Add>};
const ElementFn kAddScaledFn = {.inputs = 2, .find = FindWrapping<ArithmeticRow::kAddScaled, AddScaled>};
const ElementFn kSubFn = {.inputs = 2, .find = FindWrapping<ArithmeticRow::kSub, Sub>};
const ElementFn kSubScaledFn = {.inputs = 2, .find = FindWrapping<ArithmeticRow::kSubScaled, SubScaled>};
const ElementFn kMulFn = {.inputs = 2, .find = FindWrapping<ArithmeticRow::kMul, Mul>};
const ElementFn kDivFn = {.inputs = 2, .cost = 4, .find = FindDivision};

}  // namespace reprise::kernels
