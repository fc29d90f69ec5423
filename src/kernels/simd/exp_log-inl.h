// SPDX-License-Identifier: Apache-2.0
//
// e^x and logarithms of float32 vectors, within 2 ulp, as fixed sequences of IEEE operations: the same bits on every
// instruction set that has fused multiply-add. Included once per instruction set, inside of a foreach_target source.

#if defined(REPRISE_KERNELS_SIMD_EXP_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_EXP_LOG_INL_H_
#undef REPRISE_KERNELS_SIMD_EXP_LOG_INL_H_
#else
#define REPRISE_KERNELS_SIMD_EXP_LOG_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
inline constexpr size_t kVecLanes = hn::MaxLanes(FloatTag());

// One vector of a row, or the first elements of one.
struct WholeVec {
  HWY_INLINE HWY_ATTR FloatVec Load(const float* from) const { return hn::LoadU(FloatTag(), from); }
  HWY_INLINE HWY_ATTR void Store(FloatVec value, float* to) const { hn::StoreU(value, FloatTag(), to); }
};
struct PartVec {
  size_t count;
  HWY_INLINE HWY_ATTR FloatVec Load(const float* from) const {
    float lanes[kVecLanes] = {};
    for (size_t l = 0; l < count; ++l) lanes[l] = from[l];
    return hn::LoadU(FloatTag(), lanes);
  }
  HWY_INLINE HWY_ATTR void Store(FloatVec value, float* to) const {
    float lanes[kVecLanes];
    hn::StoreU(value, FloatTag(), lanes);
    for (size_t l = 0; l < count; ++l) to[l] = lanes[l];
  }
};

// fn(vector, position) for all of [0, n).
template <class Fn>
HWY_INLINE HWY_ATTR void ForEachVec(size_t n, const Fn& fn) {
  size_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) fn(WholeVec(), i);
  if (i != n) fn(PartVec{n - i}, i);
}

// e^x = 2^k e^r with k = round(x / ln 2), |r| <= ln 2 / 2, and e^r = 1 + r + r^2 q(r), q interpolated at Chebyshev
// nodes, degree 5.
struct ReducedExp {
  FloatVec e;                // e^r
  hn::Vec<IntTag> exponent;  // k
};
HWY_INLINE HWY_ATTR ReducedExp ReduceForExp(FloatVec c) {
  const FloatTag d;
  const IntTag di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const FloatVec magic = hn::Set(d, 12582912.0f);
  const FloatVec biased = hn::MulAdd(c, hn::Set(d, 0x1.715476p+0f), magic);
  const FloatVec k = hn::Sub(biased, magic);
  // ln 2 in two parts; the first has 9 mantissa bits, so k times it is exact.
  FloatVec r = hn::NegMulAdd(k, hn::Set(d, 0.693359375f), c);
  r = hn::NegMulAdd(k, hn::Set(d, -0x1.bd0106p-13f), r);
  FloatVec q = hn::Set(d, 0x1.a12528p-13f);
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.6d4362p-10f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.1110e0p-7f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5554e8p-5f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555556p-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
  return {hn::Add(hn::MulAdd(hn::Mul(q, r), r, r), hn::Set(d, 1.0f)),
          hn::Sub(hn::BitCast(di, biased), hn::BitCast(di, magic))};
}

// 2^k for k whose power is a normal number.
HWY_INLINE HWY_ATTR FloatVec PowerOf2(hn::Vec<IntTag> k) {
  const IntTag di;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
}

inline HWY_NOINLINE HWY_ATTR FloatVec AnyExp(FloatVec x) {
  const FloatTag d;
  // Beyond these bounds the result is 0 or infinity; NaN takes the lower one here and is put back at the end.
  const FloatVec low = hn::Set(d, -110.0f);
  const FloatVec high = hn::Set(d, 100.0f);
  FloatVec c = hn::IfThenElse(hn::Ge(x, low), x, low);
  c = hn::IfThenElse(hn::Le(c, high), c, high);
  const ReducedExp parts = ReduceForExp(c);
  // Two exact powers: only the last product can round (to a subnormal) or overflow.
  const auto half = hn::ShiftRight<1>(parts.exponent);
  const FloatVec scaled = hn::Mul(hn::Mul(parts.e, PowerOf2(half)), PowerOf2(hn::Sub(parts.exponent, half)));
  return hn::IfThenElse(hn::Eq(x, x), scaled, hn::Add(x, x));
}

HWY_INLINE HWY_ATTR FloatVec Exp(FloatVec x) {
  const FloatTag d;
  // Within these bounds neither the power nor the product leaves the normal numbers.
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, 86.0f))))) return AnyExp(x);
  const ReducedExp parts = ReduceForExp(x);
  return hn::Mul(parts.e, PowerOf2(parts.exponent));
}

// log(x): x = 2^k m with m within sqrt(1/2) and sqrt(2), f = m - 1, and log(1 + f) = f - f^2 / 2 + f^3 p(f), p
// interpolated at Chebyshev nodes, degree 7. log(0) is -Inf, of a negative number NaN.
HWY_INLINE HWY_ATTR FloatVec Log(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const FloatVec zero = hn::Zero(d);
  const FloatVec infinity = hn::BitCast(d, hn::Set(di, 0x7f800000));
  const auto is_small = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const FloatVec u = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, 0x1p24f)), x);
  const auto bits = hn::BitCast(di, u);
  const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const FloatVec f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(k))), hn::Set(d, 1.0f));
  FloatVec p = hn::Set(d, -0x1.43b246p-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.02814ep-3f));
  p = hn::MulAdd(p, f, hn::Set(d, -0x1.0a33eap-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.231ce6p-3f));
  p = hn::MulAdd(p, f, hn::Set(d, -0x1.54d03ep-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.999f14p-3f));
  p = hn::MulAdd(p, f, hn::Set(d, -0x1.0000cep-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.555554p-2f));
  const FloatVec square = hn::Mul(f, f);
  const FloatVec n = hn::Sub(hn::ConvertTo(d, k), hn::IfThenElseZero(is_small, hn::Set(d, 24.0f)));
  FloatVec log = hn::Mul(hn::Mul(p, f), square);
  log = hn::MulAdd(n, hn::Set(d, -0x1.bd0106p-13f), log);
  log = hn::NegMulAdd(square, hn::Set(d, 0.5f), log);
  log = hn::Add(log, f);
  log = hn::MulAdd(n, hn::Set(d, 0.693359375f), log);
  log = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), log);
  log = hn::IfThenElse(hn::Lt(x, infinity), log, hn::Add(x, x));  // +Inf, NaN
  const FloatVec nan = hn::BitCast(d, hn::Set(di, 0x7fc00000));
  return hn::IfThenElse(hn::Lt(x, zero), nan, log);
}

// log(1 + x): what the rounding of 1 + x lost comes back as a correction of first order.
HWY_INLINE HWY_ATTR FloatVec Log1p(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec u = hn::Add(one, x);
  const FloatVec lost = hn::Div(hn::Sub(x, hn::Sub(u, one)), u);
  const FloatVec log = Log(u);
  // Nothing to add to an infinity or NaN.
  const FloatVec most = hn::Set(d, 3.0e38f);
  return hn::IfThenElse(hn::And(hn::Gt(u, hn::Zero(d)), hn::Lt(u, most)), hn::Add(log, lost), log);
}

// 1 / (1 + e^-x), from the side that cannot overflow.
HWY_INLINE HWY_ATTR FloatVec Sigmoid(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec e = Exp(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif
