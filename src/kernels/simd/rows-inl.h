// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of float32, float16 and bfloat16: loads and stores, the loops, and row functions (elementwise.h) made of
// a functor. Included once for each target by the sources of this folder, after hwy/highway.h.
//
// A functor is a struct whose operator() takes one to three FloatVec and gives one. One that needs the numbers of its
// function has a constructor that takes them:
//
//     struct ScaleFn {
//       explicit ScaleFn(const float* numbers) : factor(numbers[0]) {}
//       HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return hn::Mul(a, hn::Set(FloatTag(), factor)); }
//       float factor;
//     };
//
// Rows1<ScaleFn>(type) is then its ElementRow; Rows2 and Rows3 take functors of two and three operands.
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/elementwise.h"

#if defined(REPRISE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once for each target
#ifdef REPRISE_ROWS_INL_H
#undef REPRISE_ROWS_INL_H
#else
#define REPRISE_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
// Each source uses a part of this.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using BitsTag = hn::Rebind<uint32_t, FloatTag>;
using BitsVec = hn::Vec<BitsTag>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using WordTag = hn::Rebind<uint16_t, FloatTag>;

// ---- Loads to and stores from float32; the formulas of float16.h ----

HWY_INLINE HWY_ATTR FloatVec Select(hn::Mask<BitsTag> mask, FloatVec yes, FloatVec no) {
  return hn::IfThenElse(hn::RebindMask(FloatTag(), mask), yes, no);
}

HWY_INLINE HWY_ATTR FloatVec LoadFloat(const float* from) { return hn::LoadU(FloatTag(), from); }

HWY_INLINE HWY_ATTR void StoreFloat(FloatVec value, float* to) { hn::StoreU(value, FloatTag(), to); }

HWY_INLINE HWY_ATTR void StoreWords(BitsVec words, uint16_t* to) {
  hn::StoreU(hn::DemoteTo(WordTag(), hn::BitCast(IntTag(), words)), WordTag(), to);
}

HWY_INLINE HWY_ATTR FloatVec LoadFloat(const Half* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, FloatTag> half_tag;
  return hn::PromoteTo(FloatTag(), hn::LoadU(half_tag, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const BitsTag du;
  const BitsVec half = hn::PromoteTo(du, hn::LoadU(WordTag(), &from->bits));
  const BitsVec sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const BitsVec magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const BitsVec shifted = hn::ShiftLeft<13>(magnitude);
  const FloatVec scaled = hn::Mul(hn::BitCast(FloatTag(), shifted), hn::Set(FloatTag(), 0x1p112f));
  // Or-ing covers both cases: an infinity has no mantissa bits to keep.
  const FloatVec infinite = hn::BitCast(FloatTag(), hn::Or(shifted, hn::Set(du, 0x7f800000u)));
  const FloatVec quiet = hn::BitCast(FloatTag(), hn::Or(shifted, hn::Set(du, 0x7fc00000u)));
  FloatVec value = Select(hn::Gt(magnitude, hn::Set(du, 0x7bffu)), infinite, scaled);
  value = Select(hn::Gt(magnitude, hn::Set(du, 0x7c00u)), quiet, value);
  return hn::Or(value, hn::BitCast(FloatTag(), sign));
#endif
}

HWY_INLINE HWY_ATTR void StoreFloat(FloatVec value, Half* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, FloatTag> half_tag;
  hn::StoreU(hn::DemoteTo(half_tag, value), half_tag, reinterpret_cast<hwy::float16_t*>(to));
#else
  const BitsTag du;
  const BitsVec bits = hn::BitCast(du, value);
  const BitsVec sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const BitsVec magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const BitsVec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const BitsVec normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(hn::Set(du, 0xc8000fffu), odd)));
  const FloatVec shifted = hn::Add(hn::BitCast(FloatTag(), magnitude), hn::Set(FloatTag(), 0.5f));
  const BitsVec subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000u));
  const BitsVec nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)), hn::Set(du, 0x7e00u));
  BitsVec half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefffu)), hn::Set(du, 0x7c00u), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), nan, half);
  StoreWords(hn::Or(half, sign), &to->bits);
