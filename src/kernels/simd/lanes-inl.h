// SPDX-License-Identifier: Apache-2.0
//
// The lanes of one vector made one number, for the sources of simd/ that Highway compiles once per instruction set.

#if defined(REPRISE_KERNELS_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_LANES_INL_H_
#undef REPRISE_KERNELS_SIMD_LANES_INL_H_
#else
#define REPRISE_KERNELS_SIMD_LANES_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

/// join(lower half, upper half) until one lane is left. For sums: lane l + lane (l + width) for each half of the width,
/// so the bits are those of the same additions on an array.
template <class D, class Join>
HWY_INLINE HWY_ATTR hwy::HWY_NAMESPACE::TFromD<D> FoldLanes(D d, hwy::HWY_NAMESPACE::VFromD<D> lanes, Join join) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)join;
  return hn::GetLane(lanes);
#else
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return FoldLanes(half, join(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)), join);
  } else {
    (void)d, (void)join;
    return hn::GetLane(lanes);
  }
#endif
}

struct AddLanes {
  template <class V>
  HWY_INLINE HWY_ATTR V operator()(V a, V b) const {
    return hwy::HWY_NAMESPACE::Add(a, b);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif
