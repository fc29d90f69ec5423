// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/centred_sums.h"

#include <algorithm>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/centred_sums.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = 32;

struct One {
  HWY_INLINE HWY_ATTR Vec operator()(Vec x, Vec) const { return x; }
};
struct Square {
  float centre;
  HWY_INLINE HWY_ATTR Vec operator()(Vec x, Vec) const {
    const Vec difference = hn::Sub(x, hn::Set(Tag(), centre));
    return hn::Mul(difference, difference);
  }
};
struct Product {
  float centre;
  HWY_INLINE HWY_ATTR Vec operator()(Vec x, Vec g) const { return hn::Mul(g, hn::Sub(x, hn::Set(Tag(), centre))); }
};

template <class Fn>
HWY_INLINE HWY_ATTR float Sum(const float* x, const float* g, int64_t n, Fn fn) {
  const Tag d;
  constexpr int64_t kWidth = hn::MaxLanes(Tag());
  constexpr int kVectors = kLanes / kWidth;
  Vec sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::Add(sum[v], fn(hn::LoadU(d, x + i + v * kWidth), hn::LoadU(d, g + i + v * kWidth)));
    }
  }
  alignas(64) float lanes[kLanes];
  for (int v = 0; v < kVectors; ++v) hn::Store(sum[v], d, lanes + v * kWidth);
  if (i < n) {
    // The rest as one more round, of which only the lanes that there are count.
    alignas(64) float rest[2][kLanes] = {};
    std::copy(x + i, x + n, rest[0]);
    std::copy(g + i, g + n, rest[1]);
    alignas(64) float terms[kLanes];
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(fn(hn::Load(d, rest[0] + v * kWidth), hn::Load(d, rest[1] + v * kWidth)), d, terms + v * kWidth);
    }
    for (int64_t l = 0; i + l < n; ++l) lanes[l] += terms[l];
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

HWY_ATTR float SumRowOf(const float* x, int64_t n) { return Sum(x, x, n, One()); }
HWY_ATTR float SumSquaresOf(const float* x, float centre, int64_t n) { return Sum(x, x, n, Square{centre}); }
HWY_ATTR float SumProductsOf(const float* g, const float* x, float centre, int64_t n) {
  return Sum(x, g, n, Product{centre});
}

HWY_ATTR void ScaleRowOf(const float* x, float centre, float scale, float shift, int64_t n, float* out) {
  const Tag d;
  constexpr int64_t kWidth = hn::MaxLanes(Tag());
  const Vec c = hn::Set(d, centre);
  const Vec f = hn::Set(d, scale);
  const Vec b = hn::Set(d, shift);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    hn::StoreU(hn::Add(hn::Mul(hn::Sub(hn::LoadU(d, x + i), c), f), b), d, out + i);
  }
  for (; i < n; ++i) out[i] = (x[i] - centre) * scale + shift;
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(SumRowOf);
HWY_EXPORT(SumSquaresOf);
HWY_EXPORT(SumProductsOf);
HWY_EXPORT(ScaleRowOf);

float SumBlock(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumRowOf)(x, n); }
float SumSquares(const float* x, float centre, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumSquaresOf)(x, centre, n); }
float SumProducts(const float* g, const float* x, float centre, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumProductsOf)(g, x, centre, n);
}

void ScaleRow(const float* x, float centre, float scale, float shift, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleRowOf)(x, centre, scale, shift, n, out);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
