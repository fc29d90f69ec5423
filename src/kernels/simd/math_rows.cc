// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/math_rows.h"

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/math_rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/staged_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

#define REPRISE_FUNCTOR(Name, expression)                                            \
  struct Name##Fn {                                                                  \
    HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return expression; } \
  }

REPRISE_FUNCTOR(Abs, hn::Abs(a));
REPRISE_FUNCTOR(Acos, Acos(a));
REPRISE_FUNCTOR(Asin, Asin(a));
REPRISE_FUNCTOR(Atan, Atan(a));
REPRISE_FUNCTOR(Ceil, RoundUp(a));
REPRISE_FUNCTOR(Cos, Cos(a));
REPRISE_FUNCTOR(Cosh, Cosh(a));
REPRISE_FUNCTOR(Erf, Erf(a));
REPRISE_FUNCTOR(ErfInv, ErfInv(a));
REPRISE_FUNCTOR(Erfc, Erfc(a));
REPRISE_FUNCTOR(Exp2, Exp2(a));
REPRISE_FUNCTOR(Expm1, Expm1(a));
REPRISE_FUNCTOR(Floor, RoundDown(a));
REPRISE_FUNCTOR(Frac, hn::Sub(a, RoundToZero(a)));
REPRISE_FUNCTOR(Log, Log(a));
REPRISE_FUNCTOR(Log10, Log10(a));
REPRISE_FUNCTOR(Log1p, Log1p(a));
REPRISE_FUNCTOR(Log2, Log2(a));
REPRISE_FUNCTOR(Neg, hn::Neg(a));
REPRISE_FUNCTOR(Reciprocal, hn::Div(Const(1.0f), a));
REPRISE_FUNCTOR(Round, RoundToEven(a));
REPRISE_FUNCTOR(Rsqrt, hn::Div(Const(1.0f), hn::Sqrt(a)));
REPRISE_FUNCTOR(Sin, Sin(a));
REPRISE_FUNCTOR(Sinh, Sinh(a));
REPRISE_FUNCTOR(Sqrt, hn::Sqrt(a));
REPRISE_FUNCTOR(Tan, Tan(a));
REPRISE_FUNCTOR(Tanh, Tanh(a));
REPRISE_FUNCTOR(Trunc, RoundToZero(a));

#undef REPRISE_FUNCTOR

struct SignFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec zero = hn::Zero(FloatTag());
    return hn::Sub(hn::IfThenElseZero(hn::Gt(a, zero), Const(1.0f)), hn::IfThenElseZero(hn::Lt(a, zero), Const(1.0f)));
  }
};

struct NanToNumFn {
  explicit NanToNumFn(const float* numbers) : nan(numbers[0]), high(numbers[1]), low(numbers[2]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatTag d;
    FloatVec result = hn::IfThenElse(hn::Eq(a, hn::Inf(d)), Const(high), a);
    result = hn::IfThenElse(hn::Eq(a, hn::Neg(hn::Inf(d))), Const(low), result);
    return hn::IfThenElse(hn::IsNaN(a), Const(nan), result);
  }
  float nan, high, low;
};

struct RoundScaledUpFn {
  explicit RoundScaledUpFn(const float* numbers) : scale(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    return hn::Div(RoundToEven(hn::Mul(a, Const(scale))), Const(scale));
  }
  float scale;
};

struct RoundScaledDownFn {
  explicit RoundScaledDownFn(const float* numbers) : scale(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    return hn::Mul(RoundToEven(hn::Div(a, Const(scale))), Const(scale));
  }
  float scale;
};

ElementRow FindMathRowTarget(MathRow row, DType type) {
  switch (row) {
    case MathRow::kAbs: return StagedRows1<AbsFn>(type);
    case MathRow::kAcos: return StagedRows1<AcosFn>(type);
    case MathRow::kAsin: return StagedRows1<AsinFn>(type);
    case MathRow::kAtan: return StagedRows1<AtanFn>(type);
    case MathRow::kCeil: return StagedRows1<CeilFn>(type);
    case MathRow::kCos: return StagedRows1<CosFn>(type);
    case MathRow::kCosh: return StagedRows1<CoshFn>(type);
    case MathRow::kErf: return StagedRows1<ErfFn>(type);
    case MathRow::kErfInv: return StagedRows1<ErfInvFn>(type);
    case MathRow::kErfc: return StagedRows1<ErfcFn>(type);
    case MathRow::kExp: return Rows1<ExpFn>(type);
    case MathRow::kExp2: return StagedRows1<Exp2Fn>(type);
    case MathRow::kExpm1: return StagedRows1<Expm1Fn>(type);
    case MathRow::kFloor: return StagedRows1<FloorFn>(type);
    case MathRow::kFrac: return StagedRows1<FracFn>(type);
    case MathRow::kLog: return StagedRows1<LogFn>(type);
    case MathRow::kLog10: return StagedRows1<Log10Fn>(type);
    case MathRow::kLog1p: return StagedRows1<Log1pFn>(type);
    case MathRow::kLog2: return StagedRows1<Log2Fn>(type);
    case MathRow::kNanToNum: return StagedRows1<NanToNumFn>(type);
    case MathRow::kNeg: return StagedRows1<NegFn>(type);
    case MathRow::kReciprocal: return Rows1<ReciprocalFn>(type);
    case MathRow::kRound: return StagedRows1<RoundFn>(type);
    case MathRow::kRoundScaledDown: return StagedRows1<RoundScaledDownFn>(type);
    case MathRow::kRoundScaledUp: return StagedRows1<RoundScaledUpFn>(type);
    case MathRow::kRsqrt: return Rows1<RsqrtFn>(type);
    case MathRow::kSign: return StagedRows1<SignFn>(type);
    case MathRow::kSin: return StagedRows1<SinFn>(type);
    case MathRow::kSinh: return StagedRows1<SinhFn>(type);
    case MathRow::kSqrt: return Rows1<SqrtFn>(type);
    case MathRow::kTan: return StagedRows1<TanFn>(type);
    case MathRow::kTanh: return StagedRows1<TanhFn>(type);
    case MathRow::kTrunc: return StagedRows1<TruncFn>(type);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindMathRowTarget);

ElementRow FindMathRow(MathRow row, DType type) { return HWY_DYNAMIC_DISPATCH(FindMathRowTarget)(row, type); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
