// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/rows.h"

#include <cstring>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using BitsTag = hn::Rebind<uint32_t, FloatTag>;
using BitsVec = hn::Vec<BitsTag>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using WordTag = hn::Rebind<uint16_t, FloatTag>;

// --- Loads to and stores from float32; the formulas of float16.h ----------------

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

// --- The functions ----------------------------------------------------------------

struct AddFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Add(a, b); }
};
struct SubFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Sub(a, b); }
};
struct MulFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Mul(a, b); }
};
struct DivFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Div(a, b); }
};
struct AddScaledFn {
  float alpha;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::Add(a, hn::Mul(hn::Set(FloatTag(), alpha), b));
  }
};
struct SubScaledFn {
  float alpha;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::Sub(a, hn::Mul(hn::Set(FloatTag(), alpha), b));
  }
};

struct CopyFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return a; }
};
struct ReluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec zero = hn::Zero(FloatTag());
    return hn::IfThenElse(hn::Le(a, zero), zero, a);
  }
};
struct NegFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const BitsTag du;
    return hn::BitCast(FloatTag(), hn::Xor(hn::BitCast(du, a), hn::Set(du, 0x80000000u)));
  }
};
struct AbsFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const BitsTag du;
    return hn::BitCast(FloatTag(), hn::And(hn::BitCast(du, a), hn::Set(du, 0x7fffffffu)));
  }
};

// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2, and
// e^r = 1 + r + r^2 * q(r), q interpolated at Chebyshev nodes, degree 5.
struct ExpFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x) const {
    const FloatTag d;
    const IntTag di;
    // Outside these bounds the result is 0 or infinity; NaN takes the lower one
    // here and is put back at the end.
    const FloatVec low = hn::Set(d, -110.0f);
    const FloatVec high = hn::Set(d, 100.0f);
    FloatVec c = hn::IfThenElse(hn::Ge(x, low), x, low);
    c = hn::IfThenElse(hn::Le(c, high), c, high);
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const FloatVec magic = hn::Set(d, 12582912.0f);
    const FloatVec biased = hn::Add(hn::Mul(c, hn::Set(d, 0x1.715476p+0f)), magic);
    const FloatVec n = hn::Sub(biased, magic);
    const auto n_int = hn::Sub(hn::BitCast(di, biased), hn::BitCast(di, magic));
    // ln 2 in two parts; the first has 9 mantissa bits, so n times it is exact.
    FloatVec r = hn::Sub(c, hn::Mul(n, hn::Set(d, 0.693359375f)));
    r = hn::Sub(r, hn::Mul(n, hn::Set(d, -0x1.bd0106p-13f)));
    FloatVec q = hn::Set(d, 0x1.a12528p-13f);
    q = hn::Add(hn::Mul(q, r), hn::Set(d, 0x1.6d4362p-10f));
    q = hn::Add(hn::Mul(q, r), hn::Set(d, 0x1.1110e0p-7f));
    q = hn::Add(hn::Mul(q, r), hn::Set(d, 0x1.5554e8p-5f));
    q = hn::Add(hn::Mul(q, r), hn::Set(d, 0x1.555556p-3f));
    q = hn::Add(hn::Mul(q, r), hn::Set(d, 0.5f));
    const FloatVec tail = hn::Add(hn::Mul(hn::Mul(q, r), r), r);
    const FloatVec e = hn::Add(tail, hn::Set(d, 1.0f));
    // Scaling in two exact-power steps: only the last one can round (to a
    // subnormal) or overflow.
    const auto half_n = hn::ShiftRight<1>(n_int);
    const auto rest_n = hn::Sub(n_int, half_n);
    const auto bias = hn::Set(di, 127);
    const FloatVec scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half_n, bias)));
    const FloatVec scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(rest_n, bias)));
    const FloatVec result = hn::Mul(hn::Mul(e, scale1), scale2);
    return hn::IfThenElse(hn::Eq(x, x), result, hn::Add(x, x));
  }
};

struct ExpShiftedFn {
  float shift;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return ExpFn()(hn::Sub(a, hn::Set(FloatTag(), shift))); }
};

// --- Rows ---------------------------------------------------------------------------

// 512-bit vectors are the widest in use; emulated and narrower ones fit too.
constexpr size_t kMaxLanes = 16;

// The last partial vector of a row, through zero-padded copies. Apart from the loops, which then need no stack: short
// rows are mostly whole vectors.
template <class Fn, class In, class Out>
HWY_NOINLINE HWY_ATTR void MapTail(const In* a, Out* out, size_t n, const Fn& fn) {
  In in_tail[kMaxLanes] = {};
  Out out_tail[kMaxLanes];
  for (size_t j = 0; j < n; ++j) in_tail[j] = a[j];
  StoreFloat(fn(LoadFloat(in_tail)), out_tail);
  for (size_t j = 0; j < n; ++j) out[j] = out_tail[j];
}

