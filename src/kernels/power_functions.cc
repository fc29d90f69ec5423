// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic functions that divide with a remainder, and powers.
#include <cmath>
#include <limits>

#include "kernels/arithmetic.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/power_rows.h"

namespace reprise::kernels {
namespace {

using simd::PowerRow;

template <class T>
T FmodValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;  // min % -1 overflows
    }
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}

template <class T>
struct Fmod {
  T operator()(T a, T b) const { return FmodValue(a, b); }
};

template <class T>
struct Remainder {
  T operator()(T a, T b) const {
    const T rest = FmodValue(a, b);
    if constexpr (std::is_unsigned_v<T>) {
      return rest;
    } else {
      return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
    }
  }
};

template <class T>
struct TruncateDiv {
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return DivValue(a, b);
    } else {
      return std::trunc(a / b);
    }
  }
};

template <class T>
struct FloorDiv {
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = DivValue(a, b);
      if constexpr (std::is_unsigned_v<T>) {
        return quotient;
      } else {
        const T rest = FmodValue(a, b);
        return rest != 0 && (b < 0) != (rest < 0) ? quotient - 1 : quotient;
      }
    } else {
      // From the remainder: a / b itself may round up to the next whole number.
      if (b == 0) return a / b;
      const T rest = std::fmod(a, b);
      T quotient = (a - rest) / b;
      if (rest != 0 && (b < 0) != (rest < 0)) quotient -= T(1);
      if (quotient == 0) return std::copysign(T(0), a / b);
      const T whole = std::floor(quotient);
      return quotient - whole > T(0.5) ? whole + T(1) : whole;
    }
  }
};

template <class T>
T PowValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>) {
      if (b < 0) {
        if (a == 1) return 1;
        return static_cast<T>(a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
      }
    }
    T result = 1;
    for (T rest = b; rest != 0; rest = static_cast<T>(rest / 2)) {
      if (rest % 2 != 0) result = MulValue(result, a);
      a = MulValue(a, a);
    }
    return result;
  } else {
    return std::pow(a, b);
  }
}

template <class T>
struct Pow {
  T operator()(T a, T b) const { return PowValue(a, b); }
};
template <class T>
struct PowOf {
  T operator()(T a, T b) const { return PowValue(b, a); }
};
template <class T>
struct Cube {
  T operator()(T a) const { return MulValue(MulValue(a, a), a); }
};
template <class T>
struct InverseSquare {
  T operator()(T a) const { return DivValue(T(1), MulValue(a, a)); }
};

template <class T>
struct Atan2 {
  T operator()(T a, T b) const { return std::atan2(a, b); }
};

template <class T>
struct LogAddExp {
  T operator()(T a, T b) const {
    if (a == b && std::isinf(a)) return a;
    return std::fmax(a, b) + std::log1p(std::exp(-std::abs(a - b)));  // a NaN comes through the difference
  }
};

template <class T>
struct MakeComplex {
  std::complex<T> operator()(T a, T b) const { return {a, b}; }
};

// Vector rows of float32, which 16-bit floats convert to, plain loops over `Others`.
template <PowerRow kRow, template <class> class Functor, class Others>
ElementRow Find(DType compute) {
  if (MathDType(compute) != DType::kFloat) return PlainRows2<Functor, Others>(compute);
  ElementRow row = simd::FindPowerRow(kRow);
  row.is_wide = compute != DType::kFloat;
  return row;
}

using DoubleAndIntegers = TypeList<double, int32_t, int64_t, uint64_t>;
using OtherNumbers = TypeList<double, int32_t, int64_t, uint64_t, std::complex<double>>;
using Double = TypeList<double>;

}  // namespace

const ElementFn kTruncateDivFn = {
    .inputs = 2, .cost = 4, .find = Find<PowerRow::kTruncateDiv, TruncateDiv, DoubleAndIntegers>};
const ElementFn kFloorDivFn = {.inputs = 2, .cost = 16, .find = Find<PowerRow::kFloorDiv, FloorDiv, DoubleAndIntegers>};
const ElementFn kFmodFn = {.inputs = 2, .cost = 8, .find = Find<PowerRow::kFmod, Fmod, DoubleAndIntegers>};
const ElementFn kRemainderFn = {
    .inputs = 2, .cost = 8, .find = Find<PowerRow::kRemainder, Remainder, DoubleAndIntegers>};
const ElementFn kPowFn = {.inputs = 2, .cost = 16, .find = Find<PowerRow::kPow, Pow, OtherNumbers>};
const ElementFn kPowOfFn = {.inputs = 2, .cost = 16, .find = Find<PowerRow::kPowOf, PowOf, OtherNumbers>};
const ElementFn kCubeFn = {.inputs = 1, .find = PlainRows1<Cube, AllNumbers>};
const ElementFn kInverseSquareFn = {.inputs = 1, .cost = 4, .find = PlainRows1<InverseSquare, FloatsAndComplexes>};
const ElementFn kAtan2Fn = {.inputs = 2, .cost = 8, .find = Find<PowerRow::kAtan2, Atan2, Double>};
const ElementFn kLogAddExpFn = {.inputs = 2, .cost = 16, .find = Find<PowerRow::kLogAddExp, LogAddExp, Double>};
const ElementFn kComplexFn = {.inputs = 2, .find = PlainRows2<MakeComplex, Floats>};

}  // namespace reprise::kernels
