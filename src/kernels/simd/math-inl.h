// SPDX-License-Identifier: Apache-2.0
//
// Functions of one float32 vector, for the sources of simd/ that Highway compiles once per instruction set.
//
// Error     within 2.2 ulp of the exact value over the whole range, subnormal arguments and results included; Sigmoid
// and
//   Silu within 2.5, Tan, far out, and ErfInv within 3.5, Erfc within 5.5. math_test.cc measures it.
// NaN, Inf  as the C library; NaN stays NaN, odd functions keep the sign of zero.
// Sameness  fixed sequences of IEEE operations: the same bits on every instruction set that has fused multiply-add. One
//   without, SSE2 or SSE4, rounds twice where others round once. Arguments of Sin, Cos and Tan beyond 10000 go to the C
//   library, lane by lane.
//
// The polynomials are minimax fits of the function named beside each, rounded to float32.

#if defined(REPRISE_KERNELS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_MATH_INL_H_
#undef REPRISE_KERNELS_SIMD_MATH_INL_H_
#else
#define REPRISE_KERNELS_SIMD_MATH_INL_H_
#endif

#include <cmath>

#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

using IntVec = hn::Vec<IntTag>;

HWY_INLINE HWY_ATTR FloatVec Const(float value) { return hn::Set(FloatTag(), value); }

/// c[0] + c[1] x + c[2] x^2 + ...
template <size_t kCount>
HWY_INLINE HWY_ATTR FloatVec Polynomial(FloatVec x, const float (&c)[kCount]) {
  FloatVec sum = Const(c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) sum = hn::MulAdd(sum, x, Const(c[i]));
  return sum;
}

/// 2^n. \pre -126 <= n <= 127.
HWY_INLINE HWY_ATTR FloatVec PowerOfTwo(IntVec n) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(IntTag(), 127))));
}

/// x rounded to an integer, and that integer. \pre |x| < 2^22.
struct Rounded {
  FloatVec value;
  IntVec integer;
  IntVec exponent;  ///< the integer, where a float32 has its exponent
};
HWY_INLINE HWY_ATTR Rounded RoundSmall(FloatVec x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, with nothing else in the lowest 22.
  const FloatVec magic = Const(12582912.0f);
  const FloatVec biased = hn::Add(x, magic);
  const IntTag di;
  const IntVec bits = hn::BitCast(di, biased);
  return {hn::Sub(biased, magic), hn::Sub(bits, hn::BitCast(di, magic)), hn::ShiftLeft<23>(bits)};
}

/// `x` but at least `low` and at most `high`; NaN becomes `low`.
HWY_INLINE HWY_ATTR FloatVec ClampNumber(FloatVec x, float low, float high) {
  const FloatVec c = hn::IfThenElse(hn::Ge(x, Const(low)), x, Const(low));
  return hn::IfThenElse(hn::Le(c, Const(high)), c, Const(high));
}

/// `result`, or NaN where x is NaN.
HWY_INLINE HWY_ATTR FloatVec KeepNaN(FloatVec x, FloatVec result) {
  return hn::IfThenElse(hn::Eq(x, x), result, hn::Add(x, x));
}

// ---- Rounding ----

// Highway's emulation loses the sign of zero.
HWY_INLINE HWY_ATTR FloatVec RoundUp(FloatVec x) { return hn::CopySign(hn::Ceil(x), x); }
HWY_INLINE HWY_ATTR FloatVec RoundDown(FloatVec x) { return hn::CopySign(hn::Floor(x), x); }
/// Halves to the even integer.
HWY_INLINE HWY_ATTR FloatVec RoundToEven(FloatVec x) { return hn::CopySign(hn::Round(x), x); }
HWY_INLINE HWY_ATTR FloatVec RoundToZero(FloatVec x) { return hn::CopySign(hn::Trunc(x), x); }

// ---- Exponentials ----

