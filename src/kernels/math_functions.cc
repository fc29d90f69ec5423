// SPDX-License-Identifier: Apache-2.0
#include "kernels/math_functions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/math_rows.h"

namespace reprise::kernels {
namespace {

using simd::MathRow;

// Functions of float64 and complex128 that the C++ library has.
#define REPRISE_FUNCTOR(Name, function)             \
  template <class T>                                \
  struct Name {                                     \
    T operator()(T a) const { return function(a); } \
  }

REPRISE_FUNCTOR(Acos, std::acos);
REPRISE_FUNCTOR(Asin, std::asin);
REPRISE_FUNCTOR(Atan, std::atan);
REPRISE_FUNCTOR(Cos, std::cos);
REPRISE_FUNCTOR(Cosh, std::cosh);
REPRISE_FUNCTOR(Erf, std::erf);
REPRISE_FUNCTOR(Erfc, std::erfc);
REPRISE_FUNCTOR(Exp, std::exp);
REPRISE_FUNCTOR(Log, std::log);
REPRISE_FUNCTOR(Log10, std::log10);
REPRISE_FUNCTOR(Sin, std::sin);
REPRISE_FUNCTOR(Sinh, std::sinh);
REPRISE_FUNCTOR(Sqrt, std::sqrt);
REPRISE_FUNCTOR(Tan, std::tan);
REPRISE_FUNCTOR(Tanh, std::tanh);
REPRISE_FUNCTOR(Neg, NegValue);

#undef REPRISE_FUNCTOR

template <class T>
struct Exp2 {
  T operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return std::exp(a * std::numbers::ln2);
    } else {
      return std::exp2(a);
    }
  }
};

template <class T>
struct Expm1 {
  T operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      // e^x cos y - 1 without cancellation.
      const auto half_sin = std::sin(a.imag() / 2);
      return T(std::expm1(a.real()) * std::cos(a.imag()) - 2 * half_sin * half_sin,
               std::exp(a.real()) * std::sin(a.imag()));
    } else {
      return std::expm1(a);
    }
  }
};

template <class T>
struct Log2 {
  T operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return std::log(a) * std::numbers::log2e;
    } else {
      return std::log2(a);
    }
  }
};

template <class T>
struct Log1p {
  T operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      const auto x = a.real();
      const auto y = a.imag();
      // |1 + a|^2 - 1 where that is small.
      if (std::abs(x) < 0.5 && std::abs(y) < 0.5) return T(std::log1p(x * (2 + x) + y * y) / 2, std::atan2(y, 1 + x));
      return std::log(T(1 + x, y));
    } else {
      return std::log1p(a);
    }
  }
};

template <class T>
struct Erfinv {
  T operator()(T x) const {
    const T a = std::abs(x);
    if (!(a < 1)) return a == 1 ? x * std::numeric_limits<T>::infinity() : std::numeric_limits<T>::quiet_NaN();
    if (a == 0) return x;
    // Good to 3 digits; each step triples them.
    const T log = std::log1p(-a * a);
    const T half = T(2) / (std::numbers::pi_v<T> * T(0.147)) + log / 2;
    T y = std::sqrt(std::sqrt(half * half - log / T(0.147)) - half);
    if (!(y > 0)) y = a;  // the difference above was lost
    for (int step = 0; step < 2; ++step) {
      const T error = a < T(0.5) ? std::erf(y) - a : (1 - a) - std::erfc(y);
      const T newton = error / (2 * std::numbers::inv_sqrtpi_v<T> * std::exp(-y * y));
      y -= newton / (1 + newton * y);
    }
    return std::copysign(y, x);
  }
};

template <class T>
struct Reciprocal {
  T operator()(T a) const { return DivValue(T(1), a); }
};

template <class T>
struct Rsqrt {
  T operator()(T a) const { return DivValue(T(1), T(std::sqrt(a))); }
};

// What rounds leaves integers as they are.
#define REPRISE_FUNCTOR(Name, function)      \
  template <class T>                         \
  struct Name {                              \
    T operator()(T a) const {                \
      if constexpr (std::is_integral_v<T>) { \
        return a;                            \
      } else {                               \
        return function(a);                  \
      }                                      \
    }                                        \
  }

REPRISE_FUNCTOR(Ceil, std::ceil);
REPRISE_FUNCTOR(Floor, std::floor);
REPRISE_FUNCTOR(Round, std::nearbyint);
REPRISE_FUNCTOR(Trunc, std::trunc);

#undef REPRISE_FUNCTOR

template <class T>
struct Frac {
  T operator()(T a) const { return a - std::trunc(a); }
};

template <class T>
struct RoundScaledUp {
  explicit RoundScaledUp(const T* numbers) : scale(numbers[0]) {}
  T operator()(T a) const { return std::nearbyint(a * scale) / scale; }
  T scale;
};

template <class T>
struct RoundScaledDown {
  explicit RoundScaledDown(const T* numbers) : scale(numbers[0]) {}
  T operator()(T a) const { return std::nearbyint(a / scale) * scale; }
  T scale;
};

template <class T>
struct NanToNum {
  explicit NanToNum(const T* numbers) : nan(numbers[0]), high(numbers[1]), low(numbers[2]) {}
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) {
      return a;
    } else {
      if (a != a) return nan;
      return std::isinf(a) ? (a > 0 ? high : low) : a;
    }
  }
  T nan, high, low;
};