template <class Fn, class T>
HWY_NOINLINE HWY_ATTR void Map2Tail(const T* a, const T* b, T* out, size_t n, const Fn& fn) {
  T a_tail[kMaxLanes] = {};
  T b_tail[kMaxLanes] = {};
  T out_tail[kMaxLanes];
  for (size_t j = 0; j < n; ++j) a_tail[j] = a[j];
  for (size_t j = 0; j < n; ++j) b_tail[j] = b[j];
  StoreFloat(fn(LoadFloat(a_tail), LoadFloat(b_tail)), out_tail);
  for (size_t j = 0; j < n; ++j) out[j] = out_tail[j];
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

template <class T>
HWY_ATTR void TypedBinaryRow(BinaryOp op, const T* a, const T* b, T* out, size_t n, float alpha) {
  const bool scaled = alpha != 1.0f;  // multiplying by 1 changes nothing: leave it out
  switch (op) {
    case BinaryOp::kAdd: return scaled ? Map2(a, b, out, n, AddScaledFn{alpha}) : Map2(a, b, out, n, AddFn());
    case BinaryOp::kSub: return scaled ? Map2(a, b, out, n, SubScaledFn{alpha}) : Map2(a, b, out, n, SubFn());
    case BinaryOp::kMul: return Map2(a, b, out, n, MulFn());
    case BinaryOp::kDiv: return Map2(a, b, out, n, DivFn());
  }
}

template <class T>
HWY_ATTR void TypedUnaryRow(UnaryOp op, const T* a, T* out, size_t n) {
  switch (op) {
    case UnaryOp::kCopy: return Map(a, out, n, CopyFn());
    case UnaryOp::kRelu: return Map(a, out, n, ReluFn());
    case UnaryOp::kExp: return Map(a, out, n, ExpFn());
    case UnaryOp::kNeg: return Map(a, out, n, NegFn());
    case UnaryOp::kAbs: return Map(a, out, n, AbsFn());
  }
}

HWY_ATTR void BinaryRowTarget(BinaryOp op, DType dtype, const void* a, const void* b, void* out, size_t n,
                              float alpha) {
  if (dtype == DType::kFloat) {
    TypedBinaryRow(op, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(out), n, alpha);
  } else if (dtype == DType::kFloat16) {
    TypedBinaryRow(op, static_cast<const Half*>(a), static_cast<const Half*>(b), static_cast<Half*>(out), n, alpha);
  } else {
    TypedBinaryRow(op, static_cast<const BFloat16*>(a), static_cast<const BFloat16*>(b), static_cast<BFloat16*>(out), n,
                   alpha);
  }
}

HWY_ATTR void UnaryRowTarget(UnaryOp op, DType dtype, const void* a, void* out, size_t n) {
  if (dtype == DType::kFloat) {
    TypedUnaryRow(op, static_cast<const float*>(a), static_cast<float*>(out), n);
  } else if (dtype == DType::kFloat16) {
    TypedUnaryRow(op, static_cast<const Half*>(a), static_cast<Half*>(out), n);
  } else {
    TypedUnaryRow(op, static_cast<const BFloat16*>(a), static_cast<BFloat16*>(out), n);
  }
}

// --- Rows as functions to be looked up: one for each op and type, so that a call is a call and the loop -------------

template <class T>
HWY_INLINE HWY_ATTR FloatVec LoadSingle(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::Set(FloatTag(), *from);
  } else {
    T copies[kMaxLanes];
    for (T& copy : copies) copy = *from;
    return LoadFloat(copies);
  }
}

// A function of two operands of which the second is the same for all elements.
template <class Fn>
struct WithSingle {
  Fn fn;
  FloatVec b;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return fn(a, b); }
};

template <class T, bool kSingle, class Fn>
HWY_INLINE HWY_ATTR void CallMap2(const RowArgs& row, int64_t begin, int64_t end, Fn fn) {
  const T* a = static_cast<const T*>(row.a) + begin;
  const T* b = static_cast<const T*>(row.b);
  T* out = static_cast<T*>(row.out) + begin;
  const auto n = static_cast<size_t>(end - begin);
  if constexpr (kSingle) {
    Map(a, out, n, WithSingle<Fn>{fn, LoadSingle(b)});
  } else {
    Map2(a, b + begin, out, n, fn);
  }
}

template <class T, class Fn, bool kSingle>
HWY_ATTR void BinaryCall(const void* args, int64_t begin, int64_t end) {
  CallMap2<T, kSingle>(*static_cast<const RowArgs*>(args), begin, end, Fn());
}

template <class T, class Fn, bool kSingle>
HWY_ATTR void ScaledCall(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  Fn fn;
  std::memcpy(&fn.alpha, row.alpha, sizeof fn.alpha);
  CallMap2<T, kSingle>(row, begin, end, fn);
}