// e^r - 1 for |r| <= ln 2 / 2: r + r^2 q(r).
HWY_INLINE HWY_ATTR FloatVec Expm1Reduced(FloatVec r) {
  constexpr float kQ[] = {0.5f, 0x1.555556p-3f, 0x1.5554e8p-5f, 0x1.1110e0p-7f, 0x1.6d4362p-10f, 0x1.a12528p-13f};
  return hn::MulAdd(hn::Mul(Polynomial(r, kQ), r), r, r);
}
// e^r there: 1 + r p(r), within 0.9 ulp.
HWY_INLINE HWY_ATTR FloatVec ExpReduced(FloatVec r) {
  constexpr float kP[] = {1.0f, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558b0p-5f, 0x1.12398ep-7f, 0x1.6a4d5ap-10f};
  return hn::MulAdd(Polynomial(r, kP), r, Const(1.0f));
}

struct ExpParts {
  FloatVec r;  ///< x = n ln 2 + r
  Rounded n;
};
/// Of x, or of -x.
template <bool kNegated = false>
HWY_INLINE HWY_ATTR ExpParts ReduceExp(FloatVec x) {
  const Rounded n = RoundSmall(hn::Mul(x, Const(kNegated ? -0x1.715476p+0f : 0x1.715476p+0f)));
  // ln 2 in two parts; the first has 9 mantissa bits, so n times it is exact.
  const FloatVec high = Const(0.693359375f);
  const FloatVec r = kNegated ? hn::NegMulSub(n.value, high, x) : hn::NegMulAdd(n.value, high, x);
  return {hn::NegMulAdd(n.value, Const(-0x1.bd0106p-13f), r), n};
}

/// 2^n e in two exact-power steps: only the last one can round (to a subnormal) or overflow.
HWY_INLINE HWY_ATTR FloatVec Scale(FloatVec e, IntVec n) {
  const IntVec half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(e, PowerOfTwo(half)), PowerOfTwo(hn::Sub(n, half)));
}

/// Whether |x| <= 86 in all lanes: e^x and e^-x are normal numbers, whose exponent can be added to.
HWY_INLINE HWY_ATTR bool HaveNormalExp(FloatVec x) {
  return HWY_LIKELY(hn::AllTrue(FloatTag(), hn::Le(hn::Abs(x), Const(86.0f))));
}
HWY_INLINE HWY_ATTR FloatVec NormalExp(const ExpParts& parts) {
  const IntTag di;
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(di, ExpReduced(parts.r)), parts.n.exponent));
}

// ScaledExp of any x.
template <int kScale>
HWY_NOINLINE HWY_ATTR FloatVec ScaledExpOfAny(FloatVec x) {
  // Outside these bounds the result is 0 or infinity; NaN takes the lower one and is put back at the end.
  const ExpParts parts = ReduceExp(ClampNumber(x, -130.0f, 100.0f));
  return KeepNaN(x, Scale(ExpReduced(parts.r), hn::Add(parts.n.integer, hn::Set(IntTag(), kScale))));
}

/// 2^kScale e^x. \pre kScale <= 0, or x <= 0 and kScale < 126.
template <int kScale>
HWY_INLINE HWY_ATTR FloatVec ScaledExp(FloatVec x) {
  if (!HaveNormalExp(x)) return ScaledExpOfAny<kScale>(x);
  const FloatVec e = NormalExp(ReduceExp(x));
  if constexpr (kScale == 0) return e;
  const IntTag di;
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(di, e), hn::Set(di, kScale * (1 << 23))));
}

HWY_INLINE HWY_ATTR FloatVec Exp(FloatVec x) { return ScaledExp<0>(x); }

/// As a functor of rows-inl.h.
struct ExpFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return Exp(a); }
};

// 2^r for |r| <= 1/2.
HWY_INLINE HWY_ATTR FloatVec Exp2Reduced(FloatVec r) {
  constexpr float kQ[] = {0x1.62e430p-1f,  0x1.ebfbe0p-3f,  0x1.c6b08ep-5f, 0x1.3b29f0p-7f,
                          0x1.5d8726p-10f, 0x1.445e8ep-13f, 0x1.00f0a4p-16f};
  return hn::MulAdd(Polynomial(r, kQ), r, Const(1.0f));
}
/// 2^x for -126 <= x <= 126; of other numbers it is nothing in particular.
HWY_INLINE HWY_ATTR FloatVec Exp2OfNormal(FloatVec x) {
  const Rounded n = RoundSmall(x);
  constexpr float kQ[] = {0x1.62e430p-1f, 0x1.ebfbe0p-3f,  0x1.c6aed0p-5f,
                          0x1.3b29acp-7f, 0x1.5f47dap-10f, 0x1.448ec6p-13f};
  const FloatVec r = hn::Sub(x, n.value);
  const FloatVec power = hn::MulAdd(Polynomial(r, kQ), r, Const(1.0f));
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(IntTag(), power), n.exponent));
}

