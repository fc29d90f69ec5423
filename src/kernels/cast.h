// SPDX-License-Identifier: Apache-2.0
//
// Conversion between any two element types, one value or one row at a time.
//
// Formula   to = from, with
//   - floating to integer: truncate towards zero, saturate at the ends, NaN to 0;
//   - integer to integer: modulo 2^bits; integer or float64 to a 16-bit float:
//     through float32, each step rounded to nearest even, overflow to infinity;
//   - anything to bool: != 0 (NaN is true; complex: either part);
//   - complex to real: the real part; real to complex: imaginary part +0.
// NaN stays NaN between floating types.
// Aliasing  source and destination rows may be the same memory if their item
//   sizes and strides are equal; any other overlap is not allowed.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dtype.h"

namespace reprise::kernels {

/// One value converted by the rules above.
template <class To, class From>
constexpr To CastValue(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsComplex<From>) {
    if constexpr (kIsComplex<To>) {
      using Part = typename To::value_type;
      return To(static_cast<Part>(value.real()), static_cast<Part>(value.imag()));
    } else if constexpr (std::is_same_v<To, Bool>) {
      return Bool(value.real() != 0 || value.imag() != 0);
    } else {
      return CastValue<To>(value.real());
    }
  } else if constexpr (kIsComplex<To>) {
    return To(CastValue<typename To::value_type>(value));
  } else if constexpr (kIsReducedFloat<From>) {
    return CastValue<To>(static_cast<float>(value));
  } else if constexpr (kIsReducedFloat<To>) {
    return To(CastValue<float>(value));
  } else if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(value.byte != 0 ? 1 : 0);
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool(value != 0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    constexpr From kLow = static_cast<From>(Limits::min());  // 0 or -2^digits: exact
    constexpr From kBeyond = static_cast<From>(uint64_t{1} << (Limits::digits - 1)) * 2;
    if (value >= kBeyond) return Limits::max();
    if (value > kLow) return static_cast<To>(value);
    return value <= kLow ? Limits::min() : To{0};  // the last case is NaN
  } else {
    return static_cast<To>(value);
  }
}

/// Converts n elements; strides in bytes, 0 repeats the source element.
using CastFn = void (*)(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n);

/// The row conversion between two known types; equal types give a row copy.
CastFn FindCast(DType from, DType to);

/// A row conversion through a middle type: what a tensor of type `from` looks
/// like after a cast to `middle`, read as `to`. With `from` or `to` equal to
/// `middle` it is one step.
class RowReader {
 public:
  RowReader(DType from, DType middle, DType to);

  void Read(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) const {
    if (second_ == nullptr) {
      first_(src, src_stride, dst, dst_stride, n);
    } else {
      ReadInTwoSteps(src, src_stride, dst, dst_stride, n);
    }
  }

 private:
  void ReadInTwoSteps(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) const;

  CastFn first_;
  CastFn second_ = nullptr;
  int64_t middle_bytes_;
};

/// One number with its type, held by value.
struct Scalar {
  DType dtype = DType::kDouble;
  alignas(16) unsigned char bytes[16] = {};

  Scalar() = default;
  /// Copies ItemSize(dtype) bytes from `value`.
  Scalar(DType type, const void* value);

  template <class T>
  static Scalar Of(T value) {
    return Scalar(DTypeOf<T>(), &value);
  }

  /// The value converted by the rules of this header.
  template <class T>
  T As() const {
    T value;
    if (dtype == DTypeOf<T>()) {
      std::memcpy(&value, bytes, sizeof(T));
      return value;
    }
    FindCast(dtype, DTypeOf<T>())(reinterpret_cast<const char*>(bytes), 0, reinterpret_cast<char*>(&value), 0, 1);
    return value;
  }
};

}  // namespace reprise::kernels
