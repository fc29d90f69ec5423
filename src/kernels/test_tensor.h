// SPDX-License-Identifier: Apache-2.0
//
// Support for the kernel tests: tensors with random layouts and values, and a
// slow reference arithmetic in long double that shares no code with the kernels.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels::testing {

using Rng = std::mt19937;

inline int64_t Pick(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

/// A number of any type: integers up to 64 bits fit a long double exactly.
struct Num {
  long double re = 0;
  long double im = 0;
};

inline bool IsInteger(DType t) { return CategoryOf(t) == Category::kInteger; }
inline bool IsFloating(DType t) { return CategoryOf(t) == Category::kFloating; }
inline bool IsSignedInteger(DType t) {
  return t == DType::kInt8 || t == DType::kInt16 || t == DType::kInt32 || t == DType::kInt64;
}

// ---- Reference conversions ----

/// v rounded to nearest even with `bits` of precision and the given exponents.
inline long double RoundTo(long double v, int bits, int min_exponent, int max_exponent) {
  if (v == 0 || std::isnan(v) || std::isinf(v)) return v;
  const int exponent = std::max(std::ilogb(v), min_exponent);
  const long double ulp = std::ldexp(1.0L, exponent - bits + 1);
  const long double rounded = std::nearbyint(v / ulp) * ulp;
  if (std::fabs(rounded) >= std::ldexp(1.0L, max_exponent + 1)) {
    return std::copysign(std::numeric_limits<long double>::infinity(), v);
  }
  return rounded == 0 ? std::copysign(0.0L, v) : rounded;
}

inline long double RoundFloating(long double v, DType to) {
  switch (to) {
    case DType::kFloat16: return RoundTo(RoundTo(v, 24, -126, 127), 11, -14, 15);
    case DType::kBFloat16: return RoundTo(RoundTo(v, 24, -126, 127), 8, -126, 127);
    case DType::kFloat:
    case DType::kComplex64: return RoundTo(v, 24, -126, 127);
    default: return RoundTo(v, 53, -1022, 1023);
  }
}

inline int IntegerBits(DType t) { return static_cast<int>(8 * ItemSize(t)); }

/// The value of the low bits of v in integer type `to`.
inline long double Wrap(unsigned __int128 v, DType to) {
  const int bits = IntegerBits(to);
  const auto low = static_cast<uint64_t>(v) & (bits == 64 ? ~0ull : (1ull << bits) - 1);
  if (!IsSignedInteger(to) || (low >> (bits - 1)) == 0) return static_cast<long double>(low);
  return static_cast<long double>(low) - std::ldexp(1.0L, bits);
}

inline unsigned __int128 ToBits(long double v) { return static_cast<unsigned __int128>(static_cast<__int128>(v)); }

inline Num RefCast(Num v, DType from, DType to) {
  if (from == to) return v;
  if (to == DType::kBool) return {v.re != 0 || v.im != 0 ? 1.0L : 0.0L, 0};
  if (CategoryOf(to) == Category::kComplex) {
    return {RoundFloating(v.re, to), RoundFloating(v.im, to)};
  }
  if (IsFloating(to)) return {RoundFloating(v.re, to), 0};
  if (IsInteger(from) || from == DType::kBool) return {Wrap(ToBits(v.re), to), 0};
  const int bits = IntegerBits(to);
  const bool is_signed = IsSignedInteger(to);
  const long double low = is_signed ? -std::ldexp(1.0L, bits - 1) : 0;
  const long double high = std::ldexp(1.0L, is_signed ? bits - 1 : bits) - 1;
  if (std::isnan(v.re)) return {};
  const long double cut = std::trunc(v.re);
  return {(cut < low ? low : cut > high ? high : cut) + 0.0L, 0};
}

// ---- Tensors ----

enum class TestLayout { kContiguous, kStrided, kBroadcast };

/// Owns the memory of one tensor, exactly as many bytes as the view spans.
struct TestTensor {
  std::shared_ptr<char[]> memory;
  TensorRef ref;
};

/// Strides: contiguous, or dims in random order with gaps; kBroadcast also sets
/// some strides to 0. Memory starts at zero.
inline TestTensor MakeTensor(Rng& rng, DType dtype, const std::vector<int64_t>& sizes,
                             TestLayout layout = TestLayout::kContiguous) {
  TestTensor t;
  t.ref = MakeContiguous(nullptr, dtype, static_cast<int>(sizes.size()), sizes.data());
  if (layout != TestLayout::kContiguous) {
    std::vector<int> order(sizes.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    std::shuffle(order.begin(), order.end(), rng);
    int64_t stride = Pick(rng, 1, 2);
    for (int d : order) {
      t.ref.strides[d] = stride;
      if (layout == TestLayout::kBroadcast && Pick(rng, 0, 2) == 0) {
        t.ref.strides[d] = 0;
        continue;
      }
      stride *= std::max<int64_t>(1, sizes[static_cast<size_t>(d)]);
      if (Pick(rng, 0, 2) == 0) stride += Pick(rng, 0, 3);
    }
  }
  int64_t last = 0;
  for (int d = 0; d < t.ref.rank; ++d) {
    last += std::max<int64_t>(0, t.ref.sizes[d] - 1) * t.ref.strides[d];
  }
  const auto bytes = static_cast<size_t>((last + 1) * ItemSize(dtype));
  t.memory = std::shared_ptr<char[]>(new char[bytes]());
  t.ref.data = t.memory.get();
  return t;
}

inline TestLayout PickLayout(Rng& rng, bool is_input) {
  return static_cast<TestLayout>(Pick(rng, 0, is_input ? 2 : 1));
}

inline char* AddressOf(const TensorRef& ref, int64_t flat) {
  int64_t offset = 0;
  for (int d = ref.rank - 1; d >= 0; --d) {
    offset += flat % ref.sizes[d] * ref.strides[d];
    flat /= ref.sizes[d];
  }
  return static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype);
}

inline Num Read(DType dtype, const char* at) {
  return DispatchAll(dtype, [at](auto tag) -> Num {
    using T = typename decltype(tag)::Type;
    T value;
    std::memcpy(&value, at, sizeof(T));
    if constexpr (std::is_same_v<T, Bool>)
      return {value.byte != 0 ? 1.0L : 0.0L, 0};
    else if constexpr (kIsComplex<T>)
      return {value.real(), value.imag()};
    else if constexpr (std::is_same_v<T, BFloat16>) {
      const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return {f, 0};
    } else if constexpr (std::is_same_v<T, Half>) {
      const int exponent = value.bits >> 10 & 31;
      const int mantissa = value.bits & 1023;
      long double magnitude = 0;
      if (exponent == 31)
        magnitude = mantissa != 0 ? NAN : INFINITY;
      else if (exponent == 0)
        magnitude = std::ldexp(static_cast<long double>(mantissa), -24);
      else
        magnitude = std::ldexp(1024.0L + mantissa, exponent - 25);
      return {value.bits >> 15 != 0 ? -magnitude : magnitude, 0};
    } else {
      return {static_cast<long double>(value), 0};
    }
  });
}

inline Num At(const TensorRef& ref, int64_t flat) { return Read(ref.dtype, AddressOf(ref, flat)); }

/// The elements in row-major order, byte for byte.
inline std::string BytesOf(const TensorRef& ref) {
  std::string bytes;
  const int64_t count = ElementCount(ref);
  for (int64_t i = 0; i < count; ++i) {
    bytes.append(AddressOf(ref, i), static_cast<size_t>(ItemSize(ref.dtype)));
  }
  return bytes;
}

// ---- Values ----

/// Random element; one in four is an edge value of the type (`edges`).
template <class T>
T RandomValue(Rng& rng, bool edges) {
  const bool edge = edges && Pick(rng, 0, 3) == 0;
  if constexpr (kIsComplex<T>) {
    using Part = typename T::value_type;
    return T(RandomValue<Part>(rng, edges), RandomValue<Part>(rng, edges));
  } else if constexpr (std::is_same_v<T, Bool>) {
    Bool value;
    value.byte = static_cast<uint8_t>(edge ? Pick(rng, 0, 255) : Pick(rng, 0, 1));
    return value;
  } else if constexpr (kIsReducedFloat<T>) {
    if (edge) return T::FromBits(static_cast<uint16_t>(Pick(rng, 0, 65535)));
    return T(RandomValue<float>(rng, false));
  } else if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    if (!edge) return std::uniform_real_distribution<T>(-4, 4)(rng);
    const T kEdges[] = {T(0),
                        -T(0),
                        Limits::infinity(),
                        -Limits::infinity(),
                        Limits::quiet_NaN(),
                        Limits::denorm_min(),
                        -Limits::denorm_min(),
                        Limits::min(),
                        Limits::max(),
                        Limits::lowest(),
                        T(65520),
                        T(65519),
                        T(2147483648.0),
                        T(-2147483904.0),
                        T(9.3e18),
                        T(1.9e19),
                        T(-0.75),
                        T(255.5),
                        T(5e-8),
                        T(3.0e-8),
                        T(-1e-40)};
    return kEdges[Pick(rng, 0, static_cast<int64_t>(std::size(kEdges)) - 1)];
  } else {
    using Limits = std::numeric_limits<T>;
    if (!edge) return static_cast<T>(Pick(rng, std::is_signed_v<T> ? -20 : 0, 100));
    const T kEdges[] = {Limits::min(), Limits::max(), static_cast<T>(Limits::max() - 1), T(0), static_cast<T>(-1)};
    return kEdges[Pick(rng, 0, 4)];
  }
}

