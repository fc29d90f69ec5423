// SPDX-License-Identifier: Apache-2.0
#include "kernels/special_functions.h"

#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"

namespace reprise::kernels {
namespace {

// The type in which functions of T compute whose result is much smaller than what it is the difference of.
template <class T>
using Precise = std::conditional_t<std::is_same_v<T, float>, double, T>;

// ---- Functions of one number ----

template <class T>
struct Acosh {
  T operator()(T a) const { return std::acosh(a); }
};
template <class T>
struct Asinh {
  T operator()(T a) const { return std::asinh(a); }
};
template <class T>
struct Atanh {
  T operator()(T a) const { return std::atanh(a); }
};

template <class T>
struct Sinc {
  T operator()(T a) const {
    if (a == T(0)) return T(1);
    const Precise<T> x = Precise<T>(a) * std::numbers::pi;
    return static_cast<T>(std::sin(x) / x);
  }
};

template <class T>
struct Angle {
  auto operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return std::arg(a);
    } else {
      return a != a ? a : a < 0 ? std::numbers::pi_v<T> : T(0);
    }
  }
};

template <class T>
struct Signbit {
  Bool operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return Bool(std::signbit(a));
    } else {
      return Bool(a < T(0));
    }
  }
};

template <class T>
T LogitOf(T a) {
  const Precise<T> x = a;
  return static_cast<T>(std::log(x / (1 - x)));
}

template <class T>
struct Logit {
  T operator()(T a) const { return LogitOf(a); }
};

template <class T>
struct LogitBetween {
  explicit LogitBetween(const T* numbers) : low(numbers[0]), high(numbers[1]) {}
  T operator()(T a) const { return LogitOf(a < low ? low : a > high ? high : a); }
  T low, high;
};

template <class T>
struct LogitGrad {
  T operator()(T grad, T a) const {
    return a < 0 || a > 1 ? std::numeric_limits<T>::quiet_NaN() : grad / (a * (1 - a));
  }
};

template <class T>
struct LogitBetweenGrad {
  explicit LogitBetweenGrad(const T* numbers) : low(numbers[0]), high(numbers[1]) {}
  T operator()(T grad, T a) const { return a < low || a > high ? T(0) : grad / (a * (1 - a)); }
  T low, high;
};

// ---- Functions of two numbers and more ----

template <class T>
T XLogYOf(T a, T b) {
  if (b != b) return b;
  return a == 0 ? T(0) : static_cast<T>(Precise<T>(a) * std::log(Precise<T>(b)));
}

template <class T>
struct XLogY {
  T operator()(T a, T b) const { return XLogYOf(a, b); }
};
template <class T>
struct XLogYSwapped {
  T operator()(T a, T b) const { return XLogYOf(b, a); }
};

template <class T>
struct LogAddExp2 {
  T operator()(T a, T b) const {
    if (std::isinf(a) && a == b) return a;
    const T high = a > b ? a : b;
    return high + std::log1p(std::exp2(-std::abs(a - b))) * std::numbers::log2e_v<T>;
  }
};

template <class T>
struct Gcd {
  T operator()(T a, T b) const {
    a = AbsValue(a);
    b = AbsValue(b);
    while (b != 0) {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 1;  // the smallest number modulo -1 is not defined
      }
      const T rest = static_cast<T>(a % b);
      a = b;
      b = rest;
    }
    return AbsValue(a);
  }
};

template <class T>
bool IsShift(T bits) {
  if constexpr (std::is_signed_v<T>) {
    if (bits < 0) return false;
  }
  return bits < static_cast<T>(sizeof(T) * 8);
}

template <class T>
struct LeftShift {
  T operator()(T a, T b) const {
    return IsShift(b) ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << b) : T(0);
  }
};
template <class T>
struct RightShift {
  T operator()(T a, T b) const {
    if (IsShift(b)) return static_cast<T>(a >> b);
    if constexpr (std::is_signed_v<T>) return a < 0 ? T(-1) : T(0);
    return T(0);
  }
};

template <class T>
struct Polar {
  std::complex<T> operator()(T length, T angle) const { return {length * std::cos(angle), length * std::sin(angle)}; }
};

