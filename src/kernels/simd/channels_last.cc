// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/channels_last.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/channels_last.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/channel_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

constexpr int64_t kLine = 16;  // float32 of a cache line
// Elements of panels that go through the first-level cache together.
constexpr int64_t kElementsAtOnce = 6 << 10;

// ---- Products over channels ----

// Sums of one vector of columns, from column `at` on.
template <int kPixels, class Some>
HWY_INLINE HWY_ATTR void Store(const PixelBlock& block, int64_t pixel, int64_t at, Vector (&sums)[kPixels], Some some) {
  float* const first = block.out + pixel * block.out_stride + at;
  if (block.accumulates) {
    const float* from = first;
#pragma GCC unroll 16
    for (int i = 0; i < kPixels; ++i, from += block.out_stride) sums[i] = hn::Add(some.Load(from), sums[i]);
  }
  if (block.is_last) Finish(block.epilogue, at, some).Apply(sums, pixel);
  float* to = first;
#pragma GCC unroll 16
  for (int i = 0; i < kPixels; ++i, to += block.out_stride) some.Store(sums[i], to);
}

template <int kPixels>
HWY_INLINE HWY_ATTR bool AreAll(const float* const* rows, const float* row) {
  for (int i = 0; i < kPixels; ++i) {
    if (rows[i] != row) return false;
  }
  return true;
}

// kPixels pixels from `pixel` on, by kVectors vectors of columns of one panel, from column `at` on. kAsks: `ask` is
// fetched meanwhile, as many lines as there are rows in the panel.
template <int kPixels, int kVectors, bool kAsks>
HWY_ATTR void Tile(const PixelBlock& block, int64_t pixel, const float* panel, int64_t at, const float* ask) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum[kVectors][kPixels];
  for (int v = 0; v < kVectors; ++v) {
    for (int i = 0; i < kPixels; ++i) sum[v][i] = hn::Zero(d);
  }
  // What the end of the next tile will touch comes while this one is computed.
  for (int i = 0; i < kPixels; ++i) {
    const float* const to = block.out + (pixel + kPixels + i) * block.out_stride + at;
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(to + v * lanes, 1);
  }
  if (block.is_last && block.epilogue.addend != nullptr) {
    const PixelEpilogue& epilogue = block.epilogue;
    for (int i = 0; i < kPixels; ++i) {
      const float* const from = epilogue.addend + (pixel + i) * epilogue.addend_stride + at;
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(from + v * lanes);
    }
  }
  const float* const* rows = block.rows + pixel;
  const int64_t depth = block.depth;
  for (int64_t t = 0; t < block.taps; ++t, rows += block.row_stride) {
    if (block.zeros != nullptr && AreAll<kPixels>(rows, block.zeros)) {
      panel += depth * 2 * lanes;
      continue;
    }
    const float* row[kPixels];
    for (int i = 0; i < kPixels; ++i) row[i] = rows[i] + block.first;
    for (int64_t k = 0; k < depth; ++k, panel += 2 * lanes) {
      if (kAsks) {
        __builtin_prefetch(ask, 0, 2);
        ask += kLine;
      }
      Vector columns_of_k[kVectors];
      for (int v = 0; v < kVectors; ++v) columns_of_k[v] = hn::LoadU(d, panel + v * lanes);
      for (int i = 0; i < kPixels; ++i) {
        const auto value = hn::Set(d, row[i][k]);
        for (int v = 0; v < kVectors; ++v) sum[v][i] = hn::MulAdd(value, columns_of_k[v], sum[v][i]);
      }
    }
  }
  if (block.zeros != nullptr) {
    // A product that is too small for a number may have left -0, which another zero would have made 0.
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
      for (int i = 0; i < kPixels; ++i) sum[v][i] = hn::Add(sum[v][i], hn::Zero(d));
    }
  }
  const int64_t columns = block.columns - at;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    if (columns >= (v + 1) * lanes) {
      Store(block, pixel, at + v * lanes, sum[v], AllLanes());
    } else {
      Store(block, pixel, at + v * lanes, sum[v], FirstLanes(columns - v * lanes));
    }
  }
}