inline void FillRandom(Rng& rng, const TensorRef& ref, bool edges = true) {
  const int64_t count = ElementCount(ref);
  DispatchAll(ref.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t i = 0; i < count; ++i) {
      const T value = RandomValue<T>(rng, edges);
      std::memcpy(AddressOf(ref, i), &value, sizeof(T));
    }
  });
}

inline TestTensor RandomTensor(Rng& rng, DType dtype, const std::vector<int64_t>& sizes, TestLayout layout,
                               bool edges = true) {
  TestTensor t = MakeTensor(rng, dtype, sizes, layout);
  FillRandom(rng, t.ref, edges);
  return t;
}

/// Random shape: rank 0 to 8, sizes mostly small, now and then a zero.
inline std::vector<int64_t> RandomSizes(Rng& rng, int max_rank = kMaxRank) {
  std::vector<int64_t> sizes(static_cast<size_t>(Pick(rng, 0, max_rank)));
  int64_t budget = 3000;
  for (int64_t& size : sizes) {
    size = Pick(rng, 0, 60) == 0 ? 0 : Pick(rng, 1, sizes.size() <= 2 ? 70 : 5);
    size = std::min(size, std::max<int64_t>(1, budget));
    if (size > 0) budget /= size;
  }
  return sizes;
}

