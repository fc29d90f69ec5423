// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/power_rows.h"

#include <cmath>

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/power_rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

// Half of the lanes, as float64; the one lane where there are no vectors.
#if HWY_TARGET == HWY_SCALAR
using HalfTag = FloatTag;
#else
using HalfTag = hn::Half<FloatTag>;
#endif
using DoubleTag = hn::Rebind<double, HalfTag>;
using DoubleVec = hn::Vec<DoubleTag>;
using LongTag = hn::RebindToUnsigned<DoubleTag>;

HWY_INLINE HWY_ATTR DoubleVec DoubleConst(double value) { return hn::Set(DoubleTag(), value); }

// fn(a, b) of all lanes through float64.
template <class Fn>
HWY_INLINE HWY_ATTR FloatVec InDoubles(FloatVec a, FloatVec b, Fn fn) {
  const HalfTag dh;
  const DoubleTag dd;
#if HWY_TARGET == HWY_SCALAR
  // Not DemoteTo, which makes the largest number of an infinity here.
  return hn::Set(dh, static_cast<float>(hn::GetLane(fn(hn::PromoteTo(dd, a), hn::PromoteTo(dd, b)))));
#else
  const FloatTag d;
  const auto low = fn(hn::PromoteTo(dd, hn::LowerHalf(dh, a)), hn::PromoteTo(dd, hn::LowerHalf(dh, b)));
  const auto high = fn(hn::PromoteTo(dd, hn::UpperHalf(dh, a)), hn::PromoteTo(dd, hn::UpperHalf(dh, b)));
  return hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
#endif
}

// `result`, but fn(a, b) in the lanes that are not easy: so a lane does not depend on its neighbours.
template <class Fn>
HWY_NOINLINE HWY_ATTR FloatVec LaneByLane(FloatVec a, FloatVec b, hn::Mask<FloatTag> is_easy, FloatVec result, Fn fn) {
  const FloatTag d;
  alignas(64) float as[kMaxLanes];
  alignas(64) float bs[kMaxLanes];
  alignas(64) float results[kMaxLanes];
  alignas(64) float easy[kMaxLanes];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(result, d, results);
  hn::Store(hn::IfThenElseZero(is_easy, Const(1.0f)), d, easy);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (easy[i] == 0) results[i] = fn(as[i], bs[i]);
  }
  return hn::Load(d, results);
}

// ---- Remainders ----

struct RestOfDoubles {
  HWY_INLINE HWY_ATTR DoubleVec operator()(DoubleVec a, DoubleVec b) const {
    // Exact: quotients below 2^28 lie too far from the next integer to be rounded to it, and the product has 53 bits.
    return hn::Sub(a, hn::Mul(hn::Trunc(hn::Div(a, b)), b));
  }
};

// Of floats: std::fmod.
HWY_INLINE HWY_ATTR FloatVec Fmod(FloatVec a, FloatVec b) {
  const FloatTag d;
  // False where a is not finite or b is 0.
  const auto is_small = hn::Lt(hn::Abs(hn::Div(a, b)), Const(0x1p27f));
  const auto is_easy = hn::And(is_small, hn::Lt(hn::Abs(b), hn::Inf(d)));
  const FloatVec result = hn::CopySign(InDoubles(a, b, RestOfDoubles()), a);
  if (HWY_LIKELY(hn::AllTrue(d, is_easy))) return result;
  return LaneByLane(a, b, is_easy, result, [](float x, float y) { return std::fmod(x, y); });
}

// Whether a rest that is not zero has the sign that b has not.
HWY_INLINE HWY_ATTR hn::Mask<FloatTag> IsOnOtherSide(FloatVec rest, FloatVec b) {
  const FloatVec zero = hn::Zero(FloatTag());
  const auto is_low = hn::And(hn::Lt(rest, zero), hn::Gt(b, zero));
  return hn::Or(is_low, hn::And(hn::Gt(rest, zero), hn::Lt(b, zero)));
}

