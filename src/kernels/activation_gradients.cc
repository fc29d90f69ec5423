// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_gradients.h"

#include <cmath>

#include "kernels/plain_rows.h"

namespace reprise::kernels {
namespace {

template <class T>
T GateOf(T a) {
  const T e = std::exp(-std::abs(a));
  return (a >= 0 ? T(1) : e) / (1 + e);
}

// ---- Functions ----

template <class T>
struct Hardshrink {
  explicit Hardshrink(const T* numbers) : bound(numbers[0]) {}
  T operator()(T a) const { return a >= -bound && a <= bound ? T(0) : a; }
  T bound;
};

template <class T>
struct Softshrink {
  explicit Softshrink(const T* numbers) : bound(numbers[0]) {}
  T operator()(T a) const { return a > bound ? a - bound : a < -bound ? a + bound : a * T(0); }
  T bound;
};

template <class T>
struct LogSigmoid {
  T operator()(T a) const { return (a < 0 ? a : T(0)) - std::log1p(std::exp(-std::abs(a))); }
};

template <class T>
struct Prelu {
  T operator()(T a, T weight) const { return a > 0 ? a : weight * a; }
};

// ---- Gradients ----

template <class T>
struct LeakyReluBackward {
  explicit LeakyReluBackward(const T* numbers) : slope(numbers[0]) {}
  T operator()(T grad, T a) const { return a > 0 ? grad : grad * slope; }
  T slope;
};

template <class T>
struct EluBackward {
  explicit EluBackward(const T* numbers) : negative(numbers[0]), positive(numbers[1]), inner(numbers[2]) {}
  T operator()(T grad, T a) const { return a <= 0 ? grad * inner * negative * std::exp(a * inner) : grad * positive; }
  T negative, positive, inner;
};

template <class T>
struct EluResultBackward {
  explicit EluResultBackward(const T* numbers) : negative(numbers[0]), positive(numbers[1]), inner(numbers[2]) {}
  T operator()(T grad, T y) const { return y <= 0 ? grad * inner * (y + negative) : grad * positive; }
  T negative, positive, inner;
};

template <class T>
struct HardsigmoidBackward {
  T operator()(T grad, T a) const { return a > -3 && a < 3 ? grad / 6 : T(0); }
};

template <class T>
struct HardswishBackward {
  T operator()(T grad, T a) const { return a <= -3 ? T(0) : a < 3 ? grad * (a / 3 + T(0.5)) : grad; }
};

template <class T>
struct HardtanhBackward {
  explicit HardtanhBackward(const T* numbers) : low(numbers[0]), high(numbers[1]) {}
  T operator()(T grad, T a) const { return a <= low || a >= high ? T(0) : grad; }
  T low, high;
};

template <class T>
struct ShrinkBackward {
  explicit ShrinkBackward(const T* numbers) : bound(numbers[0]) {}
  T operator()(T grad, T a) const { return a >= -bound && a <= bound ? T(0) : grad; }
  T bound;
};

template <class T>
struct SoftplusBackward {
  explicit SoftplusBackward(const T* numbers) : beta(numbers[0]), threshold(numbers[1]) {}
  T operator()(T grad, T a) const { return a * beta > threshold ? grad : grad * GateOf(a * beta); }
  T beta, threshold;
};

template <class T>
struct LogSigmoidBackward {
  T operator()(T grad, T a) const { return grad * GateOf(-a); }
};

template <class T>
struct MishBackward {
  T operator()(T grad, T a) const {
    const T t = std::tanh((a > 0 ? a : T(0)) + std::log1p(std::exp(-std::abs(a))));
    return grad * (t + a * GateOf(a) * (1 - t * t));
  }
};

template <class T>
struct FastGeluBackward {
  T operator()(T grad, T a) const {
    const T u = a * T(1.702);
    return grad * GateOf(u) * (1 + u * GateOf(-u));
  }
};

template <class T>
struct PreluBackward {
  T operator()(T grad, T a, T weight) const { return a > 0 ? grad : grad * weight; }
};

}  // namespace

const ElementFn kEluBackwardFn = {.inputs = 2, .cost = 8, .find = PlainRows2<EluBackward, Floats>};
const ElementFn kEluResultBackwardFn = {.inputs = 2, .cost = 2, .find = PlainRows2<EluResultBackward, Floats>};
const ElementFn kFastGeluBackwardFn = {.inputs = 2, .cost = 12, .find = PlainRows2<FastGeluBackward, Floats>};
const ElementFn kHardshrinkFn = {.inputs = 1, .find = PlainRows1<Hardshrink, Floats>};
const ElementFn kHardsigmoidBackwardFn = {.inputs = 2, .cost = 2, .find = PlainRows2<HardsigmoidBackward, Floats>};
const ElementFn kHardswishBackwardFn = {.inputs = 2, .cost = 3, .find = PlainRows2<HardswishBackward, Floats>};
const ElementFn kHardtanhBackwardFn = {.inputs = 2, .find = PlainRows2<HardtanhBackward, Floats>};
const ElementFn kLeakyReluBackwardFn = {.inputs = 2, .find = PlainRows2<LeakyReluBackward, Floats>};
const ElementFn kLogSigmoidBackwardFn = {.inputs = 2, .cost = 8, .find = PlainRows2<LogSigmoidBackward, Floats>};
const ElementFn kLogSigmoidFn = {.inputs = 1, .cost = 16, .find = PlainRows1<LogSigmoid, Floats>};
const ElementFn kMishBackwardFn = {.inputs = 2, .cost = 32, .find = PlainRows2<MishBackward, Floats>};
const ElementFn kPreluBackwardFn = {.inputs = 3, .find = PlainRows3<PreluBackward, Floats>};
const ElementFn kPreluFn = {.inputs = 2, .find = PlainRows2<Prelu, Floats>};
const ElementFn kShrinkBackwardFn = {.inputs = 2, .find = PlainRows2<ShrinkBackward, Floats>};
const ElementFn kSoftplusBackwardFn = {.inputs = 2, .cost = 10, .find = PlainRows2<SoftplusBackward, Floats>};
const ElementFn kSoftshrinkFn = {.inputs = 1, .find = PlainRows1<Softshrink, Floats>};

}  // namespace reprise::kernels
