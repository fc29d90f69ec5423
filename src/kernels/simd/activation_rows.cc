// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/activation_rows.h"

#include <limits>

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/activation_rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/staged_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

// Of the normal distribution: e^(-x^2 / 2), and the probability of what is below x. The error is absolute, about 2^-23.
struct Normal {
  FloatVec exp;
  FloatVec below;
};
HWY_INLINE HWY_ATTR Normal NormalOf(FloatVec x) {
  const FloatTag d;
  const FloatVec y = hn::Mul(hn::Mul(x, x), Const(-0x1.715476p-1f));
  const FloatVec exp = hn::IfThenElseZero(hn::Ge(y, Const(-126.0f)), Exp2OfNormal(y));
  // Above |x| is e^(-x^2 / 2) t P(t), t = 2 / (2 + |x| / sqrt 2).
  const FloatVec t = hn::Div(Const(0x1.6a09e6p+1f), hn::Add(hn::Abs(x), Const(0x1.6a09e6p+1f)));
  constexpr float kP[] = {0x1.20c13ap-3f, 0x1.202222p-3f,  0x1.102492p-3f, 0x1.1e47d6p-5f,
                          0x1.6bb648p-3f, -0x1.5ad5cep-3f, 0x1.5a1698p-5f};
  const FloatVec tail = hn::Mul(hn::Mul(exp, t), Polynomial(t, kP));
  return {exp, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(Const(1.0f), tail))};
}

// The argument of the tanh in GELU's approximation, twice: x * 2 sqrt(2 / pi) * (1 + 0.044715 x^2).
HWY_INLINE HWY_ATTR FloatVec TwiceInner(FloatVec x) {
  const FloatVec inner = hn::MulAdd(hn::Mul(x, x), Const(0.044715f), Const(1.0f));
  return hn::Mul(hn::Mul(x, Const(0x1.988454p+0f)), inner);
}

struct ReluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec zero = hn::Zero(FloatTag());
    return hn::IfThenElse(hn::Le(a, zero), zero, a);
  }
};

struct LeakyReluFn {
  explicit LeakyReluFn(const float* numbers) : slope(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    return hn::IfThenElse(hn::Gt(a, hn::Zero(FloatTag())), a, hn::Mul(a, Const(slope)));
  }
  float slope;
};

struct EluFn {
  explicit EluFn(const float* numbers) : negative(numbers[0]), positive(numbers[1]), inner(numbers[2]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec zero = hn::Zero(FloatTag());
    const FloatVec x = hn::Mul(a, Const(inner));
    const bool is_usual = inner > 0 && inner <= std::numeric_limits<float>::max();
    const FloatVec power = is_usual ? Expm1OfNegative(x) : Expm1(x);
    return hn::IfThenElse(hn::Le(a, zero), hn::Mul(power, Const(negative)), hn::Mul(a, Const(positive)));
  }
  float negative, positive, inner;
};

struct HardtanhFn {
  explicit HardtanhFn(const float* numbers) : low(numbers[0]), high(numbers[1]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec c = hn::IfThenElse(hn::Lt(a, Const(low)), Const(low), a);
    return hn::IfThenElse(hn::Gt(c, Const(high)), Const(high), c);
  }
  float low, high;
};

struct HardsigmoidFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    constexpr float kBounds[] = {0.0f, 6.0f};
    return hn::Div(HardtanhFn(kBounds)(hn::Add(a, Const(3.0f))), Const(6.0f));
  }
};

struct HardswishFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    constexpr float kBounds[] = {0.0f, 6.0f};
    return hn::Div(hn::Mul(a, HardtanhFn(kBounds)(hn::Add(a, Const(3.0f)))), Const(6.0f));
  }
};

struct ThresholdFn {
  explicit ThresholdFn(const float* numbers) : threshold(numbers[0]), value(numbers[1]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    return hn::IfThenElse(hn::Le(a, Const(threshold)), Const(value), a);
  }
  float threshold, value;
};

struct SigmoidFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return Sigmoid(a); }
};

struct SiluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return Silu(a); }
};

struct FastGeluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return hn::Mul(a, Sigmoid(hn::Mul(a, Const(1.702f)))); }
};

struct GeluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return hn::Mul(a, NormalOf(a).below); }
};

struct GeluTanhFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return hn::Mul(a, Sigmoid(TwiceInner(a))); }
};

// tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2).
struct MishFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec e = Exp(a);
    const FloatVec n = hn::Mul(e, hn::Add(e, Const(2.0f)));
    const FloatVec tanh = hn::Div(n, hn::Add(n, Const(2.0f)));
    return hn::IfThenElse(hn::Gt(a, Const(20.0f)), a, hn::Mul(a, tanh));
  }
};

struct SoftplusFn {
  explicit SoftplusFn(const float* numbers) : beta(numbers[0]), threshold(numbers[1]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec scaled = hn::Mul(a, Const(beta));
    const FloatVec above = hn::IfThenElseZero(hn::Gt(scaled, hn::Zero(FloatTag())), scaled);
    const FloatVec log = hn::Add(above, Log1pOfUnit(Exp(hn::Neg(hn::Abs(scaled)))));
    return hn::IfThenElse(hn::Gt(scaled, Const(threshold)), a, hn::Div(log, Const(beta)));
  }
  float beta, threshold;
};