#endif
}

HWY_INLINE HWY_ATTR FloatVec LoadFloat(const BFloat16* from) {
  const BitsVec bits = hn::PromoteTo(BitsTag(), hn::LoadU(WordTag(), &from->bits));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE HWY_ATTR void StoreFloat(FloatVec value, BFloat16* to) {
  const BitsTag du;
  const BitsVec bits = hn::BitCast(du, value);
  const BitsVec high = hn::ShiftRight<16>(bits);
  const BitsVec odd = hn::And(high, hn::Set(du, 1u));
  const BitsVec rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(du, 0x7fffu), odd)));
  const BitsVec magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  StoreWords(hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Or(high, hn::Set(du, 0x40u)), rounded),
             &to->bits);
}

// ---- Loops ----

// 512-bit vectors are the widest in use; emulated and narrower ones fit too.
constexpr size_t kMaxLanes = 16;

// The first n lanes, fewer than there are. Half a vector is loaded and stored as such: a processor gives what it has
// just stored to a load of the same bytes only, and rows of 8 elements, each a step of its graph, read what the step
// before has written.
template <class T>
HWY_INLINE HWY_ATTR FloatVec LoadFirst(const T* from, size_t n) {
  T tail[kMaxLanes] = {};
  for (size_t j = 0; j < n; ++j) tail[j] = from[j];
  return LoadFloat(tail);
}

template <class T>
HWY_INLINE HWY_ATTR void StoreFirst(FloatVec value, T* to, size_t n) {
  T tail[kMaxLanes];
  StoreFloat(value, tail);
  for (size_t j = 0; j < n; ++j) to[j] = tail[j];
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4
// Elsewhere masked loads may touch what is masked out, and masked stores take dozens of cycles.
HWY_INLINE HWY_ATTR FloatVec LoadFirst(const float* from, size_t n) {
  const hn::Half<FloatTag> half;
  if (n == hn::Lanes(half)) return hn::ZeroExtendVector(FloatTag(), hn::LoadU(half, from));
  return hn::MaskedLoad(hn::FirstN(FloatTag(), n), FloatTag(), from);
}

HWY_INLINE HWY_ATTR void StoreFirst(FloatVec value, float* to, size_t n) {
  const hn::Half<FloatTag> half;
  if (n == hn::Lanes(half)) {
    hn::StoreU(hn::LowerHalf(half, value), half, to);
  } else {
    hn::BlendedStore(value, hn::FirstN(FloatTag(), n), FloatTag(), to);
  }
}
#endif

// The last partial vector of a row. Apart from the loops, which then need no stack: short rows are mostly whole
// vectors.
template <class Fn, class In, class Out>
HWY_NOINLINE HWY_ATTR void MapTail(const In* a, Out* out, size_t n, const Fn& fn) {
  StoreFirst(fn(LoadFirst(a, n)), out, n);
}

template <class Fn, class T>
HWY_NOINLINE HWY_ATTR void Map2Tail(const T* a, const T* b, T* out, size_t n, const Fn& fn) {
  StoreFirst(fn(LoadFirst(a, n), LoadFirst(b, n)), out, n);
}

template <class Fn, class T>
HWY_NOINLINE HWY_ATTR void Map3Tail(const T* a, const T* b, const T* c, T* out, size_t n, const Fn& fn) {
  StoreFirst(fn(LoadFirst(a, n), LoadFirst(b, n), LoadFirst(c, n)), out, n);
}

// out[i] = fn(a[i]).
template <class Fn, class In, class Out>
HWY_INLINE HWY_ATTR void Map(const In* a, Out* out, size_t n, Fn fn) {
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreFloat(fn(LoadFloat(a + i)), out + i);
  if (i != n) MapTail(a + i, out + i, n - i, fn);
}

template <class Fn, class T>
HWY_INLINE HWY_ATTR void Map2(const T* a, const T* b, T* out, size_t n, Fn fn) {
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const FloatVec first = fn(LoadFloat(a + i), LoadFloat(b + i));
    const FloatVec second = fn(LoadFloat(a + i + lanes), LoadFloat(b + i + lanes));
    StoreFloat(first, out + i);
    StoreFloat(second, out + i + lanes);
  }
  if (i + lanes <= n) {
    StoreFloat(fn(LoadFloat(a + i), LoadFloat(b + i)), out + i);
    i += lanes;
  }
  if (i != n) Map2Tail(a + i, b + i, out + i, n - i, fn);
}

