// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on one value, the same for every kernel: integers wrap modulo
// 2^bits without undefined behaviour, complex multiplication is the plain
// formula, complex division scales its operands. Not for Half, BFloat16, Bool.
#pragma once

#include <cmath>

#include "kernels/dtype.h"

namespace reprise::kernels {

// Unsigned type wide enough that its arithmetic is not promoted to int.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

template <class T>
inline T MulValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = Wrapping<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else if constexpr (kIsComplex<T>) {
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else {
    return a * b;
  }
}

template <class T>
inline T AddValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}

template <class T>
inline T SubValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  } else {
    return a - b;
  }
}

template <class T>
inline T DivValue(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return SubValue(T{0}, a);  // min / -1 wraps to min
    }
    return static_cast<T>(a / b);
  } else if constexpr (kIsComplex<T>) {
    // Smith's method: divide by the larger part of b first.
    using Part = typename T::value_type;
    const Part c = b.real();
    const Part d = b.imag();
    if (std::abs(c) >= std::abs(d)) {
      if (c == 0 && d == 0) return T(a.real() / std::abs(c), a.imag() / std::abs(c));
      const Part ratio = d / c;
      const Part scale = c + d * ratio;
      return T((a.real() + a.imag() * ratio) / scale, (a.imag() - a.real() * ratio) / scale);
    }
    const Part ratio = c / d;
    const Part scale = c * ratio + d;
    return T((a.real() * ratio + a.imag()) / scale, (a.imag() * ratio - a.real()) / scale);
  } else {
    return a / b;
  }
}

template <class T>
inline T ReluValue(T a) {
  return a <= T{0} ? T{0} : a;
}

template <class T>
inline T NegValue(T a) {
  if constexpr (std::is_integral_v<T>)
    return SubValue(T{0}, a);
  else
    return -a;
}

template <class T>
inline T AbsValue(T a) {
  if constexpr (std::is_unsigned_v<T>)
    return a;
  else if constexpr (std::is_integral_v<T>)
    return a < 0 ? SubValue(T{0}, a) : a;
  else
    return T(std::abs(a));
}

}  // namespace reprise::kernels