struct GluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Mul(a, Sigmoid(b)); }
};
struct SwiGluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Mul(SiluFn()(a), b); }
};
struct GeGluFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Mul(GeluFn()(a), b); }
};
struct GeGluTanhFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const { return hn::Mul(GeluTanhFn()(a), b); }
};

struct SigmoidBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec y) const {
    return hn::Mul(hn::Mul(grad, hn::Sub(Const(1.0f), y)), y);
  }
};
struct TanhBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec y) const {
    // A difference that is exact where it is close to 0.
    return hn::Mul(hn::Mul(grad, hn::Sub(Const(1.0f), y)), hn::Add(Const(1.0f), y));
  }
};
struct ThresholdBackwardFn {
  explicit ThresholdBackwardFn(const float* numbers) : threshold(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a) const {
    return hn::IfThenZeroElse(hn::Le(a, Const(threshold)), grad);
  }
  float threshold;
};
struct SiluBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a) const {
    const FloatVec one = Const(1.0f);
    const FloatVec s = Sigmoid(a);
    return hn::Mul(hn::Mul(grad, s), hn::MulAdd(a, hn::Sub(one, s), one));
  }
};
struct GeluBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a) const {
    const Normal normal = NormalOf(a);
    const FloatVec density = hn::Mul(normal.exp, Const(0x1.988454p-2f));
    return hn::Mul(grad, hn::Add(normal.below, hn::Mul(a, density)));
  }
};
struct GeluTanhBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a) const {
    const FloatVec one = Const(1.0f);
    const FloatVec s = Sigmoid(TwiceInner(a));
    const FloatVec slope = hn::Mul(hn::MulAdd(hn::Mul(a, a), Const(3.0f * 0.044715f), one), Const(0x1.988454p+0f));
    return hn::Mul(grad, hn::Add(s, hn::Mul(hn::Mul(a, slope), hn::Mul(s, hn::Sub(one, s)))));
  }
};
// d(a sigmoid(b)) / db.
struct GluGateBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a, FloatVec b) const {
    // s (1 - s) = e / (1 + e)^2 with e = e^-|b|
    const FloatVec e = Exp(hn::Neg(hn::Abs(b)));
    const FloatVec sum = hn::Add(Const(1.0f), e);
    return hn::Mul(hn::Mul(grad, a), hn::Div(e, hn::Mul(sum, sum)));
  }
};
// d(silu(a) b) / da.
struct SwiGluGateBackwardFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec grad, FloatVec a, FloatVec b) const {
    return SiluBackwardFn()(hn::Mul(grad, b), a);
  }
};

ElementRow FindActivationRowTarget(ActivationRow row, DType type) {
  switch (row) {
    case ActivationRow::kElu: return StagedRows1<EluFn>(type);
    case ActivationRow::kFastGelu: return StagedRows1<FastGeluFn>(type);
    case ActivationRow::kGeGlu: return StagedRows2<GeGluFn>(type);
    case ActivationRow::kGeGluTanh: return StagedRows2<GeGluTanhFn>(type);
    case ActivationRow::kGelu: return StagedRows1<GeluFn>(type);
    case ActivationRow::kGeluBackward: return StagedRows2<GeluBackwardFn>(type);
    case ActivationRow::kGeluTanh: return StagedRows1<GeluTanhFn>(type);
    case ActivationRow::kGeluTanhBackward: return StagedRows2<GeluTanhBackwardFn>(type);
    case ActivationRow::kGlu: return StagedRows2<GluFn>(type);
    case ActivationRow::kGluGateBackward: return StagedRows3<GluGateBackwardFn>(type);
    case ActivationRow::kHardsigmoid: return StagedRows1<HardsigmoidFn>(type);
    case ActivationRow::kHardswish: return StagedRows1<HardswishFn>(type);
    case ActivationRow::kHardtanh: return StagedRows1<HardtanhFn>(type);
    case ActivationRow::kLeakyRelu: return StagedRows1<LeakyReluFn>(type);
    case ActivationRow::kMish: return StagedRows1<MishFn>(type);
    case ActivationRow::kRelu: return Rows1<ReluFn>(type);
    case ActivationRow::kSigmoid: return StagedRows1<SigmoidFn>(type);
    case ActivationRow::kSigmoidBackward: return StagedRows2<SigmoidBackwardFn>(type);
    case ActivationRow::kSilu: return StagedRows1<SiluFn>(type);
    case ActivationRow::kSiluBackward: return StagedRows2<SiluBackwardFn>(type);
    case ActivationRow::kSoftplus: return StagedRows1<SoftplusFn>(type);
    case ActivationRow::kSwiGlu: return StagedRows2<SwiGluFn>(type);
    case ActivationRow::kSwiGluGateBackward: return StagedRows3<SwiGluGateBackwardFn>(type);
    case ActivationRow::kTanhBackward: return StagedRows2<TanhBackwardFn>(type);
    case ActivationRow::kThreshold: return StagedRows1<ThresholdFn>(type);
    case ActivationRow::kThresholdBackward: return StagedRows2<ThresholdBackwardFn>(type);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindActivationRowTarget);

ElementRow FindActivationRow(ActivationRow row, DType type) {
  return HWY_DYNAMIC_DISPATCH(FindActivationRowTarget)(row, type);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
