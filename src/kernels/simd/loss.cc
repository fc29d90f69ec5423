// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/loss.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/exp_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

HWY_INLINE HWY_ATTR FloatVec Constant(float value) { return hn::Set(FloatTag(), value); }

struct MseFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec d = hn::Sub(x, t);
    return hn::Mul(d, d);
  }
};
struct MseGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    return hn::Mul(hn::Sub(x, t), Constant(2.0f));
  }
};
struct L1Fn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const { return hn::Abs(hn::Sub(x, t)); }
};
struct SmoothL1Fn {
  float beta;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec d = hn::Abs(hn::Sub(x, t));
    const FloatVec half = Constant(0.5f);
    const FloatVec b = Constant(beta);
    return hn::IfThenElse(hn::Lt(d, b), hn::Div(hn::Mul(hn::Mul(half, d), d), b), hn::Sub(d, hn::Mul(half, b)));
  }
};

HWY_INLINE HWY_ATTR FloatVec AtLeastMinus100(FloatVec log) {
  const FloatVec least = Constant(-100.0f);
  return hn::IfThenElse(hn::Lt(log, least), least, log);
}

struct BceFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec no = hn::Mul(hn::Sub(t, Constant(1.0f)), AtLeastMinus100(Log1p(hn::Neg(x))));
    return hn::Sub(no, hn::Mul(t, AtLeastMinus100(Log(x))));
  }
};
struct BceLogitsFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec p) const {
    const FloatVec one = Constant(1.0f);
    const FloatVec zero = hn::Zero(FloatTag());
    // log(1 + e^-x) = max(-x, 0) + log(1 + e^-|x|)
    const FloatVec below = hn::IfThenElse(hn::Gt(x, zero), zero, hn::Neg(x));
    const FloatVec log = hn::Add(below, Log1p(Exp(hn::Neg(hn::Abs(x)))));
    const FloatVec factor = hn::Add(hn::Mul(hn::Sub(p, one), t), one);
    return hn::Add(hn::Mul(hn::Sub(one, t), x), hn::Mul(factor, log));
  }
};
struct BceLogitsGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec p) const {
    const FloatVec pt = hn::Mul(p, t);
    const FloatVec factor = hn::Sub(hn::Add(pt, Constant(1.0f)), t);
    return hn::Sub(hn::Mul(factor, Sigmoid(x)), pt);
  }
};
struct KlFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec zero = hn::Zero(FloatTag());
    const FloatVec own = hn::IfThenElse(hn::Eq(t, zero), zero, hn::Mul(t, Log(t)));
    return hn::Sub(own, hn::Mul(t, x));
  }
};
struct KlLogFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    return hn::Mul(Exp(t), hn::Sub(t, x));
  }
};
struct KlGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec, FloatVec t, FloatVec) const { return hn::Neg(t); }
};
struct KlLogGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec, FloatVec t, FloatVec) const { return hn::Neg(Exp(t)); }
};

struct SoftMarginFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec zero = hn::Zero(FloatTag());
    const FloatVec z = hn::Mul(t, x);
    const FloatVec below = hn::IfThenElse(hn::Gt(z, zero), zero, hn::Neg(z));
    return hn::Add(below, Log1p(Exp(hn::Neg(hn::Abs(z)))));
  }
};
struct SoftMarginGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    return hn::Neg(hn::Mul(t, Sigmoid(hn::Neg(hn::Mul(t, x)))));
  }
};
HWY_INLINE HWY_ATTR FloatVec SignOf(FloatVec x) {
  const FloatVec zero = hn::Zero(FloatTag());
  const FloatVec one = Constant(1.0f);
  return hn::IfThenElse(hn::Gt(x, zero), one, hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one), zero));
}
struct L1GradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const { return SignOf(hn::Sub(x, t)); }
};
struct SmoothL1GradFn {
  float beta;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec d = hn::Sub(x, t);
    const FloatVec b = Constant(beta);
    return hn::IfThenElse(hn::Lt(hn::Abs(d), b), hn::Div(d, b), SignOf(d));
  }
};
struct BceGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec least = Constant(1e-12f);
    const FloatVec spread = hn::Mul(hn::Sub(Constant(1.0f), x), x);
    return hn::Div(hn::Sub(x, t), hn::IfThenElse(hn::Lt(spread, least), least, spread));
  }
};
struct KlTargetGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    const FloatVec zero = hn::Zero(FloatTag());
    return hn::IfThenElse(hn::Eq(t, zero), zero, hn::Sub(hn::Add(Log(t), Constant(1.0f)), x));
  }
};
struct KlLogTargetGradFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec x, FloatVec t, FloatVec) const {
    return hn::Mul(Exp(t), hn::Sub(hn::Add(t, Constant(1.0f)), x));
  }
};