/// A shape that broadcasts to `sizes`: leading dims dropped, some made 1.
inline std::vector<int64_t> BroadcastSource(Rng& rng, std::vector<int64_t> sizes) {
  if (Pick(rng, 0, 1) == 0) return sizes;
  sizes.erase(sizes.begin(), sizes.begin() + Pick(rng, 0, static_cast<int64_t>(sizes.size())));
  for (int64_t& size : sizes) {
    if (Pick(rng, 0, 2) == 0) size = 1;
  }
  return sizes;
}

/// Element of `ref` that broadcasting pairs with element `flat` of `out`.
inline Num AtBroadcast(const TensorRef& ref, const TensorRef& out, int64_t flat) {
  int64_t offset = 0;
  for (int back = 1; back <= out.rank; ++back) {
    const int64_t size = out.sizes[out.rank - back];
    const int d = ref.rank - back;
    if (d >= 0 && ref.sizes[d] != 1) offset += flat % size * ref.strides[d];
    flat /= size;
  }
  return Read(ref.dtype, static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype));
}

inline bool SamePart(long double a, long double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

inline bool Same(Num a, Num b) { return SamePart(a.re, b.re) && SamePart(a.im, b.im); }

/// Cuts [0, count) at random places and calls run(Range) for the pieces, last
/// piece first.
template <class Fn>
void RunInPieces(Rng& rng, int64_t count, Fn&& run) {
  int64_t end = count;
  while (end > 0) {
    const int64_t begin = Pick(rng, 0, 3) == 0 ? 0 : Pick(rng, 0, end - 1);
    run(Range{begin, end});
    end = begin;
  }
}

inline DType PickDType(Rng& rng) { return kAllDTypes[static_cast<size_t>(Pick(rng, 0, std::ssize(kAllDTypes) - 1))]; }

}  // namespace reprise::kernels::testing