using TileFn = void (*)(const PixelBlock& block, int64_t pixel, const float* panel, int64_t at, const float* ask);

struct TilesOfHeight {
  TileFn half, whole, asking;  // one vector of columns; two; two, and what comes next is fetched
};
template <int kPixels>
constexpr TilesOfHeight kTilesOf = {Tile<kPixels, 1, false>, Tile<kPixels, 2, false>, Tile<kPixels, 2, true>};

HWY_ATTR void Multiply(const PixelBlock& block) {
  // With two vectors of columns they leave registers for a row of the panel and a factor.
  static constexpr TilesOfHeight kTiles[] = {
    kTilesOf<1>,
    kTilesOf<2>,
    kTilesOf<3>,
    kTilesOf<4>,
    kTilesOf<5>,
    kTilesOf<6>,
#if REPRISE_HAS_32_VECTORS
    kTilesOf<7>,
    kTilesOf<8>,
    kTilesOf<9>,
    kTilesOf<10>,
    kTilesOf<11>,
    kTilesOf<12>,
#endif
  };
  constexpr auto kMostPixels = static_cast<int64_t>(std::size(kTiles));
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const int64_t width = 2 * lanes;
  // Tiles of nearly equal size: a rest of one pixel would take as long as one of four.
  const int64_t tiles = (block.pixels + kMostPixels - 1) / kMostPixels;
  const int64_t panel_elements = block.taps * block.depth * width;
  const int64_t panels = (block.columns + width - 1) / width;
  const int64_t at_once = std::max<int64_t>(1, kElementsAtOnce / panel_elements);
  const int64_t asking_tiles = (width + kLine - 1) / kLine;  // each of them asks for a line in each row
  for (int64_t first = 0; first < panels; first += at_once) {
    const int64_t last = std::min(first + at_once, panels);
    const float* const next = last < panels ? block.panels + last * panel_elements : block.next;
    int64_t pixel = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t end = block.pixels * (tile + 1) / tiles;
      const TilesOfHeight& fns = kTiles[end - pixel - 1];
      for (int64_t p = first; p < last; ++p) {
        const float* const panel = block.panels + p * panel_elements;
        const int64_t at = p * width;
        if (block.columns - at <= lanes) {
          fns.half(block, pixel, panel, at, nullptr);
        } else if (next != nullptr && at_once == 1 && tile < asking_tiles) {
          fns.asking(block, pixel, panel, at, next + tile * block.taps * block.depth * kLine);
        } else {
          fns.whole(block, pixel, panel, at, nullptr);
        }
      }
      pixel = end;
    }
  }
}

// ---- Each channel by itself ----

