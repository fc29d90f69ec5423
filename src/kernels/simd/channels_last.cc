// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/channels_last.h"

#include <algorithm>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/channels_last.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Floats>;

// Pixels of a tile: with two vectors of columns they leave registers for a row of the panel and a factor.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4
constexpr int kMostPixels = 12;
#else
constexpr int kMostPixels = 6;
#endif

// Vectors of which all lanes are there, or the first ones.
struct AllLanes {
  HWY_INLINE HWY_ATTR Vector Load(const float* from) const { return hn::LoadU(Floats(), from); }
  HWY_INLINE HWY_ATTR void Store(Vector value, float* to) const { hn::StoreU(value, Floats(), to); }
};
struct FirstLanes {
  int64_t count;  // none and too many are allowed
  int64_t there() const { return std::clamp<int64_t>(count, 0, static_cast<int64_t>(hn::Lanes(Floats()))); }
  HWY_INLINE HWY_ATTR Vector Load(const float* from) const {
    HWY_ALIGN float lanes[16] = {};
    for (int64_t i = 0; i < there(); ++i) lanes[i] = from[i];
    return hn::Load(Floats(), lanes);
  }
  HWY_INLINE HWY_ATTR void Store(Vector value, float* to) const {
    HWY_ALIGN float lanes[16];
    hn::Store(value, Floats(), lanes);
    for (int64_t i = 0; i < there(); ++i) to[i] = lanes[i];
  }
};

// Sums as they are stored, from column `at` of the pixel on.
template <class Lanes>
HWY_INLINE HWY_ATTR Vector Finish(Vector sum, const PixelEpilogue& epilogue, int64_t pixel, int64_t at, Lanes lanes) {
  const Floats d;
  if (epilogue.bias != nullptr) sum = hn::Add(sum, lanes.Load(epilogue.bias + at));
  if (epilogue.addend != nullptr) {
    sum = hn::Add(sum, lanes.Load(epilogue.addend + pixel * epilogue.addend_stride + at));
  }
  if (epilogue.clamps) {
    const auto low = hn::Set(d, epilogue.low);
    const auto high = hn::Set(d, epilogue.high);
    sum = hn::IfThenElse(hn::Lt(sum, low), low, sum);
    sum = hn::IfThenElse(hn::Gt(sum, high), high, sum);
  }
  return sum;
}