template <class T, class Fn>
HWY_ATTR void UnaryCall(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  Map(static_cast<const T*>(row.a) + begin, static_cast<T*>(row.out) + begin, static_cast<size_t>(end - begin), Fn());
}

template <class T, bool kSingle>
RowFn TypedBinaryCall(BinaryOp op, bool is_scaled) {
  switch (op) {
    case BinaryOp::kAdd: return is_scaled ? ScaledCall<T, AddScaledFn, kSingle> : BinaryCall<T, AddFn, kSingle>;
    case BinaryOp::kSub: return is_scaled ? ScaledCall<T, SubScaledFn, kSingle> : BinaryCall<T, SubFn, kSingle>;
    case BinaryOp::kMul: return BinaryCall<T, MulFn, kSingle>;
    case BinaryOp::kDiv: return BinaryCall<T, DivFn, kSingle>;
  }
  return nullptr;
}

template <class T>
RowFn TypedUnaryCall(UnaryOp op) {
  switch (op) {
    case UnaryOp::kCopy: return UnaryCall<T, CopyFn>;
    case UnaryOp::kRelu: return UnaryCall<T, ReluFn>;
    case UnaryOp::kExp: return UnaryCall<T, ExpFn>;
    case UnaryOp::kNeg: return UnaryCall<T, NegFn>;
    case UnaryOp::kAbs: return UnaryCall<T, AbsFn>;
  }
  return nullptr;
}

RowFn FindBinaryRowTarget(BinaryOp op, DType dtype, bool is_scaled, bool b_is_single) {
  switch (dtype) {
    case DType::kFloat:
      return b_is_single ? TypedBinaryCall<float, true>(op, is_scaled) : TypedBinaryCall<float, false>(op, is_scaled);
    case DType::kFloat16:
      return b_is_single ? TypedBinaryCall<Half, true>(op, is_scaled) : TypedBinaryCall<Half, false>(op, is_scaled);
    default:
      return b_is_single ? TypedBinaryCall<BFloat16, true>(op, is_scaled)
                         : TypedBinaryCall<BFloat16, false>(op, is_scaled);
  }
}

RowFn FindUnaryRowTarget(UnaryOp op, DType dtype) {
  switch (dtype) {
    case DType::kFloat: return TypedUnaryCall<float>(op);
    case DType::kFloat16: return TypedUnaryCall<Half>(op);
    default: return TypedUnaryCall<BFloat16>(op);
  }
}

HWY_ATTR void ConvertRowTarget(DType from, DType to, const void* src, void* dst, size_t n) {
  if (from == DType::kFloat16) {
    Map(static_cast<const Half*>(src), static_cast<float*>(dst), n, CopyFn());
  } else if (from == DType::kBFloat16) {
    Map(static_cast<const BFloat16*>(src), static_cast<float*>(dst), n, CopyFn());
  } else if (to == DType::kFloat16) {
    Map(static_cast<const float*>(src), static_cast<Half*>(dst), n, CopyFn());
  } else {
    Map(static_cast<const float*>(src), static_cast<BFloat16*>(dst), n, CopyFn());
  }
}

HWY_ATTR void ExpShiftedRowTarget(float* x, float shift, size_t n) { Map(x, x, n, ExpShiftedFn{shift}); }

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(BinaryRowTarget);
HWY_EXPORT(UnaryRowTarget);
HWY_EXPORT(FindBinaryRowTarget);
HWY_EXPORT(FindUnaryRowTarget);
HWY_EXPORT(ConvertRowTarget);
HWY_EXPORT(ExpShiftedRowTarget);

void BinaryRow(BinaryOp op, DType dtype, const void* a, const void* b, void* out, int64_t n, float alpha) {
  HWY_DYNAMIC_DISPATCH(BinaryRowTarget)(op, dtype, a, b, out, static_cast<size_t>(n), alpha);
}

void UnaryRow(UnaryOp op, DType dtype, const void* a, void* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryRowTarget)(op, dtype, a, out, static_cast<size_t>(n));
}

RowFn FindBinaryRow(BinaryOp op, DType dtype, bool is_scaled, bool b_is_single) {
  return HWY_DYNAMIC_DISPATCH(FindBinaryRowTarget)(op, dtype, is_scaled, b_is_single);
}

RowFn FindUnaryRow(UnaryOp op, DType dtype) { return HWY_DYNAMIC_DISPATCH(FindUnaryRowTarget)(op, dtype); }

void ConvertRow(DType from, DType to, const void* src, void* dst, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ConvertRowTarget)(from, to, src, dst, static_cast<size_t>(n));
}

void ExpShiftedRow(float* x, float shift, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpShiftedRowTarget)(x, shift, static_cast<size_t>(n));
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