HWY_NOINLINE HWY_ATTR inline FloatVec Exp2OfAny(FloatVec x) {
  const FloatVec c = ClampNumber(x, -160.0f, 140.0f);
  const Rounded n = RoundSmall(c);
  return KeepNaN(x, Scale(Exp2Reduced(hn::Sub(c, n.value)), n.integer));
}
HWY_INLINE HWY_ATTR FloatVec Exp2(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(hn::Abs(x), Const(124.0f))))) return Exp2OfAny(x);
  const Rounded n = RoundSmall(x);
  const FloatVec e = Exp2Reduced(hn::Sub(x, n.value));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, e), n.exponent));
}

HWY_INLINE HWY_ATTR FloatVec Expm1(FloatVec x) {
  const ExpParts parts = ReduceExp(ClampNumber(x, -20.0f, 100.0f));
  const FloatVec p = Expm1Reduced(parts.r);
  // 2^n (1 + p) - 1 = ((p 2^a) + (2^a - 2^-b)) 2^b with n = a + b
  const IntVec a = hn::ShiftRight<1>(parts.n.integer);
  const IntVec b = hn::Sub(parts.n.integer, a);
  const FloatVec power = PowerOfTwo(a);
  const FloatVec result = hn::Mul(hn::Add(hn::Mul(p, power), hn::Sub(power, PowerOfTwo(hn::Neg(b)))), PowerOfTwo(b));
  return KeepNaN(x, hn::IfThenElse(hn::Eq(x, hn::Zero(FloatTag())), x, result));
}

/// e^x - 1 of x <= 0; of other numbers it is nothing in particular.
HWY_INLINE HWY_ATTR FloatVec Expm1OfNegative(FloatVec x) {
  const IntTag di;
  // Below it is -1, rounded.
  const ExpParts parts = ReduceExp(hn::Max(x, Const(-20.0f)));
  const FloatVec power = hn::BitCast(FloatTag(), hn::Add(parts.n.exponent, hn::BitCast(di, Const(1.0f))));
  return hn::CopySign(hn::MulAdd(Expm1Reduced(parts.r), power, hn::Sub(power, Const(1.0f))), x);  // of zeros
}

/// 1 + e^-x where that is no more than a number: one half of Sigmoid and Silu. \pre |x| <= 86
HWY_INLINE HWY_ATTR FloatVec OnePlusExpOfNegative(FloatVec x) {
  return hn::Add(Const(1.0f), NormalExp(ReduceExp<true>(x)));
}

// Sigmoid, or Silu, of any x. Lanes that have a normal exponential get what they get where all do.
template <bool kIsSilu>
HWY_NOINLINE HWY_ATTR FloatVec SigmoidOfAny(FloatVec x) {
  const FloatTag d;
  const FloatVec one = Const(1.0f);
  const FloatVec near = hn::Div(kIsSilu ? x : one, OnePlusExpOfNegative(ClampNumber(x, -86.0f, 86.0f)));
  // Far out 1 + e^-|x| is 1, and e^x may be subnormal: Silu multiplies it before it is.
  const FloatVec power = ScaledExp < kIsSilu ? 24 : 0 > (hn::Neg(hn::Abs(x)));
  const FloatVec below = kIsSilu ? hn::Mul(hn::Mul(x, power), Const(0x1p-24f)) : power;
  const FloatVec far = hn::IfThenElse(hn::Ge(x, hn::Zero(d)), kIsSilu ? x : one, below);
  return hn::IfThenElse(hn::Le(hn::Abs(x), Const(86.0f)), near, far);
}

/// 1 / (1 + e^-x), within 2.5 ulp.
HWY_INLINE HWY_ATTR FloatVec Sigmoid(FloatVec x) {
  if (!HaveNormalExp(x)) return SigmoidOfAny<false>(x);
  return hn::Div(Const(1.0f), OnePlusExpOfNegative(x));
}

