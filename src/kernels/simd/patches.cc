// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/patches.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/patches.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/channel_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

// One dim of the transform of a patch.
HWY_INLINE HWY_ATTR void Spread(Vector& a, Vector& b, Vector& c, Vector& d) {
  const Vector first = hn::Sub(a, c);
  const Vector second = hn::Add(b, c);
  const Vector third = hn::Sub(c, b);
  const Vector fourth = hn::Sub(b, d);
  a = first;
  b = second;
  c = third;
  d = fourth;
}

template <class Some>
HWY_INLINE HWY_ATTR void TransformPatch(const PatchBlock& block, int64_t patch, int64_t at, Some some) {
  Vector x[4][4];
  const float* const* pixel = block.pixels + patch;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j, pixel += block.patches) x[i][j] = some.Load(*pixel + at);
  }
  for (int j = 0; j < 4; ++j) Spread(x[0][j], x[1][j], x[2][j], x[3][j]);
  for (int i = 0; i < 4; ++i) Spread(x[i][0], x[i][1], x[i][2], x[i][3]);
  const int64_t step = block.patches * block.channels;
  float* to = block.out + patch * block.channels + at;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j, to += step) some.Store(x[i][j], to);
  }
}

HWY_ATTR void Transform(const PatchBlock& block) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t patch = 0; patch < block.patches; ++patch) {
    int64_t at = 0;
    for (; at + lanes <= block.channels; at += lanes) TransformPatch(block, patch, at, AllLanes());
    if (at < block.channels) TransformPatch(block, patch, at, FirstLanes(block.channels - at));
  }
}

// One dim of the way back: two outputs of four sums.
HWY_INLINE HWY_ATTR void Gather(Vector a, Vector b, Vector c, Vector d, Vector& first, Vector& second) {
  first = hn::Add(hn::Add(a, b), c);
  second = hn::Sub(hn::Sub(b, c), d);
}

template <class Some>
HWY_INLINE HWY_ATTR void FinishPatch(const PatchSums& block, int64_t patch, int64_t at, Some some) {
  const int64_t step = block.patches * block.stride;
  const float* from = block.sums + patch * block.stride + at;
  Vector half[4][2];
  for (int i = 0; i < 4; ++i, from += 4 * step) {
    Gather(some.Load(from), some.Load(from + step), some.Load(from + 2 * step), some.Load(from + 3 * step), half[i][0],
           half[i][1]);
  }
  Vector out[2][2];
  for (int j = 0; j < 2; ++j) Gather(half[0][j], half[1][j], half[2][j], half[3][j], out[0][j], out[1][j]);
  const Finish finish(block.epilogue, at, some);
  for (int i = 0; i < 4; ++i) {
    const int64_t pixel = block.pixels[4 * patch + i];
    if (pixel >= 0) some.Store(finish(out[i / 2][i % 2], pixel), block.out + pixel * block.out_stride + at);
  }
}

HWY_ATTR bool IsFinite(const PatchSums& block, int64_t patch) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector zero = hn::Zero(d);
  Vector seen[2] = {zero, zero};  // stays zero while numbers are finite
  for (int64_t place = 0; place < kPatchPlaces; ++place) {
    const float* const from = block.sums + (place * block.patches + patch) * block.stride;
    int64_t at = 0;
    for (; at + lanes <= block.columns; at += lanes) {
      seen[place & 1] = hn::MulAdd(hn::LoadU(d, from + at), zero, seen[place & 1]);
    }
    if (at < block.columns) seen[0] = hn::MulAdd(FirstLanes(block.columns - at).Load(from + at), zero, seen[0]);
  }
  return hn::AllTrue(d, hn::Eq(hn::Add(seen[0], seen[1]), zero));
}

HWY_ATTR int64_t FinishAll(const PatchSums& block) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t left_out = 0;
  for (int64_t patch = 0; patch < block.patches; ++patch) {
    if (!IsFinite(block, patch)) {
      block.left_out[left_out++] = patch;
      continue;
    }
    int64_t at = 0;
    for (; at + lanes <= block.columns; at += lanes) FinishPatch(block, patch, at, AllLanes());
    if (at < block.columns) FinishPatch(block, patch, at, FirstLanes(block.columns - at));
  }
  return left_out;
}

// One dim of the transform of a filter.
template <class V>
struct FilterSides {
  V first, both, apart, last;
};
template <class D, class V = hn::Vec<D>>
HWY_INLINE HWY_ATTR FilterSides<V> SpreadFilter(D d, V a, V b, V c) {
  const V half = hn::Set(d, 0.5);
  return {a, hn::Mul(half, hn::Add(hn::Add(a, b), c)), hn::Mul(half, hn::Add(hn::Sub(a, b), c)), c};
}

// As many channels as a vector of doubles has.
template <class D>
HWY_INLINE HWY_ATTR void TransformChannels(D wide, const float* filter, int64_t channels, float* out) {
  using V = hn::Vec<D>;
  const hn::Rebind<float, D> narrow;
  V rows[4][3];
  for (int x = 0; x < 3; ++x) {
    const auto load = [&](int y)
                          HWY_ATTR { return hn::PromoteTo(wide, hn::LoadU(narrow, filter + (3 * y + x) * channels)); };
    const FilterSides<V> sides = SpreadFilter(wide, load(0), load(1), load(2));
    rows[0][x] = sides.first;
    rows[1][x] = sides.both;
    rows[2][x] = sides.apart;
    rows[3][x] = sides.last;
  }
  for (int y = 0; y < 4; ++y, out += 4 * channels) {
    const FilterSides<V> sides = SpreadFilter(wide, rows[y][0], rows[y][1], rows[y][2]);
    hn::StoreU(hn::DemoteTo(narrow, sides.first), narrow, out);
    hn::StoreU(hn::DemoteTo(narrow, sides.both), narrow, out + channels);
    hn::StoreU(hn::DemoteTo(narrow, sides.apart), narrow, out + 2 * channels);
    hn::StoreU(hn::DemoteTo(narrow, sides.last), narrow, out + 3 * channels);
  }
}

HWY_ATTR void TransformFilterOf(const float* filter, int64_t channels, float* out) {
  const hn::CappedTag<double, 8> wide;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) TransformChannels(wide, filter + c, channels, out + c);
  for (; c < channels; ++c) TransformChannels(hn::CappedTag<double, 1>(), filter + c, channels, out + c);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(Transform);
HWY_EXPORT(FinishAll);
HWY_EXPORT(TransformFilterOf);

void TransformPatches(const PatchBlock& block) { HWY_DYNAMIC_DISPATCH(Transform)(block); }
int64_t FinishPatches(const PatchSums& block) { return HWY_DYNAMIC_DISPATCH(FinishAll)(block); }

void TransformFilter(const float* filter, int64_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(TransformFilterOf)(filter, channels, out);
}

}  // namespace reprise::kernels::simd
#endif
