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

ElementRow FindArithmeticRowTarget(ArithmeticRow row, DType type) {
  switch (row) {
    case ArithmeticRow::kAdd: return Rows2<AddFn>(type);
    case ArithmeticRow::kAddScaled: return Rows2<AddScaledFn>(type);
    case ArithmeticRow::kSub: return Rows2<SubFn>(type);
    case ArithmeticRow::kSubScaled: return Rows2<SubScaledFn>(type);
    case ArithmeticRow::kMul: return Rows2<MulFn>(type);
    case ArithmeticRow::kDiv: return Rows2<DivFn>(type);
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