/// x / (1 + e^-x), within 2.5 ulp.
HWY_INLINE HWY_ATTR FloatVec Silu(FloatVec x) {
  if (!HaveNormalExp(x)) return SigmoidOfAny<true>(x);
  return hn::Div(x, OnePlusExpOfNegative(x));
}

// ---- Logarithms ----

struct LogParts {
  FloatVec e;  ///< x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)
  FloatVec f;
};
HWY_INLINE HWY_ATTR LogParts ReduceLog(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const auto is_subnormal = hn::Lt(x, Const(0x1p-126f));
  const IntVec bits = hn::BitCast(di, hn::IfThenElse(is_subnormal, hn::Mul(x, Const(0x1p23f)), x));
  const IntVec e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const FloatVec m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const FloatVec bias = hn::IfThenElseZero(is_subnormal, Const(23.0f));
  return {hn::Sub(hn::ConvertTo(d, e), bias), hn::Sub(m, Const(1.0f))};
}

// log(1 + f) - f.
HWY_INLINE HWY_ATTR FloatVec LogTail(FloatVec f) {
  constexpr float kP[] = {0x1.555554p-2f, -0x1.000228p-2f, 0x1.99a02cp-3f, -0x1.547204p-3f,
                          0x1.22d6e4p-3f, -0x1.0d851ap-3f, 0x1.057252p-3f, -0x1.38ee32p-4f};
  const FloatVec square = hn::Mul(f, f);
  return hn::Sub(hn::Mul(hn::Mul(square, f), Polynomial(f, kP)), hn::Mul(square, Const(0.5f)));
}

// `result` of a logarithm, but what belongs to 0, negative numbers, infinity and NaN.
HWY_INLINE HWY_ATTR FloatVec LogSpecial(FloatVec x, FloatVec result) {
  const FloatTag d;
  const FloatVec zero = hn::Zero(d);
  result = hn::IfThenElse(hn::Lt(x, hn::Inf(d)), result, x);  // infinity and NaN
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(hn::Inf(d)), result);
  return hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), result);
}

HWY_INLINE HWY_ATTR FloatVec Log(FloatVec x) {
  const LogParts parts = ReduceLog(x);
  const FloatVec tail = hn::Add(LogTail(parts.f), hn::Mul(parts.e, Const(-0x1.bd0106p-13f)));
  return LogSpecial(x, hn::Add(hn::Mul(parts.e, Const(0.693359375f)), hn::Add(parts.f, tail)));
}

HWY_INLINE HWY_ATTR FloatVec Log2(FloatVec x) {
  const LogParts parts = ReduceLog(x);
  // (f + tail) log2(e), with the first f exact.
  const FloatVec rest =
      hn::Add(hn::Mul(LogTail(parts.f), Const(0x1.715476p+0f)), hn::Mul(parts.f, Const(0x1.c551dap-2f)));
  return LogSpecial(x, hn::Add(parts.e, hn::Add(parts.f, rest)));
}

HWY_INLINE HWY_ATTR FloatVec Log10(FloatVec x) {
  const LogParts parts = ReduceLog(x);
  const FloatVec log = hn::Add(parts.f, LogTail(parts.f));
  // log10(2) in two parts, as ln 2 in Log.
  const FloatVec low = hn::Add(hn::Mul(log, Const(0x1.bcb7b2p-2f)), hn::Mul(parts.e, Const(0x1.04d428p-12f)));
  return LogSpecial(x, hn::Add(hn::Mul(parts.e, Const(0x1.34p-2f)), low));
}

