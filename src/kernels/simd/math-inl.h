// SPDX-License-Identifier: Apache-2.0
//
// Mathematical functions of vectors of float32: fixed sequences of IEEE operations without fusion, so that every target
// gives the same bits. Included as rows-inl.h is.
#include "kernels/simd/rows-inl.h"

#if defined(REPRISE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once for each target
#ifdef REPRISE_MATH_INL_H
#undef REPRISE_MATH_INL_H
#else
#define REPRISE_MATH_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif  // the target's turn