struct FmodFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return Fmod(a, b); }
};
struct RemainderFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    const FloatVec rest = Fmod(a, b);
    return hn::IfThenElse(IsOnOtherSide(rest, b), hn::Add(rest, b), rest);
  }
};
struct TruncateDivFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return RoundToZero(hn::Div(a, b)); }
};
struct FloorDivFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    const FloatVec zero = hn::Zero(FloatTag());
    const FloatVec direct = hn::Div(a, b);
    const FloatVec rest = Fmod(a, b);
    FloatVec quotient = hn::Div(hn::Sub(a, rest), b);
    quotient = hn::Sub(quotient, hn::IfThenElseZero(IsOnOtherSide(rest, b), Const(1.0f)));
    const FloatVec whole = hn::Floor(quotient);
    const FloatVec rounded =
        hn::Add(whole, hn::IfThenElseZero(hn::Gt(hn::Sub(quotient, whole), Const(0.5f)), Const(1.0f)));
    const FloatVec result = hn::IfThenElse(hn::Eq(quotient, zero), hn::CopySign(zero, direct), rounded);
    return hn::IfThenElse(hn::Eq(b, zero), direct, result);
  }
};

// ---- Powers ----

// x^y = 2^(y log2 x) for positive numbers, with errors far below the last bit of a float.
struct PowOfDoubles {
  HWY_INLINE HWY_ATTR DoubleVec operator()(DoubleVec x, DoubleVec y) const {
    const DoubleTag dd;
    const LongTag du;
    // x = 2^e m, sqrt(1/2) <= m < sqrt(2); 2^52 in front of an integer makes a double of it.
    constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
    const auto bits = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x3ff0000000000000 - kRootHalf));
    const auto mantissa = hn::And(bits, hn::Set(du, 0x000fffffffffffff));
    const DoubleVec m = hn::BitCast(dd, hn::Add(mantissa, hn::Set(du, kRootHalf)));
    const DoubleVec biased = hn::BitCast(dd, hn::Or(hn::ShiftRight<52>(bits), hn::Set(du, 0x4330000000000000)));
    const DoubleVec e = hn::Sub(biased, DoubleConst(0x1p52 + 1023));
    // log2 m = 2 / ln 2 (s + s^3 / 3 + ...), s = (m - 1) / (m + 1).
    const DoubleVec one = DoubleConst(1.0);
    const DoubleVec s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
    const DoubleVec z = hn::Mul(s, s);
    DoubleVec series = DoubleConst(1.0 / 13);
    series = hn::Add(hn::Mul(series, z), DoubleConst(1.0 / 11));
    series = hn::Add(hn::Mul(series, z), DoubleConst(1.0 / 9));
    series = hn::Add(hn::Mul(series, z), DoubleConst(1.0 / 7));
    series = hn::Add(hn::Mul(series, z), DoubleConst(1.0 / 5));
    series = hn::Add(hn::Mul(series, z), DoubleConst(1.0 / 3));
    series = hn::Add(hn::Mul(series, z), one);
    const DoubleVec log2 = hn::Add(e, hn::Mul(hn::Mul(series, s), DoubleConst(2.8853900817779268)));
    // 2^t = 2^n e^(r ln 2); beyond the bounds a float is 0 or infinite.
    const DoubleVec t = hn::Min(hn::Max(hn::Mul(y, log2), DoubleConst(-300.0)), DoubleConst(300.0));
    const DoubleVec magic = DoubleConst(0x1.8p52);
    const DoubleVec shifted = hn::Add(t, magic);
    const DoubleVec u = hn::Mul(hn::Sub(t, hn::Sub(shifted, magic)), DoubleConst(0.6931471805599453));
    DoubleVec power = DoubleConst(1.0 / 40320);
    power = hn::Add(hn::Mul(power, u), DoubleConst(1.0 / 5040));
    power = hn::Add(hn::Mul(power, u), DoubleConst(1.0 / 720));
    power = hn::Add(hn::Mul(power, u), DoubleConst(1.0 / 120));
    power = hn::Add(hn::Mul(power, u), DoubleConst(1.0 / 24));
    power = hn::Add(hn::Mul(power, u), DoubleConst(1.0 / 6));
    power = hn::Add(hn::Mul(power, u), DoubleConst(0.5));
    power = hn::Add(hn::Mul(power, u), one);
    power = hn::Add(hn::Mul(power, u), one);
    const auto exponent = hn::Add(hn::BitCast(du, shifted), hn::Set(du, 1023));
    return hn::Mul(power, hn::BitCast(dd, hn::ShiftLeft<52>(exponent)));
  }
};