// kPixels pixels from `pixel` on, by the columns of one panel, of which `columns` are there. kAsks: the next panel,
// which may come from far away, is asked for meanwhile.
template <int kPixels, bool kAsks>
HWY_ATTR void Tile(const PixelBlock& block, int64_t pixel, const float* panel, int64_t at, int64_t columns) {
  constexpr int kVectors = 2;
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum[kPixels][kVectors];
  for (int i = 0; i < kPixels; ++i) {
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  // What the end of the tile will touch comes while the tile is computed.
  for (int i = 0; i < kPixels; ++i) __builtin_prefetch(block.out + (pixel + i) * block.out_stride + at, 1);
  if (block.is_last && block.epilogue.addend != nullptr) {
    const PixelEpilogue& epilogue = block.epilogue;
    for (int i = 0; i < kPixels; ++i) __builtin_prefetch(epilogue.addend + (pixel + i) * epilogue.addend_stride + at);
  }
  const float* const* rows = block.rows + pixel;
  const int64_t depth = block.depth;
  const int64_t next = block.taps * depth * kVectors * lanes;
  for (int64_t t = 0; t < block.taps; ++t, rows += block.row_stride) {
    const float* row[kPixels];
    for (int i = 0; i < kPixels; ++i) row[i] = rows[i] + block.first;
    for (int64_t k = 0; k < depth; ++k, panel += kVectors * lanes) {
      if (kAsks) __builtin_prefetch(panel + next);
      Vector columns_of_k[kVectors];
      for (int v = 0; v < kVectors; ++v) columns_of_k[v] = hn::LoadU(d, panel + v * lanes);
      for (int i = 0; i < kPixels; ++i) {
        const auto value = hn::Set(d, row[i][k]);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(value, columns_of_k[v], sum[i][v]);
      }
    }
  }
  const auto store = [&](int v, auto some) HWY_ATTR {
    for (int i = 0; i < kPixels; ++i) {
      float* const to = block.out + (pixel + i) * block.out_stride + at + v * lanes;
      Vector total = sum[i][v];
      if (block.accumulates) total = hn::Add(some.Load(to), total);
      if (block.is_last) total = Finish(total, block.epilogue, pixel + i, at + v * lanes, some);
      some.Store(total, to);
    }
  };
  for (int v = 0; v < kVectors; ++v) {
    if (columns >= kVectors * lanes) {
      store(v, AllLanes());
    } else {
      store(v, FirstLanes{columns - v * lanes});
    }
  }
}

using TileFn = void (*)(const PixelBlock& block, int64_t pixel, const float* panel, int64_t at, int64_t columns);

HWY_ATTR void Multiply(const PixelBlock& block) {
  static constexpr TileFn kTiles[][2] = {
    {Tile<1, false>, Tile<1, true>},
    {Tile<2, false>, Tile<2, true>},
    {Tile<3, false>, Tile<3, true>},
    {Tile<4, false>, Tile<4, true>},
    {Tile<5, false>, Tile<5, true>},
    {Tile<6, false>, Tile<6, true>},
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4
    {Tile<7, false>, Tile<7, true>},
    {Tile<8, false>, Tile<8, true>},
    {Tile<9, false>, Tile<9, true>},
    {Tile<10, false>, Tile<10, true>},
    {Tile<11, false>, Tile<11, true>},
    {Tile<12, false>, Tile<12, true>},
#endif
  };
  const auto width = 2 * static_cast<int64_t>(hn::Lanes(Floats()));
  // Tiles of nearly equal size: a rest of one pixel would take as long as one of four.
  const int64_t tiles = (block.pixels + kMostPixels - 1) / kMostPixels;
  const float* panel = block.panels;
  for (int64_t at = 0; at < block.columns; at += width, panel += block.taps * block.depth * width) {
    const int64_t columns = std::min(width, block.columns - at);
    int64_t pixel = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t end = block.pixels * (tile + 1) / tiles;
      kTiles[end - pixel - 1][tile == 0 && at + width < block.columns ? 1 : 0](block, pixel, panel, at, columns);
      pixel = end;
    }
  }
}

template <int kPixels, int kVectors, class Some>
HWY_ATTR void Strip(const PlanePixels& block, int64_t pixel, int64_t at, Some some) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum[kPixels][kVectors];
  for (int i = 0; i < kPixels; ++i) {
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  const float* const* rows = block.rows + pixel;
  const float* weight = block.weights + at;
  for (int64_t t = 0; t < block.taps; ++t, rows += block.row_stride, weight += block.channels) {
    Vector factor[kVectors];
    for (int v = 0; v < kVectors; ++v) factor[v] = some.Load(weight + v * lanes);
    for (int i = 0; i < kPixels; ++i) {
      const float* const row = rows[i] + at;
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(some.Load(row + v * lanes), factor[v], sum[i][v]);
    }
  }
  for (int i = 0; i < kPixels; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      float* const to = block.out + (pixel + i) * block.out_stride + at + v * lanes;
      some.Store(Finish(sum[i][v], block.epilogue, pixel + i, at + v * lanes, some), to);
    }
  }
}

template <int kPixels>
HWY_ATTR void Filter(const PlanePixels& block, int64_t pixel) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t at = 0;
  for (; at + 2 * lanes <= block.channels; at += 2 * lanes) Strip<kPixels, 2>(block, pixel, at, AllLanes());
  for (; at + lanes <= block.channels; at += lanes) Strip<kPixels, 1>(block, pixel, at, AllLanes());
  if (at < block.channels) Strip<kPixels, 1>(block, pixel, at, FirstLanes{block.channels - at});
}

HWY_ATTR void FilterAll(const PlanePixels& block) {
  int64_t pixel = 0;
  for (; pixel + 4 <= block.pixels; pixel += 4) Filter<4>(block, pixel);
  for (; pixel < block.pixels; ++pixel) Filter<1>(block, pixel);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(Multiply);
HWY_EXPORT(FilterAll);

void MultiplyPixels(const PixelBlock& block) { HWY_DYNAMIC_DISPATCH(Multiply)(block); }
void FilterPixels(const PlanePixels& block) { HWY_DYNAMIC_DISPATCH(FilterAll)(block); }

}  // namespace reprise::kernels::simd
#endif
