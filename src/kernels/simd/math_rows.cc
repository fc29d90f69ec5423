// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/math_rows.h"

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/math_rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

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

ElementRow FindMathRowTarget(MathRow row, DType type) {
  switch (row) {
    case MathRow::kRelu: return Rows1<ReluFn>(type);
    case MathRow::kExp: return Rows1<ExpFn>(type);
    case MathRow::kNeg: return Rows1<NegFn>(type);
    case MathRow::kAbs: return Rows1<AbsFn>(type);
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
