// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_functions.h"

#include <cmath>
#include <numbers>

#include "kernels/arithmetic.h"
#include "kernels/plain_rows.h"
#include "kernels/simd/activation_rows.h"

namespace reprise::kernels {
namespace {

using simd::ActivationRow;

template <class T>
T SigmoidOf(T a) {
  if constexpr (kIsComplex<T>) {
    return DivValue(T(1), T(1) + std::exp(-a));
  } else {
    const T e = std::exp(-std::abs(a));
    return (a >= 0 ? T(1) : e) / (1 + e);
  }
}

template <class T>
T ConjugateOf(T a) {
  if constexpr (kIsComplex<T>) {
    return std::conj(a);
  } else {
    return a;
  }
}

template <class T>
T GeluOf(T a) {
  return a * T(0.5) * (1 + std::erf(a * (std::numbers::sqrt2_v<T> / 2)));
}

// sqrt(2 / pi) times 2.
template <class T>
inline constexpr T kTwiceRoot = T(1.5957691216057308);

template <class T>
T GeluTanhOf(T a) {
  return a * SigmoidOf(a * kTwiceRoot<T> * (1 + T(0.044715) * a * a));
}

template <class T>
struct Relu {
  T operator()(T a) const { return ReluValue(a); }
};

template <class T>
struct LeakyRelu {
  explicit LeakyRelu(const T* numbers) : slope(numbers[0]) {}
  T operator()(T a) const { return a > 0 ? a : a * slope; }
  T slope;
};

template <class T>
struct Elu {
  explicit Elu(const T* numbers) : negative(numbers[0]), positive(numbers[1]), inner(numbers[2]) {}
  T operator()(T a) const { return a <= 0 ? std::expm1(a * inner) * negative : a * positive; }
  T negative, positive, inner;
};

template <class T>
struct Hardtanh {
  explicit Hardtanh(const T* numbers) : low(numbers[0]), high(numbers[1]) {}
  T operator()(T a) const {
    const T c = a < low ? low : a;
    return c > high ? high : c;
  }
  T low, high;
};

template <class T>
T HardGate(T a) {
  constexpr T kBounds[] = {0, 6};
  return Hardtanh<T>(kBounds)(a + 3);
}

template <class T>
struct Hardsigmoid {
  T operator()(T a) const { return HardGate(a) / 6; }
};

template <class T>
struct Hardswish {
  T operator()(T a) const { return a * HardGate(a) / 6; }
};

template <class T>
struct Threshold {
  explicit Threshold(const T* numbers) : threshold(numbers[0]), value(numbers[1]) {}
  T operator()(T a) const { return a <= threshold ? value : a; }
  T threshold, value;
};

template <class T>
struct Sigmoid {
  T operator()(T a) const { return SigmoidOf(a); }
};

template <class T>
struct Silu {
  T operator()(T a) const { return a * SigmoidOf(a); }
};

template <class T>
struct FastGelu {
  T operator()(T a) const { return a * SigmoidOf(a * T(1.702)); }
};

template <class T>
struct Gelu {
  T operator()(T a) const { return GeluOf(a); }
};

template <class T>
struct GeluTanh {
  T operator()(T a) const { return GeluTanhOf(a); }
};

template <class T>
struct Mish {
  T operator()(T a) const { return a * std::tanh(std::log1p(std::exp(a))); }
};

template <class T>
struct Softplus {
  explicit Softplus(const T* numbers) : beta(numbers[0]), threshold(numbers[1]) {}
  T operator()(T a) const { return a * beta > threshold ? a : std::log1p(std::exp(a * beta)) / beta; }
  T beta, threshold;
};

template <class T>
struct Glu {
  T operator()(T a, T b) const { return a * SigmoidOf(b); }
};

template <class T>
struct SwiGlu {
  T operator()(T a, T b) const { return a * SigmoidOf(a) * b; }
};

template <class T>
struct GeGlu {
  T operator()(T a, T b) const { return GeluOf(a) * b; }
};

template <class T>
struct GeGluTanh {
  T operator()(T a, T b) const { return GeluTanhOf(a) * b; }
};

template <class T>
struct SigmoidBackward {
  T operator()(T grad, T y) const { return MulValue(grad, ConjugateOf(MulValue(T(1) - y, y))); }
};

template <class T>
struct TanhBackward {
  T operator()(T grad, T y) const { return MulValue(grad, ConjugateOf(MulValue(T(1) - y, T(1) + y))); }
};

template <class T>
struct ThresholdBackward {
  explicit ThresholdBackward(const T* numbers) : threshold(numbers[0]) {}
  T operator()(T grad, T a) const { return a <= threshold ? T(0) : grad; }
  T threshold;
};

template <class T>
struct SiluBackward {
  T operator()(T grad, T a) const {
    const T s = SigmoidOf(a);
    return grad * s * (1 + a * (1 - s));
  }
};

template <class T>
struct GeluBackward {
  T operator()(T grad, T a) const {
    const T below = T(0.5) * (1 + std::erf(a * (std::numbers::sqrt2_v<T> / 2)));
    const T density = std::exp(a * a * T(-0.5)) * (std::numbers::inv_sqrtpi_v<T> * std::numbers::sqrt2_v<T> / 2);
    return grad * (below + a * density);
  }
};

template <class T>
struct GeluTanhBackward {
  T operator()(T grad, T a) const {
    const T s = SigmoidOf(a * kTwiceRoot<T> * (1 + T(0.044715) * a * a));
    const T slope = kTwiceRoot<T> * (1 + 3 * T(0.044715) * a * a);
    return grad * (s + a * slope * s * (1 - s));
  }
};

template <class T>
struct GluGateBackward {
  T operator()(T grad, T a, T b) const {
    const T e = std::exp(-std::abs(b));
    return grad * a * (e / ((1 + e) * (1 + e)));
  }
};

template <class T>
struct SwiGluGateBackward {
  T operator()(T grad, T a, T b) const { return SiluBackward<T>()(grad * b, a); }
};

using Double = TypeList<double>;
using Wide = TypeList<double, std::complex<double>>;
using Real = TypeList<double, int32_t, int64_t, uint64_t>;

// Vectors of float32, float16 and bfloat16, plain loops of the other types.
template <ActivationRow kRow, template <class> class Functor, class Others = Double>
ElementRow Find1(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindActivationRow(kRow, compute);
  return PlainRows1<Functor, Others>(compute);
}
template <ActivationRow kRow, template <class> class Functor, class Others = Double>
ElementRow Find2(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindActivationRow(kRow, compute);
  return PlainRows2<Functor, Others>(compute);
}
template <ActivationRow kRow, template <class> class Functor, class Others = Double>
ElementRow Find3(DType compute) {
  if (MathDType(compute) == DType::kFloat) return simd::FindActivationRow(kRow, compute);
  return PlainRows3<Functor, Others>(compute);
}

}  // namespace

const ElementFn kEluFn = {.inputs = 1, .cost = 8, .find = Find1<ActivationRow::kElu, Elu>};
const ElementFn kFastGeluFn = {.inputs = 1, .cost = 10, .find = Find1<ActivationRow::kFastGelu, FastGelu>};
const ElementFn kGeGluFn = {.inputs = 2, .cost = 16, .find = Find2<ActivationRow::kGeGlu, GeGlu>};
const ElementFn kGeGluTanhFn = {.inputs = 2, .cost = 12, .find = Find2<ActivationRow::kGeGluTanh, GeGluTanh>};
const ElementFn kGeluBackwardFn = {.inputs = 2, .cost = 24, .find = Find2<ActivationRow::kGeluBackward, GeluBackward>};
const ElementFn kGeluFn = {.inputs = 1, .cost = 16, .find = Find1<ActivationRow::kGelu, Gelu>};
const ElementFn kGeluTanhBackwardFn = {
    .inputs = 2, .cost = 14, .find = Find2<ActivationRow::kGeluTanhBackward, GeluTanhBackward>};
const ElementFn kGeluTanhFn = {.inputs = 1, .cost = 12, .find = Find1<ActivationRow::kGeluTanh, GeluTanh>};
const ElementFn kGluFn = {.inputs = 2, .cost = 10, .find = Find2<ActivationRow::kGlu, Glu>};
const ElementFn kGluGateBackwardFn = {
    .inputs = 3, .cost = 12, .find = Find3<ActivationRow::kGluGateBackward, GluGateBackward>};
const ElementFn kHardsigmoidFn = {.inputs = 1, .cost = 3, .find = Find1<ActivationRow::kHardsigmoid, Hardsigmoid>};
const ElementFn kHardswishFn = {.inputs = 1, .cost = 3, .find = Find1<ActivationRow::kHardswish, Hardswish>};
const ElementFn kHardtanhFn = {.inputs = 1, .find = Find1<ActivationRow::kHardtanh, Hardtanh, Real>};
const ElementFn kLeakyReluFn = {.inputs = 1, .find = Find1<ActivationRow::kLeakyRelu, LeakyRelu>};
const ElementFn kMishFn = {.inputs = 1, .cost = 12, .find = Find1<ActivationRow::kMish, Mish>};
const ElementFn kReluFn = {.inputs = 1, .find = Find1<ActivationRow::kRelu, Relu, Real>};
const ElementFn kSigmoidBackwardFn = {.inputs = 2,
                                      .find = Find2<ActivationRow::kSigmoidBackward, SigmoidBackward, Wide>};
const ElementFn kSigmoidFn = {.inputs = 1, .cost = 10, .find = Find1<ActivationRow::kSigmoid, Sigmoid, Wide>};
const ElementFn kSiluBackwardFn = {.inputs = 2, .cost = 12, .find = Find2<ActivationRow::kSiluBackward, SiluBackward>};
const ElementFn kSiluFn = {.inputs = 1, .cost = 10, .find = Find1<ActivationRow::kSilu, Silu, Wide>};
const ElementFn kSoftplusFn = {.inputs = 1, .cost = 24, .find = Find1<ActivationRow::kSoftplus, Softplus>};
const ElementFn kSwiGluFn = {.inputs = 2, .cost = 10, .find = Find2<ActivationRow::kSwiGlu, SwiGlu>};
const ElementFn kSwiGluGateBackwardFn = {
    .inputs = 3, .cost = 14, .find = Find3<ActivationRow::kSwiGluGateBackward, SwiGluGateBackward>};
const ElementFn kTanhBackwardFn = {.inputs = 2, .find = Find2<ActivationRow::kTanhBackward, TanhBackward, Wide>};
const ElementFn kThresholdBackwardFn = {.inputs = 2,
                                        .find = Find2<ActivationRow::kThresholdBackward, ThresholdBackward, Real>};
const ElementFn kThresholdFn = {.inputs = 1, .find = Find1<ActivationRow::kThreshold, Threshold, Real>};

}  // namespace reprise::kernels