HWY_INLINE HWY_ATTR FloatVec Log1p(FloatVec x) {
  const FloatTag d;
  const FloatVec one = Const(1.0f);
  const FloatVec u = hn::Add(x, one);
  const LogParts parts = ReduceLog(u);
  const auto is_near = hn::Eq(parts.e, hn::Zero(d));
  // What u lost of x; nothing where f = x will do.
  const FloatVec lost = hn::IfThenElse(hn::Lt(x, one), hn::Sub(x, hn::Sub(u, one)), hn::Sub(one, hn::Sub(u, x)));
  const FloatVec correction = hn::IfThenZeroElse(is_near, hn::Div(lost, u));
  const FloatVec f = hn::IfThenElse(is_near, x, parts.f);
  const FloatVec low = hn::Add(hn::Mul(parts.e, Const(-0x1.bd0106p-13f)), correction);
  const FloatVec result = hn::Add(hn::Mul(parts.e, Const(0.693359375f)), hn::Add(f, hn::Add(LogTail(f), low)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, LogSpecial(u, result));
}

/// ln(1 + x) for 0 <= x <= 1.
HWY_INLINE HWY_ATTR FloatVec Log1pOfUnit(FloatVec x) {
  const FloatVec one = Const(1.0f);
  const FloatVec u = hn::Add(x, one);
  // u is 1 + f, or twice that.
  const auto is_near = hn::Le(u, Const(0x1.6a09e6p+0f));
  const FloatVec lost = hn::Sub(x, hn::Sub(u, one));
  const FloatVec f = hn::IfThenElse(is_near, x, hn::Sub(hn::Mul(u, Const(0.5f)), one));
  const FloatVec low = hn::Add(hn::Div(lost, u), Const(-0x1.bd0106p-13f));
  const FloatVec tail = hn::Add(LogTail(f), hn::IfThenZeroElse(is_near, low));
  return hn::Add(hn::IfThenZeroElse(is_near, Const(0.693359375f)), hn::Add(f, tail));
}

// ---- Trigonometric functions ----

inline constexpr float kTrigLimit = 10000.0f;

struct TrigParts {
  FloatVec r;  ///< x = n pi / 2 + r, |r| <= pi / 4
  IntVec n;
};
// \pre |x| <= kTrigLimit.
HWY_INLINE HWY_ATTR TrigParts ReduceTrig(FloatVec x) {
  const Rounded n = RoundSmall(hn::Mul(x, Const(0x1.45f306p-1f)));
  // pi / 2 in four parts; n times the first three, of 11 bits, is exact.
  FloatVec r = hn::Sub(x, hn::Mul(n.value, Const(0x1.92p+0f)));
  r = hn::Sub(r, hn::Mul(n.value, Const(0x1.fb4p-12f)));
  r = hn::Sub(r, hn::Mul(n.value, Const(0x1.444p-24f)));
  return {hn::Sub(r, hn::Mul(n.value, Const(0x1.68c234p-39f))), n.integer};
}

// sin of a reduced argument.
HWY_INLINE HWY_ATTR FloatVec SinReduced(FloatVec r, FloatVec square) {
  constexpr float kS[] = {-0x1.555546p-3f, 0x1.11077ap-7f, -0x1.9954ccp-13f};
  return hn::Add(hn::Mul(hn::Mul(r, square), Polynomial(square, kS)), r);
}
HWY_INLINE HWY_ATTR FloatVec CosReduced(FloatVec square) {
  constexpr float kC[] = {0x1.55554ap-5f, -0x1.6c0c1ap-10f, 0x1.99e0cep-16f};
  const FloatVec low = hn::Mul(hn::Mul(square, square), Polynomial(square, kC));
  return hn::Add(hn::Sub(low, hn::Mul(square, Const(0.5f))), Const(1.0f));
}

// The lanes of x beyond kTrigLimit through `function`.
HWY_NOINLINE HWY_ATTR inline FloatVec FarLanes(FloatVec x, FloatVec result, float (*function)(float)) {
  float in[16];
  float out[16];
  hn::StoreU(x, FloatTag(), in);
  hn::StoreU(result, FloatTag(), out);
  for (size_t i = 0; i < hn::Lanes(FloatTag()); ++i) {
    if (!(std::fabs(in[i]) <= kTrigLimit)) out[i] = function(in[i]);
  }
  return hn::LoadU(FloatTag(), out);
}

// sin(x + kQuarters pi / 2).
template <int kQuarters>
HWY_INLINE HWY_ATTR FloatVec SinShifted(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const auto is_near = hn::Le(hn::Abs(x), Const(kTrigLimit));
  const TrigParts parts = ReduceTrig(hn::IfThenElseZero(is_near, x));
  const IntVec quarter = hn::Add(parts.n, hn::Set(di, kQuarters));
  const FloatVec square = hn::Mul(parts.r, parts.r);
  const auto is_cos = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(di, 1)));
  const FloatVec value = hn::IfThenElse(is_cos, CosReduced(square), SinReduced(parts.r, square));
  const IntVec sign = hn::ShiftLeft<30>(hn::And(quarter, hn::Set(di, 2)));
  FloatVec result = hn::Xor(value, hn::BitCast(d, sign));
  if (kQuarters == 0) result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
  if (HWY_UNLIKELY(!hn::AllTrue(d, is_near))) {
    return FarLanes(
        x, result, kQuarters == 0 ? [](float v) { return std::sin(v); } : [](float v) { return std::cos(v); });
  }
  return result;
}