// kKernel, kStep: columns of the kernel and of the input from one pixel to the next, which share what they load; 0:
// any.
template <int kPixels, int kVectors, int kKernel, int kStep, class Some>
HWY_INLINE HWY_ATTR void Strip(const PlanePixels& block, int64_t pixel, int64_t at, Some some) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum[kVectors][kPixels];
  for (int v = 0; v < kVectors; ++v) {
    for (int i = 0; i < kPixels; ++i) sum[v][i] = hn::Zero(d);
  }
  const float* const* rows = block.rows + pixel * block.pixel_step;
  const float* weight = block.weights + at;
  for (int64_t y = 0; y < block.kernel_h; ++y, rows += block.row_stride) {
    if constexpr (kKernel != 0) {
      Vector factor[kKernel][kVectors];
      for (int x = 0; x < kKernel; ++x, weight += block.channels) {
        for (int v = 0; v < kVectors; ++v) factor[x][v] = some.Load(weight + v * lanes);
      }
#pragma GCC unroll 32
      for (int column = 0; column < (kPixels - 1) * kStep + kKernel; ++column) {
        const float* const from = rows[column] + at;
        Vector value[kVectors];
        for (int v = 0; v < kVectors; ++v) value[v] = some.Load(from + v * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < kPixels; ++i) {
          const int x = column - i * kStep;
          if (x < 0 || x >= kKernel) continue;
          for (int v = 0; v < kVectors; ++v) sum[v][i] = hn::MulAdd(value[v], factor[x][v], sum[v][i]);
        }
      }
    } else {
      for (int64_t x = 0; x < block.kernel_w; ++x, weight += block.channels) {
        Vector factor[kVectors];
        for (int v = 0; v < kVectors; ++v) factor[v] = some.Load(weight + v * lanes);
        for (int i = 0; i < kPixels; ++i) {
          const float* const from = rows[i * block.pixel_step + x * block.tap_step] + at;
          for (int v = 0; v < kVectors; ++v) sum[v][i] = hn::MulAdd(some.Load(from + v * lanes), factor[v], sum[v][i]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    Finish(block.epilogue, at + v * lanes, some).Apply(sum[v], pixel);
    float* to = block.out + pixel * block.out_stride + at + v * lanes;
#pragma GCC unroll 16
    for (int i = 0; i < kPixels; ++i, to += block.out_stride) some.Store(sum[v][i], to);
  }
}

template <int kPixels, int kKernel, int kStep>
HWY_ATTR void Filter(const PlanePixels& block, int64_t pixel) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t at = 0;
  for (; at + 2 * lanes <= block.channels; at += 2 * lanes) {
    Strip<kPixels, 2, kKernel, kStep>(block, pixel, at, AllLanes());
  }
  for (; at + lanes <= block.channels; at += lanes) Strip<kPixels, 1, kKernel, kStep>(block, pixel, at, AllLanes());
  if (at < block.channels) {
    Strip<kPixels, 1, kKernel, kStep>(block, pixel, at, FirstLanes(block.channels - at));
  }
}

template <int kKernel, int kStep>
HWY_ATTR void FilterRow(const PlanePixels& block) {
  int64_t pixel = 0;
#if REPRISE_HAS_32_VECTORS
  // Rows of pictures are multiples of seven more often than not.
  for (; pixel + 7 <= block.pixels; pixel += 7) Filter<7, kKernel, kStep>(block, pixel);
#endif
  for (; pixel + 4 <= block.pixels; pixel += 4) Filter<4, kKernel, kStep>(block, pixel);
  for (; pixel + 2 <= block.pixels; pixel += 2) Filter<2, kKernel, kStep>(block, pixel);
  for (; pixel < block.pixels; ++pixel) Filter<1, kKernel, kStep>(block, pixel);
}

HWY_ATTR void FilterAll(const PlanePixels& block) {
  const bool is_near = block.tap_step == 1;
  if (is_near && block.kernel_w == 3 && block.pixel_step == 1) return FilterRow<3, 1>(block);
  if (is_near && block.kernel_w == 3 && block.pixel_step == 2) return FilterRow<3, 2>(block);
  if (is_near && block.kernel_w == 5 && block.pixel_step == 1) return FilterRow<5, 1>(block);
  FilterRow<0, 0>(block);
}

// ---- Pools ----

template <int kVectors, class Some>
HWY_INLINE HWY_ATTR void LargestAt(const float* const* pixels, int64_t count, int64_t at, float* out, Some some) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector best[kVectors];
  for (int v = 0; v < kVectors; ++v) best[v] = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < count; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector x = some.Load(pixels[i] + at + v * lanes);
      // Larger or NaN.
      best[v] = hn::IfThenElse(hn::Or(hn::Gt(x, best[v]), hn::IsNaN(x)), x, best[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) some.Store(best[v], out + at + v * lanes);
}

HWY_ATTR void Largest(const float* const* pixels, int64_t count, int64_t channels, float* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t at = 0;
  for (; at + 4 * lanes <= channels; at += 4 * lanes) LargestAt<4>(pixels, count, at, out, AllLanes());
  for (; at + lanes <= channels; at += lanes) LargestAt<1>(pixels, count, at, out, AllLanes());
  if (at < channels) LargestAt<1>(pixels, count, at, out, FirstLanes(channels - at));
}

// ---- Sums of what taps gave ----

template <int kFours>
HWY_ATTR void SumFours(const TapSums& block) {
  const hn::CappedTag<float, 4> d;
  constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int64_t kVectors = 4 * kFours / lanes;
  const auto bytes = static_cast<size_t>(block.columns) * sizeof(float);
  float* to = block.out;
  int64_t place = 0;
  for (int64_t p = 0; p < block.pixels; ++p, place += block.step, to += block.out_step) {
    hn::Vec<hn::CappedTag<float, 4>> sum[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
    for (int64_t t = 0; t < block.count; ++t) {
      const float* const from = block.taps[t] + place;
      for (int64_t v = 0; v < kVectors; ++v) sum[v] = hn::Add(sum[v], hn::LoadU(d, from + v * lanes));
    }
    alignas(16) float all[4 * kFours];
    for (int64_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, all + v * lanes);
    std::memcpy(to, all, bytes);
  }
}

HWY_ATTR void SumAllTaps(const TapSums& block) { block.columns > 4 ? SumFours<2>(block) : SumFours<1>(block); }

// ---- What follows sums that are there ----

template <class Lanes>
HWY_INLINE HWY_ATTR void FinishColumns(const FinishedPixels& block, int64_t at, Lanes lanes) {
  const Finish finish(block.epilogue, at, lanes);
  const float* from = block.in + at;
  float* to = block.out + at;
  for (int64_t p = 0; p < block.pixels; ++p, from += block.stride, to += block.stride) {
    lanes.Store(finish(lanes.Load(from), p), to);
  }
}

HWY_ATTR void FinishAll(const FinishedPixels& block) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t at = 0;
  for (; at + lanes <= block.columns; at += lanes) FinishColumns(block, at, AllLanes());
  if (at < block.columns) FinishColumns(block, at, FirstLanes(block.columns - at));
}

// ---- Factors of channels ----

template <class Some>
HWY_INLINE HWY_ATTR void ScaleAt(const ScaledPixels& block, int64_t place, int64_t channel, Some some) {
  some.Store(hn::Mul(some.Load(block.in + place + channel), some.Load(block.factors + channel)),
             block.out + place + channel);
}

HWY_ATTR void ScaleAll(const ScaledPixels& block) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const int64_t channels = block.channels;
  for (int64_t place = 0; place < block.pixels * channels; place += channels) {
    int64_t channel = 0;
    for (; channel + lanes <= channels; channel += lanes) ScaleAt(block, place, channel, AllLanes());
    if (channel < channels) ScaleAt(block, place, channel, FirstLanes(channels - channel));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(Multiply);
HWY_EXPORT(FilterAll);
HWY_EXPORT(FinishAll);
HWY_EXPORT(SumAllTaps);
HWY_EXPORT(Largest);
HWY_EXPORT(ScaleAll);

void MultiplyPixels(const PixelBlock& block) { HWY_DYNAMIC_DISPATCH(Multiply)(block); }
void FilterPixels(const PlanePixels& block) { HWY_DYNAMIC_DISPATCH(FilterAll)(block); }
void ScalePixels(const ScaledPixels& block) { HWY_DYNAMIC_DISPATCH(ScaleAll)(block); }
void SumTaps(const TapSums& block) { HWY_DYNAMIC_DISPATCH(SumAllTaps)(block); }
void FinishPixels(const FinishedPixels& block) { HWY_DYNAMIC_DISPATCH(FinishAll)(block); }
void LargestOfPixels(const float* const* pixels, int64_t count, int64_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(Largest)(pixels, count, channels, out);
}

}  // namespace reprise::kernels::simd
#endif
