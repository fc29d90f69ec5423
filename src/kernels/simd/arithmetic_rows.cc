// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/arithmetic_rows.h"

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/arithmetic_rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

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
  explicit AddScaledFn(const float* numbers) : alpha(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::Add(a, hn::Mul(hn::Set(FloatTag(), alpha), b));
  }
  float alpha;
};
struct SubScaledFn {
  explicit SubScaledFn(const float* numbers) : alpha(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::Sub(a, hn::Mul(hn::Set(FloatTag(), alpha), b));
  }
  float alpha;
};

struct RsubScaledFn {
  explicit RsubScaledFn(const float* numbers) : alpha(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::Sub(b, hn::Mul(hn::Set(FloatTag(), alpha), a));
  }
  float alpha;
};
// The comparison is false for a NaN in b, which is then the result.
struct MaximumFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct MinimumFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct ClampFn {
  explicit ClampFn(const float* numbers) : low(numbers[0]), high(numbers[1]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const {
    const FloatVec lower = hn::Set(FloatTag(), low);
    const FloatVec upper = hn::Set(FloatTag(), high);
    const FloatVec raised = hn::IfThenElse(hn::Lt(a, lower), lower, a);
    return hn::IfThenElse(hn::Gt(raised, upper), upper, raised);
  }
  float low;
  float high;
};
struct ClampBetweenFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec low, FloatVec high) const {
    return MinimumFn()(MaximumFn()(a, low), high);
  }
};
struct LerpFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b, FloatVec weight) const {
    const FloatTag d;
    const FloatVec step = hn::Sub(b, a);
    const FloatVec from_a = hn::Add(a, hn::Mul(weight, step));
    const FloatVec from_b = hn::Sub(b, hn::Mul(step, hn::Sub(hn::Set(d, 1.0f), weight)));
    return hn::IfThenElse(hn::Lt(hn::Abs(weight), hn::Set(d, 0.5f)), from_a, from_b);
  }
};
struct LerpByFn {
  explicit LerpByFn(const float* numbers) : weight(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b) const {
    return LerpFn()(a, b, hn::Set(FloatTag(), weight));
  }
  float weight;
};
struct AddcmulFn {
  explicit AddcmulFn(const float* numbers) : value(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b, FloatVec c) const {
    return hn::Add(a, hn::Mul(hn::Mul(hn::Set(FloatTag(), value), b), c));
  }
  float value;
};
struct AddcdivFn {
  explicit AddcdivFn(const float* numbers) : value(numbers[0]) {}
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a, FloatVec b, FloatVec c) const {
    return hn::Add(a, hn::Div(hn::Mul(hn::Set(FloatTag(), value), b), c));
  }
  float value;
};

ElementRow FindArithmeticRowTarget(ArithmeticRow row, DType type) {
  switch (row) {
    case ArithmeticRow::kAdd: return Rows2<AddFn>(type);
    case ArithmeticRow::kAddScaled: return Rows2<AddScaledFn>(type);
    case ArithmeticRow::kSub: return Rows2<SubFn>(type);
    case ArithmeticRow::kSubScaled: return Rows2<SubScaledFn>(type);
    case ArithmeticRow::kRsubScaled: return Rows2<RsubScaledFn>(type);
    case ArithmeticRow::kMul: return Rows2<MulFn>(type);
    case ArithmeticRow::kDiv: return Rows2<DivFn>(type);
    case ArithmeticRow::kMaximum: return Rows2<MaximumFn>(type);
    case ArithmeticRow::kMinimum: return Rows2<MinimumFn>(type);
    case ArithmeticRow::kLerpBy: return Rows2<LerpByFn>(type);
    case ArithmeticRow::kClamp: return Rows1<ClampFn>(type);
    case ArithmeticRow::kClampBetween: return Rows3<ClampBetweenFn>(type);
    case ArithmeticRow::kLerp: return Rows3<LerpFn>(type);
    case ArithmeticRow::kAddcmul: return Rows3<AddcmulFn>(type);
    case ArithmeticRow::kAddcdiv: return Rows3<AddcdivFn>(type);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindArithmeticRowTarget);

ElementRow FindArithmeticRow(ArithmeticRow row, DType type) {
  return HWY_DYNAMIC_DISPATCH(FindArithmeticRowTarget)(row, type);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