template <class T>
struct Sign {
  T operator()(T a) const {
    if constexpr (kIsComplex<T>) {
      return a == T(0) ? T(0) : a / std::abs(a);
    } else {
      return static_cast<T>((a > T(0)) - (a < T(0)));
    }
  }
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

// The sign bit of a 16-bit float.
struct ClearSign {
  uint16_t operator()(uint16_t a) const { return a & 0x7fffu; }
};
struct FlipSign {
  uint16_t operator()(uint16_t a) const { return a ^ 0x8000u; }
};

template <class Fn>
void WordRow(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto* a = static_cast<const uint16_t*>(row.in[0]);
  auto* out = static_cast<uint16_t*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = Fn()(a[i]);
}

// Vectors of float32, float16 and bfloat16, plain loops of the other types.
template <MathRow kRow, template <class> class Functor, class Others>
ElementRow Find(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindMathRow(kRow, compute);
  return PlainRows1<Functor, Others>(compute);
}

template <MathRow kRow, template <class> class Functor, class Others, class Words>
ElementRow FindWithWords(DType compute) {
  if (ItemSize(compute) == 2 && CategoryOf(compute) == Category::kFloating) {
    return ElementRow::Of(compute, WordRow<Words>);
  }
  return Find<kRow, Functor, Others>(compute);
}

using Wide = TypeList<double, std::complex<double>>;
using Real = TypeList<double, int32_t, int64_t, uint64_t>;
using WideAndIntegers = TypeList<double, int32_t, int64_t, uint64_t, std::complex<float>, std::complex<double>>;
using Double = TypeList<double>;

}  // namespace

const ElementFn kAbsFn = {.inputs = 1, .find = FindWithWords<MathRow::kAbs, Abs, WideAndIntegers, ClearSign>};
const ElementFn kAcosFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kAcos, Acos, Wide>};
const ElementFn kAsinFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kAsin, Asin, Wide>};
const ElementFn kAtanFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kAtan, Atan, Wide>};
const ElementFn kCeilFn = {.inputs = 1, .find = Find<MathRow::kCeil, Ceil, Real>};
const ElementFn kCosFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kCos, Cos, Wide>};
const ElementFn kCoshFn = {.inputs = 1, .cost = 12, .find = Find<MathRow::kCosh, Cosh, Wide>};
const ElementFn kErfFn = {.inputs = 1, .cost = 16, .find = Find<MathRow::kErf, Erf, Double>};
const ElementFn kErfcFn = {.inputs = 1, .cost = 20, .find = Find<MathRow::kErfc, Erfc, Double>};
const ElementFn kErfinvFn = {.inputs = 1, .cost = 24, .find = Find<MathRow::kErfInv, Erfinv, Double>};
const ElementFn kExp2Fn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kExp2, Exp2, Wide>};
const ElementFn kExpFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kExp, Exp, Wide>};
const ElementFn kExpm1Fn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kExpm1, Expm1, Wide>};
const ElementFn kFloorFn = {.inputs = 1, .find = Find<MathRow::kFloor, Floor, Real>};
const ElementFn kFracFn = {.inputs = 1, .find = Find<MathRow::kFrac, Frac, Double>};
const ElementFn kLog10Fn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kLog10, Log10, Wide>};
const ElementFn kLog1pFn = {.inputs = 1, .cost = 12, .find = Find<MathRow::kLog1p, Log1p, Wide>};
const ElementFn kLog2Fn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kLog2, Log2, Wide>};
const ElementFn kLogFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kLog, Log, Wide>};
const ElementFn kNanToNumFn = {.inputs = 1, .find = Find<MathRow::kNanToNum, NanToNum, Real>};
const ElementFn kNegFn = {.inputs = 1, .find = FindWithWords<MathRow::kNeg, Neg, WideAndIntegers, FlipSign>};
const ElementFn kReciprocalFn = {.inputs = 1, .cost = 3, .find = Find<MathRow::kReciprocal, Reciprocal, Wide>};
const ElementFn kRoundFn = {.inputs = 1, .find = Find<MathRow::kRound, Round, Real>};
const ElementFn kRoundScaledDownFn = {
    .inputs = 1, .cost = 3, .find = Find<MathRow::kRoundScaledDown, RoundScaledDown, Double>};
const ElementFn kRoundScaledUpFn = {
    .inputs = 1, .cost = 3, .find = Find<MathRow::kRoundScaledUp, RoundScaledUp, Double>};
const ElementFn kRsqrtFn = {.inputs = 1, .cost = 5, .find = Find<MathRow::kRsqrt, Rsqrt, Wide>};
const ElementFn kSignFn = {.inputs = 1, .find = Find<MathRow::kSign, Sign, WideAndIntegers>};
const ElementFn kSinFn = {.inputs = 1, .cost = 8, .find = Find<MathRow::kSin, Sin, Wide>};
const ElementFn kSinhFn = {.inputs = 1, .cost = 12, .find = Find<MathRow::kSinh, Sinh, Wide>};
const ElementFn kSqrtFn = {.inputs = 1, .cost = 3, .find = Find<MathRow::kSqrt, Sqrt, Wide>};
const ElementFn kTanFn = {.inputs = 1, .cost = 10, .find = Find<MathRow::kTan, Tan, Wide>};
const ElementFn kTanhFn = {.inputs = 1, .cost = 12, .find = Find<MathRow::kTanh, Tanh, Wide>};
const ElementFn kTruncFn = {.inputs = 1, .find = Find<MathRow::kTrunc, Trunc, Real>};

}  // namespace reprise::kernels