HWY_INLINE HWY_ATTR FloatVec Pow(FloatVec x, FloatVec y) {
  const FloatTag d;
  const FloatVec infinity = hn::Inf(d);
  const auto is_easy =
      hn::And(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity)), hn::Lt(hn::Abs(y), Const(0x1p60f)));
  const FloatVec result = InDoubles(x, y, PowOfDoubles());
  if (HWY_LIKELY(hn::AllTrue(d, is_easy))) return result;
  return LaneByLane(x, y, is_easy, result, [](float a, float b) { return std::pow(a, b); });
}

struct PowFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return Pow(a, b); }
};
struct PowOfFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return Pow(b, a); }
};

// ---- Others ----

struct Atan2Fn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec y, FloatVec x) const {
    const FloatTag d;
    const FloatVec zero = hn::Zero(d);
    const FloatVec high = hn::Abs(y);
    const FloatVec wide = hn::Abs(x);
    const auto is_steep = hn::Gt(high, wide);
    const FloatVec large = hn::IfThenElse(is_steep, high, wide);
    const FloatVec small = hn::IfThenElse(is_steep, wide, high);
    FloatVec ratio = hn::IfThenElse(hn::Eq(large, zero), zero, hn::Div(small, large));
    ratio = hn::IfThenElse(hn::And(hn::Eq(small, large), hn::Gt(large, zero)), Const(1.0f), ratio);  // also infinite
    const FloatVec angle = Atan(ratio);
    // pi / 2 - angle, pi - angle: the constants in two parts.
    const FloatVec steep = hn::Sub(Const(0x1.921fb6p+0f), hn::Add(angle, Const(0x1.777a5cp-25f)));
    const FloatVec first = hn::IfThenElse(is_steep, steep, angle);
    const auto is_left = hn::Lt(hn::CopySign(Const(1.0f), x), zero);
    // Left of the axis from `angle` itself, which is smaller.
    const FloatVec left =
        hn::IfThenElse(is_steep, hn::Add(Const(0x1.921fb6p+0f), hn::Sub(angle, Const(0x1.777a5cp-25f))),
                       hn::Sub(Const(0x1.921fb6p+1f), hn::Add(angle, Const(0x1.777a5cp-24f))));
    const FloatVec result = hn::CopySign(hn::IfThenElse(is_left, left, first), y);
    return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::NaN(d), result);
  }
};

struct LogAddExpFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    const FloatTag d;
    const FloatVec larger = hn::IfThenElse(hn::Gt(a, b), a, b);
    const FloatVec distance = hn::Abs(hn::Sub(a, b));  // NaN if one is
    const FloatVec sum = hn::Add(larger, Log1p(Exp(hn::Neg(distance))));
    return hn::IfThenElse(hn::And(hn::Eq(a, b), hn::Eq(hn::Abs(a), hn::Inf(d))), a, sum);
  }
};

template <class Fn>
ElementRow FloatRow() {
  return ElementRow::Of(DType::kFloat, Call2<float, Fn>, CallSingle<float, Fn>);
}

ElementRow FindPowerRowTarget(PowerRow row) {
  switch (row) {
    case PowerRow::kTruncateDiv: return FloatRow<TruncateDivFn>();
    case PowerRow::kFloorDiv: return FloatRow<FloorDivFn>();
    case PowerRow::kFmod: return FloatRow<FmodFn>();
    case PowerRow::kRemainder: return FloatRow<RemainderFn>();
    case PowerRow::kPow: return FloatRow<PowFn>();
    case PowerRow::kPowOf: return FloatRow<PowOfFn>();
    case PowerRow::kAtan2: return FloatRow<Atan2Fn>();
    case PowerRow::kLogAddExp: return FloatRow<LogAddExpFn>();
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindPowerRowTarget);

ElementRow FindPowerRow(PowerRow row) { return HWY_DYNAMIC_DISPATCH(FindPowerRowTarget)(row); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
