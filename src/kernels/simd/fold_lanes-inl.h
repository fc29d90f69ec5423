// SPDX-License-Identifier: Apache-2.0
//
// Sums of the lanes of vectors, four at a time. Included once for each instruction set.
#if defined(REPRISE_KERNELS_SIMD_FOLD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_SIMD_FOLD_LANES_INL_H_
#undef REPRISE_KERNELS_SIMD_FOLD_LANES_INL_H_
#else
#define REPRISE_KERNELS_SIMD_FOLD_LANES_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

/// totals[i] = the sum of the lanes of sums[i], i < 4, all added in the same order. Lanes have four bytes.
template <class D>
HWY_INLINE HWY_ATTR void FoldFour(D d, const hwy::HWY_NAMESPACE::Vec<D>* sums, hwy::HWY_NAMESPACE::TFromD<D>* totals) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_MAX_BYTES >= 32
  const hn::RepartitionToWide<D> pairs;
  const auto ab = hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
  const auto ce = hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  // Each block of four lanes has a part of each of the four sums.
  const auto blocks = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  const hn::Half<D> half;
  const auto halves = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
#if HWY_MAX_BYTES == 64
  const hn::Half<decltype(half)> quarter;
  hn::StoreU(hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves)), quarter, totals);
#else
  hn::StoreU(halves, half, totals);
#endif
#else
  for (int s = 0; s < 4; ++s) totals[s] = hn::GetLane(hn::SumOfLanes(d, sums[s]));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#endif