HWY_INLINE HWY_ATTR FloatVec Sin(FloatVec x) { return SinShifted<0>(x); }
HWY_INLINE HWY_ATTR FloatVec Cos(FloatVec x) { return SinShifted<1>(x); }

HWY_INLINE HWY_ATTR FloatVec Tan(FloatVec x) {
  const FloatTag d;
  const IntTag di;
  const auto is_near = hn::Le(hn::Abs(x), Const(kTrigLimit));
  const TrigParts parts = ReduceTrig(hn::IfThenElseZero(is_near, x));
  const FloatVec square = hn::Mul(parts.r, parts.r);
  constexpr float kT[] = {0x1.555562p-2f, 0x1.110d22p-3f,   0x1.baee16p-5f, 0x1.5bfa42p-6f,
                          0x1.66a438p-7f, -0x1.7c671cp-15f, 0x1.2312d4p-8f};
  const FloatVec tan = hn::Add(hn::Mul(hn::Mul(parts.r, square), Polynomial(square, kT)), parts.r);
  const auto is_cotangent = hn::RebindMask(d, hn::TestBit(parts.n, hn::Set(di, 1)));
  FloatVec result = hn::IfThenElse(is_cotangent, hn::Div(Const(-1.0f), tan), tan);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
  if (HWY_UNLIKELY(!hn::AllTrue(d, is_near))) return FarLanes(x, result, [](float v) { return std::tan(v); });
  return result;
}

// asin(s) with z = s^2 <= 1/4.
HWY_INLINE HWY_ATTR FloatVec AsinReduced(FloatVec s, FloatVec z) {
  constexpr float kA[] = {0x1.5555cap-3f, 0x1.330166p-4f, 0x1.748abap-5f, 0x1.8bad76p-6f, 0x1.59d514p-5f};
  return hn::Add(hn::Mul(hn::Mul(s, z), Polynomial(z, kA)), s);
}

HWY_INLINE HWY_ATTR FloatVec Asin(FloatVec x) {
  const FloatVec a = hn::Abs(x);
  const auto is_big = hn::Gt(a, Const(0.5f));
  // asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2))
  const FloatVec z = hn::IfThenElse(is_big, hn::Mul(hn::Sub(Const(1.0f), a), Const(0.5f)), hn::Mul(a, a));
  const FloatVec p = AsinReduced(hn::IfThenElse(is_big, hn::Sqrt(z), a), z);
  const FloatVec big = hn::Sub(Const(0x1.921fb6p+0f), hn::Add(hn::Add(p, p), Const(0x1.777a5cp-25f)));
  return hn::CopySign(hn::IfThenElse(is_big, big, p), x);
}

HWY_INLINE HWY_ATTR FloatVec Acos(FloatVec x) {
  const FloatVec a = hn::Abs(x);
  const auto is_big = hn::Gt(a, Const(0.5f));
  const auto is_negative = hn::Lt(x, hn::Zero(FloatTag()));
  const FloatVec z = hn::IfThenElse(is_big, hn::Mul(hn::Sub(Const(1.0f), a), Const(0.5f)), hn::Mul(x, x));
  const FloatVec p = AsinReduced(hn::IfThenElse(is_big, hn::Sqrt(z), x), z);
  const FloatVec twice = hn::Add(p, p);
  const FloatVec small = hn::Sub(Const(0x1.921fb6p+0f), hn::Add(p, Const(0x1.777a5cp-25f)));
  const FloatVec big =
      hn::IfThenElse(is_negative, hn::Sub(Const(0x1.921fb6p+1f), hn::Add(twice, Const(0x1.777a5cp-24f))), twice);
  return hn::IfThenElse(is_big, big, small);
}

HWY_INLINE HWY_ATTR FloatVec Atan(FloatVec x) {
  const FloatVec a = hn::Abs(x);
  const FloatVec one = Const(1.0f);
  const auto is_middle = hn::Gt(a, Const(0x1.a8279ap-2f));  // tan(pi / 8)
  const auto is_big = hn::Gt(a, Const(0x1.3504f4p+1f));     // tan(3 pi / 8)
  // atan(a) = pi / 4 + atan((a - 1) / (a + 1)) = pi / 2 + atan(-1 / a)
  FloatVec above = hn::IfThenElse(is_middle, hn::Sub(a, one), a);
  above = hn::IfThenElse(is_big, Const(-1.0f), above);
  FloatVec below = hn::IfThenElse(is_middle, hn::Add(a, one), one);
  below = hn::IfThenElse(is_big, a, below);
  const FloatVec t = hn::Div(above, below);
  FloatVec base = hn::IfThenElseZero(is_middle, Const(0x1.921fb6p-1f));
  base = hn::IfThenElse(is_big, Const(0x1.921fb6p+0f), base);
  const FloatVec base_low =
      hn::IfThenElse(is_big, Const(-0x1.777a5cp-25f), hn::IfThenElseZero(is_middle, Const(-0x1.777a5cp-26f)));
  const FloatVec z = hn::Mul(t, t);
  constexpr float kA[] = {-0x1.55554ap-2f, 0x1.9991e4p-3f, -0x1.23b9c4p-3f, 0x1.b225d2p-4f, -0x1.f2e994p-5f};
  const FloatVec low = hn::Add(hn::Mul(hn::Mul(t, z), Polynomial(z, kA)), base_low);
  const FloatVec result = hn::Add(base, hn::Add(t, low));
  return hn::CopySign(result, x);
}

// ---- Hyperbolic functions ----

HWY_INLINE HWY_ATTR FloatVec Sinh(FloatVec x) {
  const FloatVec a = hn::Abs(x);
  const FloatVec z = hn::Mul(a, a);
  constexpr float kS[] = {0x1.555556p-3f, 0x1.1110e2p-7f, 0x1.a02108p-13f, 0x1.75b3b8p-19f};
  const FloatVec small = hn::Add(hn::Mul(hn::Mul(a, z), Polynomial(z, kS)), a);
  const FloatVec half_exp = ScaledExp<-1>(a);
  const FloatVec big = hn::Sub(half_exp, hn::Div(Const(0.25f), half_exp));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, Const(1.0f)), small, big), x);
}

HWY_INLINE HWY_ATTR FloatVec Cosh(FloatVec x) {
  const FloatVec half_exp = ScaledExp<-1>(hn::Abs(x));
  return hn::Add(half_exp, hn::Div(Const(0.25f), half_exp));
}

HWY_INLINE HWY_ATTR FloatVec Tanh(FloatVec x) {
  const FloatVec a = hn::Abs(x);
  const FloatVec one = Const(1.0f);
  const FloatVec z = hn::Mul(a, a);
  constexpr float kT[] = {-0x1.555534p-2f, 0x1.110756p-3f, -0x1.b8412ep-5f, 0x1.523f50p-6f, -0x1.76378cp-8f};
  const FloatVec small = hn::Add(hn::Mul(hn::Mul(a, z), Polynomial(z, kT)), a);
  const FloatVec big = hn::Sub(one, hn::Div(Const(2.0f), hn::Add(Exp(hn::Add(a, a)), one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, Const(0.625f)), small, big), x);
}

// ---- The error function ----

// erf(x) for |x| < 1: x + x P(x^2).
HWY_INLINE HWY_ATTR FloatVec ErfSmall(FloatVec x) {
  constexpr float kP[] = {0x1.06eba8p-3f, -0x1.812740p-2f,  0x1.ce2d2cp-4f, -0x1.b7fc6ap-6f,
                          0x1.541eb6p-8f, -0x1.a4a46cp-11f, 0x1.4b2ff6p-14f};
  return hn::MulAdd(x, Polynomial(hn::Mul(x, x), kP), x);
}