template <class Fn, bool kHasPosWeight>
struct Row {
  const float* x;
  const float* t;
  const float* p;
  float* out;
  Fn fn;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    const FloatVec weight = kHasPosWeight ? vec.Load(p + i) : Constant(1.0f);
    vec.Store(fn(vec.Load(x + i), vec.Load(t + i), weight), out + i);
  }
};

HWY_ATTR void LossRowTarget(LossOp op, const float* x, const float* t, const float* p, float beta, float* out,
                            size_t n) {
  const bool has = p != nullptr;
  switch (op) {
    case LossOp::kMse: return ForEachVec(n, Row<MseFn, false>{x, t, p, out, {}});
    case LossOp::kL1: return ForEachVec(n, Row<L1Fn, false>{x, t, p, out, {}});
    case LossOp::kSmoothL1: return ForEachVec(n, Row<SmoothL1Fn, false>{x, t, p, out, {beta}});
    case LossOp::kBce: return ForEachVec(n, Row<BceFn, false>{x, t, p, out, {}});
    case LossOp::kBceLogits:
      return has ? ForEachVec(n, Row<BceLogitsFn, true>{x, t, p, out, {}})
                 : ForEachVec(n, Row<BceLogitsFn, false>{x, t, p, out, {}});
    case LossOp::kKl: return ForEachVec(n, Row<KlFn, false>{x, t, p, out, {}});
    case LossOp::kKlLog: return ForEachVec(n, Row<KlLogFn, false>{x, t, p, out, {}});
    case LossOp::kMseGrad: return ForEachVec(n, Row<MseGradFn, false>{x, t, p, out, {}});
    case LossOp::kBceLogitsGrad:
      return has ? ForEachVec(n, Row<BceLogitsGradFn, true>{x, t, p, out, {}})
                 : ForEachVec(n, Row<BceLogitsGradFn, false>{x, t, p, out, {}});
    case LossOp::kKlGrad: return ForEachVec(n, Row<KlGradFn, false>{x, t, p, out, {}});
    case LossOp::kKlLogGrad: return ForEachVec(n, Row<KlLogGradFn, false>{x, t, p, out, {}});
    case LossOp::kSoftMargin: return ForEachVec(n, Row<SoftMarginFn, false>{x, t, p, out, {}});
    case LossOp::kSoftMarginGrad: return ForEachVec(n, Row<SoftMarginGradFn, false>{x, t, p, out, {}});
    case LossOp::kL1Grad: return ForEachVec(n, Row<L1GradFn, false>{x, t, p, out, {}});
    case LossOp::kSmoothL1Grad: return ForEachVec(n, Row<SmoothL1GradFn, false>{x, t, p, out, {beta}});
    case LossOp::kBceGrad: return ForEachVec(n, Row<BceGradFn, false>{x, t, p, out, {}});
    case LossOp::kKlTargetGrad: return ForEachVec(n, Row<KlTargetGradFn, false>{x, t, p, out, {}});
    case LossOp::kKlLogTargetGrad: return ForEachVec(n, Row<KlLogTargetGradFn, false>{x, t, p, out, {}});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(LossRowTarget);

void LossRow(LossOp op, const float* x, const float* target, const float* pos_weight, float beta, float* out,
             int64_t n) {
  HWY_DYNAMIC_DISPATCH(LossRowTarget)(op, x, target, pos_weight, beta, out, static_cast<size_t>(n));
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