template <class T>
struct AddRelu {
  explicit AddRelu(const T* numbers) : alpha(numbers[0]) {}
  T operator()(T a, T b) const { return ReluValue(AddValue(a, MulValue(alpha, b))); }
  T alpha;
};

template <class T>
T RoundHalfToOdd(T a) {
  const T low = std::floor(a);
  const T rest = a - low;
  if (rest != T(0.5)) return rest < T(0.5) ? low : low + 1;
  return std::fmod(low, T(2)) == 0 ? low + 1 : low;
}

template <class T>
struct RoundBy {
  explicit RoundBy(const T* numbers) : mode(static_cast<int>(numbers[0])) {}
  T operator()(T a) const {
    switch (mode) {
      case 1: return std::nearbyint(a);
      case 2: return std::floor(a);
      case 3: return std::ceil(a);
      case 4: return std::round(a);
      case 5: return std::trunc(a);
      case 6: return std::isfinite(a) ? RoundHalfToOdd(a) : a;
      case 7: return a - std::trunc(a);
      default: return a;
    }
  }
  int mode;
};

template <class T>
struct OuterSum {
  explicit OuterSum(const T* numbers) : beta(numbers[0]), alpha(numbers[1]) {}
  T operator()(T a, T b, T c) const {
    const T product = MulValue(alpha, MulValue(b, c));
    return beta == T(0) ? product : AddValue(MulValue(beta, a), product);
  }
  T beta, alpha;
};

using Doubles = TypeList<float, double, std::complex<double>>;

}  // namespace

const ElementFn kAcoshFn = {.inputs = 1, .cost = 16, .find = PlainRows1<Acosh, Doubles>};
const ElementFn kAddReluFn = {.inputs = 2, .find = PlainRows2<AddRelu, FloatsAndIntegers>};
const ElementFn kAngleFn = {.inputs = 1, .cost = 2, .find = PlainRows1<Angle, FloatsAndComplexes>};
const ElementFn kAsinhFn = {.inputs = 1, .cost = 16, .find = PlainRows1<Asinh, Doubles>};
const ElementFn kAtanhFn = {.inputs = 1, .cost = 16, .find = PlainRows1<Atanh, Doubles>};
const ElementFn kGcdFn = {.inputs = 2, .cost = 32, .find = PlainRows2<Gcd, Integers>};
const ElementFn kLeftShiftFn = {.inputs = 2, .find = PlainRows2<LeftShift, Integers>};
const ElementFn kLogAddExp2Fn = {.inputs = 2, .cost = 16, .find = PlainRows2<LogAddExp2, Floats>};
const ElementFn kLogitBetweenFn = {.inputs = 1, .cost = 16, .find = PlainRows1<LogitBetween, Floats>};
const ElementFn kLogitBetweenGradFn = {.inputs = 2, .cost = 4, .find = PlainRows2<LogitBetweenGrad, Floats>};
const ElementFn kLogitFn = {.inputs = 1, .cost = 16, .find = PlainRows1<Logit, Floats>};
const ElementFn kLogitGradFn = {.inputs = 2, .cost = 4, .find = PlainRows2<LogitGrad, Floats>};
const ElementFn kOuterSumFn = {.inputs = 3, .cost = 2, .find = PlainRows3<OuterSum, AllNumbers>};
const ElementFn kPolarFn = {.inputs = 2, .cost = 24, .find = PlainRows2<Polar, Floats>};
const ElementFn kRightShiftFn = {.inputs = 2, .find = PlainRows2<RightShift, Integers>};
const ElementFn kRoundByFn = {.inputs = 1, .cost = 2, .find = PlainRows1<RoundBy, Floats>};
const ElementFn kSignbitFn = {.inputs = 1, .find = PlainRows1<Signbit, FloatsAndIntegers>};
const ElementFn kSincFn = {.inputs = 1, .cost = 16, .find = PlainRows1<Sinc, Doubles>};
const ElementFn kXLogYFn = {.inputs = 2, .cost = 16, .find = PlainRows2<XLogY, Floats>};
const ElementFn kXLogYOfFn = {.inputs = 2, .cost = 16, .find = PlainRows2<XLogYSwapped, Floats>};

}  // namespace reprise::kernels