HWY_INLINE HWY_ATTR FloatVec Erf(FloatVec x) {
  FloatVec a = hn::Abs(x);
  const auto is_small = hn::Lt(a, Const(1.0f));
  const FloatVec small = ErfSmall(x);
  a = hn::IfThenElse(hn::Gt(a, Const(4.0f)), Const(4.0f), a);  // erf(4) is 1 in float32
  // 1 - 2^L(a), L = log2(erfc)
  constexpr float kL[] = {-0x1.02a9f8p-11f, -0x1.a04460p+0f, -0x1.d75fccp-1f, -0x1.30a2b4p-3f,
                          0x1.021462p-5f,   -0x1.16aabap-8f, 0x1.19e6bap-12f};
  const FloatVec big = hn::Sub(Const(1.0f), Exp2OfNormal(Polynomial(a, kL)));
  return KeepNaN(x, hn::IfThenElse(is_small, small, hn::CopySign(big, x)));
}

/// erfc(a) for a >= 0, given `exp`, e^-a^2: that times t P(t) with t = 2 / (2 + a).
HWY_INLINE HWY_ATTR FloatVec ErfcOf(FloatVec a, FloatVec exp) {
  const FloatVec t = hn::Div(Const(2.0f), hn::Add(Const(2.0f), a));
  constexpr float kP[] = {0x1.20dbd0p-2f, 0x1.2106c6p-2f,  0x1.f6207ep-3f,  0x1.7c1948p-3f,
                          0x1.c18cb8p-5f, 0x1.2215b6p-5f,  -0x1.67f9b0p-6f, -0x1.2886d4p-2f,
                          0x1.868f86p-2f, -0x1.87395cp-3f, 0x1.24fe86p-5f};
  return hn::Mul(hn::Mul(exp, t), Polynomial(t, kP));
}

HWY_INLINE HWY_ATTR FloatVec Erfc(FloatVec x) {
  const FloatTag d;
  const FloatVec two = Const(2.0f);
  FloatVec a = hn::Abs(x);
  a = hn::IfThenElse(hn::Gt(a, Const(10.1f)), Const(10.1f), a);  // erfc(10.1) is 0 in float32
  // a^2 as a sum of two numbers
  const FloatVec high = hn::And(a, hn::BitCast(d, hn::Set(IntTag(), static_cast<int32_t>(0xfffff000))));
  const FloatVec low = hn::Sub(a, high);
  const FloatVec square = hn::Mul(a, a);
  FloatVec rest = hn::Sub(hn::Mul(high, high), square);
  rest = hn::Add(rest, hn::Mul(hn::Mul(high, low), two));
  rest = hn::Add(rest, hn::Mul(low, low));
  // Scaled, so that it is not subnormal.
  const FloatVec exp = hn::Mul(ScaledExp<24>(hn::Neg(square)), hn::Sub(Const(1.0f), rest));
  const FloatVec result = hn::Mul(ErfcOf(a, exp), Const(0x1p-24f));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(two, result), result);
}

HWY_INLINE HWY_ATTR FloatVec ErfInv(FloatVec x) {
  const FloatVec one = Const(1.0f);
  // erfinv(x) / x is smooth in w = -log(1 - x^2), and far out in its root.
  const FloatVec w = hn::Neg(Log(hn::Mul(hn::Sub(one, x), hn::Add(one, x))));
  constexpr float kC[] = {0x1.805c5ep+0f,   0x1.f91e8ap-3f,   -0x1.11c4ecp-8f, -0x1.486616p-10f, 0x1.c9e6c8p-13f,
                          -0x1.4d1534p-18f, -0x1.d0c1c6p-19f, 0x1.f48a3cp-22f, 0x1.8f2400p-26f,  -0x1.2e0aaep-27f};
  constexpr float kT[] = {0x1.6a9efcp+1f,  0x1.006dc6p+0f,  0x1.3580ccp-7f,   -0x1.f48478p-8f,  0x1.74b3c2p-8f,
                          -0x1.d784d6p-9f, 0x1.854d26p-10f, -0x1.dc3970p-15f, -0x1.449716p-12f, 0x1.e54128p-14f};
  const FloatVec central = Polynomial(hn::Sub(w, Const(2.5f)), kC);
  const FloatVec tail = Polynomial(hn::Sub(hn::Sqrt(w), Const(3.0f)), kT);
  return hn::Mul(x, hn::IfThenElse(hn::Lt(w, Const(5.0f)), central, tail));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