template <class Fn, class T>
HWY_INLINE HWY_ATTR void Map3(const T* a, const T* b, const T* c, T* out, size_t n, Fn fn) {
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreFloat(fn(LoadFloat(a + i), LoadFloat(b + i), LoadFloat(c + i)), out + i);
  if (i != n) Map3Tail(a + i, b + i, c + i, out + i, n - i, fn);
}

// ---- Row functions ----

template <class Fn>
HWY_INLINE HWY_ATTR Fn MakeFn(const RowArgs& row) {
  if constexpr (std::is_constructible_v<Fn, const float*>) {
    return Fn(static_cast<const float*>(row.numbers));
  } else {
    return Fn();
  }
}

// A function of two operands of which the second is the same for all elements.
template <class Fn>
struct WithSingle {
  Fn fn;
  FloatVec b;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return fn(a, b); }
};

template <class T, class Fn>
HWY_ATTR void Call1(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  Map(static_cast<const T*>(row.in[0]) + begin, static_cast<T*>(row.out) + begin, static_cast<size_t>(end - begin),
      MakeFn<Fn>(row));
}

template <class T, class Fn>
HWY_ATTR void Call2(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  Map2(static_cast<const T*>(row.in[0]) + begin, static_cast<const T*>(row.in[1]) + begin,
       static_cast<T*>(row.out) + begin, static_cast<size_t>(end - begin), MakeFn<Fn>(row));
}

template <class T, class Fn>
HWY_ATTR void CallSingle(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const FloatVec b = hn::Set(FloatTag(), *static_cast<const float*>(row.in[1]));
  Map(static_cast<const T*>(row.in[0]) + begin, static_cast<T*>(row.out) + begin, static_cast<size_t>(end - begin),
      WithSingle<Fn>{MakeFn<Fn>(row), b});
}

template <class T, class Fn>
HWY_ATTR void Call3(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  Map3(static_cast<const T*>(row.in[0]) + begin, static_cast<const T*>(row.in[1]) + begin,
       static_cast<const T*>(row.in[2]) + begin, static_cast<T*>(row.out) + begin, static_cast<size_t>(end - begin),
       MakeFn<Fn>(row));
}

// \pre type is float32, float16 or bfloat16.
template <class Fn>
ElementRow Rows1(DType type) {
  switch (type) {
    case DType::kFloat: return ElementRow::Of(type, Call1<float, Fn>);
    case DType::kFloat16: return ElementRow::Of(type, Call1<Half, Fn>);
    default: return ElementRow::Of(type, Call1<BFloat16, Fn>);
  }
}

template <class Fn>
ElementRow Rows2(DType type) {
  switch (type) {
    case DType::kFloat: return ElementRow::Of(type, Call2<float, Fn>, CallSingle<float, Fn>);
    case DType::kFloat16: return ElementRow::Of(type, Call2<Half, Fn>, CallSingle<Half, Fn>);
    default: return ElementRow::Of(type, Call2<BFloat16, Fn>, CallSingle<BFloat16, Fn>);
  }
}

template <class Fn>
ElementRow Rows3(DType type) {
  switch (type) {
    case DType::kFloat: return ElementRow::Of(type, Call3<float, Fn>);
    case DType::kFloat16: return ElementRow::Of(type, Call3<Half, Fn>);
    default: return ElementRow::Of(type, Call3<BFloat16, Fn>);
  }
}

#pragma GCC diagnostic pop
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif  // the target's turn
