// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/rows.h"

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

struct CopyFn {
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return a; }
};

struct ExpShiftedFn {
  float shift;
  HWY_INLINE HWY_ATTR FloatVec operator()(FloatVec a) const { return ExpFn()(hn::Sub(a, hn::Set(FloatTag(), shift))); }
};

HWY_ATTR void ConvertRowTarget(DType from, DType to, const void* src, void* dst, size_t n) {
  if (from == DType::kFloat16) {
    Map(static_cast<const Half*>(src), static_cast<float*>(dst), n, CopyFn());
  } else if (from == DType::kBFloat16) {
    Map(static_cast<const BFloat16*>(src), static_cast<float*>(dst), n, CopyFn());
  } else if (to == DType::kFloat16) {
    Map(static_cast<const float*>(src), static_cast<Half*>(dst), n, CopyFn());
  } else {
    Map(static_cast<const float*>(src), static_cast<BFloat16*>(dst), n, CopyFn());
  }
}

HWY_ATTR void ExpShiftedRowTarget(float* x, float shift, size_t n) { Map(x, x, n, ExpShiftedFn{shift}); }

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(ConvertRowTarget);
HWY_EXPORT(ExpShiftedRowTarget);

void ConvertRow(DType from, DType to, const void* src, void* dst, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ConvertRowTarget)(from, to, src, dst, static_cast<size_t>(n));
}

void ExpShiftedRow(float* x, float shift, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpShiftedRowTarget)(x, shift, static_cast<size_t>(n));
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
