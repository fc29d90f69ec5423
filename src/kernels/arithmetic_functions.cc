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

template <class T>
struct RsubScaled {
  explicit RsubScaled(const T* numbers) : alpha(numbers[0]) {}
  T operator()(T a, T b) const { return SubValue(b, MulValue(alpha, a)); }
  T alpha;
};

template <class T>
struct Addcmul {
  explicit Addcmul(const T* numbers) : value(numbers[0]) {}
  T operator()(T a, T b, T c) const { return AddValue(a, MulValue(MulValue(value, b), c)); }
  T value;
};

template <class T>
struct Addcdiv {
  explicit Addcdiv(const T* numbers) : value(numbers[0]) {}
  T operator()(T a, T b, T c) const { return a + DivValue(MulValue(value, b), c); }
  T value;
};

template <class T>
struct Lerp {
  T operator()(T a, T b, T weight) const {
    return std::abs(weight) < 0.5 ? a + MulValue(weight, b - a) : b - MulValue(b - a, T(1) - weight);
  }
};

template <class T>
struct LerpBy {
  explicit LerpBy(const T* numbers) : weight(numbers[0]) {}
  T operator()(T a, T b) const { return Lerp<T>()(a, b, weight); }
  T weight;
};

// The comparison is false for a NaN in b, which is then the result.
template <class T>
struct Maximum {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) | Truth(b));
    } else {
      return (a > b) | (a != a) ? a : b;  // NOLINT: no branch
    }
  }
};

template <class T>
struct Minimum {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, Bool>) {
      return Bool(Truth(a) & Truth(b));
    } else {
      return (a < b) | (a != a) ? a : b;  // NOLINT: no branch
    }
  }
};

template <class T>
struct Clamp {
  explicit Clamp(const T* numbers) : low(numbers[0]), high(numbers[1]) {}
  T operator()(T a) const {
    const T raised = a < low ? low : a;
    return raised > high ? high : raised;
  }
  T low;
  T high;
};

template <class T>
struct ClampBetween {
  T operator()(T a, T low, T high) const { return Minimum<T>()(Maximum<T>()(a, low), high); }
};

template <ArithmeticRow kRow, template <class> class Functor>
ElementRow FindWrapping(DType compute) {
  return HasVectorRow(compute) ? simd::FindArithmeticRow(kRow, compute)
                               : WrappingRows2<Functor, WrappingTypes>(compute);
}

// Vector rows where there are any, plain loops over `Others`.
template <int kInputs, ArithmeticRow kRow, template <class> class Functor, class Others>
ElementRow Find(DType compute) {
  if (HasVectorRow(compute)) return simd::FindArithmeticRow(kRow, compute);
  return FindPlainRow<Functor, kInputs>(compute, Others());
}

using OrderedTypes = TypeList<double, int32_t, int64_t, uint64_t, Bool>;
using OtherNumbers = TypeList<double, int32_t, int64_t, uint64_t, std::complex<float>, std::complex<double>>;
using OtherFloats = TypeList<double, std::complex<float>, std::complex<double>>;

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
const ElementFn kRsubScaledFn = {.inputs = 2, .find = Find<2, ArithmeticRow::kRsubScaled, RsubScaled, OtherNumbers>};
const ElementFn kAddcmulFn = {.inputs = 3, .cost = 2, .find = Find<3, ArithmeticRow::kAddcmul, Addcmul, OtherNumbers>};
const ElementFn kAddcdivFn = {.inputs = 3, .cost = 4, .find = Find<3, ArithmeticRow::kAddcdiv, Addcdiv, OtherFloats>};
const ElementFn kLerpFn = {.inputs = 3, .cost = 2, .find = Find<3, ArithmeticRow::kLerp, Lerp, OtherFloats>};
const ElementFn kLerpByFn = {.inputs = 2, .cost = 2, .find = Find<2, ArithmeticRow::kLerpBy, LerpBy, OtherFloats>};
const ElementFn kMaximumFn = {.inputs = 2, .find = Find<2, ArithmeticRow::kMaximum, Maximum, OrderedTypes>};
const ElementFn kMinimumFn = {.inputs = 2, .find = Find<2, ArithmeticRow::kMinimum, Minimum, OrderedTypes>};
const ElementFn kClampFn = {
    .inputs = 1, .find = Find<1, ArithmeticRow::kClamp, Clamp, TypeList<double, int32_t, int64_t, uint64_t>>};
const ElementFn kClampBetweenFn = {
    .inputs = 3, .cost = 2, .find = Find<3, ArithmeticRow::kClampBetween, ClampBetween, OrderedTypes>};

}  // namespace reprise::kernels
