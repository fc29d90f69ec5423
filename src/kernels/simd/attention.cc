// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/fold_lanes-inl.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::Rebind<int32_t, FloatTag>;

HWY_ATTR int64_t WidthTarget() { return 2 * static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Keys four at a time: their rows are read forwards and the panel is written in runs of four.
HWY_ATTR void PackKeysTarget(const float* keys, int64_t stride, int64_t count, int64_t depth, float* panels) {
  constexpr int64_t kStep = 4;
  const int64_t width = WidthTarget();
  const int64_t padded = (count + width - 1) / width * width;
  const int64_t step = std::min(kStep, width);
  for (int64_t j = 0; j < padded; j += step) {
    float* column = panels + j / width * width * depth + j % width;
    const float* row = keys + j * stride;
    const int64_t have = std::clamp<int64_t>(count - j, 0, step);
    int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::CappedTag<float, kStep> d4;
    const hn::Repartition<uint64_t, decltype(d4)> wide;
    for (; have == kStep && k + kStep <= depth; k += kStep) {
      const auto a = hn::LoadU(d4, row + k);
      const auto b = hn::LoadU(d4, row + stride + k);
      const auto c = hn::LoadU(d4, row + 2 * stride + k);
      const auto e = hn::LoadU(d4, row + 3 * stride + k);
      const auto ab_low = hn::BitCast(wide, hn::InterleaveLower(d4, a, b));
      const auto ab_high = hn::BitCast(wide, hn::InterleaveUpper(d4, a, b));
      const auto ce_low = hn::BitCast(wide, hn::InterleaveLower(d4, c, e));
      const auto ce_high = hn::BitCast(wide, hn::InterleaveUpper(d4, c, e));
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(wide, ab_low, ce_low)), d4, column + k * width);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(wide, ab_low, ce_low)), d4, column + (k + 1) * width);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(wide, ab_high, ce_high)), d4, column + (k + 2) * width);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(wide, ab_high, ce_high)), d4, column + (k + 3) * width);
    }
#endif
    for (; k < depth; ++k) {
      for (int64_t l = 0; l < step; ++l) column[k * width + l] = l < have ? row[l * stride + k] : 0.0f;
    }
  }
}

HWY_ATTR void PackValuesTarget(const float* values, int64_t stride, int64_t count, int64_t depth, float* panels) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = 2 * lanes;
  for (int64_t k = 0; k < count; ++k) {
    const float* row = values + k * stride;
    int64_t j = 0;
    for (; j + width <= depth; j += width) {
      float* to = panels + j * count + k * width;
      hn::StoreU(hn::LoadU(d, row + j), d, to);
      hn::StoreU(hn::LoadU(d, row + j + lanes), d, to + lanes);
    }
    if (j == depth) continue;
    float* to = panels + j * count + k * width;
    for (int64_t l = 0; l < width; ++l) to[l] = j + l < depth ? row[j + l] : 0.0f;
  }
}

// kRows x 2 vectors of c stay in registers over the whole depth.
template <int kRows>
HWY_ATTR void Tile(const float* left, int64_t left_stride, const float* panel, int64_t depth, float* c,
                   int64_t c_stride, bool accumulates) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sum[kRows][2];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2; ++v) sum[i][v] = accumulates ? hn::LoadU(d, c + i * c_stride + v * lanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const FloatVec first = hn::LoadU(d, panel);
    const FloatVec second = hn::LoadU(d, panel + lanes);
    for (int i = 0; i < kRows; ++i) {
      const FloatVec value = hn::Set(d, left[i * left_stride + k]);
      sum[i][0] = hn::MulAdd(value, first, sum[i][0]);
      sum[i][1] = hn::MulAdd(value, second, sum[i][1]);
    }
    panel += 2 * lanes;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2; ++v) hn::StoreU(sum[i][v], d, c + i * c_stride + v * lanes);
  }
}

HWY_ATTR void MultiplyPanelsTarget(const float* left, int64_t left_stride, int64_t rows, const float* panels,
                                   int64_t depth, int64_t cols, float* c, int64_t c_stride, bool accumulates,
                                   const PanelEnds& ends) {
  using TileFn = void (*)(const float*, int64_t, const float*, int64_t, float*, int64_t, bool);
  static constexpr int64_t kHeight = 6;
  static constexpr TileFn kTiles[kHeight] = {Tile<1>, Tile<2>, Tile<3>, Tile<4>, Tile<5>, Tile<6>};
  const int64_t width = WidthTarget();
  for (int64_t j = 0; j < cols; j += width) {
    const float* panel = panels + j * depth;
    for (int64_t i = 0; i < rows; i += kHeight) {
      const int64_t height = std::min(kHeight, rows - i);
      const auto most = [&](const int32_t* of, int64_t all) {
        return of == nullptr ? all : std::min<int64_t>(all, *std::max_element(of + i, of + i + height));
      };
      if (j >= most(ends.cols, cols)) continue;
      kTiles[height - 1](left + i * left_stride, left_stride, panel, most(ends.depth, depth), c + i * c_stride + j,
                         c_stride, accumulates);
    }
  }
}

// kRows queries against kKeys keys, a multiple of four, `count` of which are there. Each score is a chain of its own
// for each lane.
template <int kRows, int kKeys, class B>
HWY_INLINE HWY_ATTR void DotTile(const float* queries, int64_t query_stride, const B* keys, int64_t key_stride,
                                 int64_t count, int64_t depth, float* scores, int64_t score_stride) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const B* at[kKeys];
  for (int64_t s = 0; s < kKeys; ++s) at[s] = keys + std::min(s, count - 1) * key_stride;
  FloatVec sum[kRows][kKeys];
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kKeys; ++s) sum[r][s] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    FloatVec query[kRows];
    for (int r = 0; r < kRows; ++r) query[r] = hn::LoadU(d, queries + r * query_stride + k);
    for (int s = 0; s < kKeys; ++s) {
      const FloatVec key = Widen(d, at[s] + k);
      for (int r = 0; r < kRows; ++r) sum[r][s] = hn::MulAdd(key, query[r], sum[r][s]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float totals[kKeys];
    for (int s = 0; s < kKeys; s += 4) FoldFour(d, sum[r] + s, totals + s);
    for (int64_t s = 0; s < count; ++s) {
      float total = totals[s];
      for (int64_t rest = k; rest < depth; ++rest) {
        total += static_cast<float>(at[s][rest]) * queries[r * query_stride + rest];
      }
      scores[r * score_stride + s] = total;
    }
  }
}

template <int kRows, int kKeys, class B>
HWY_ATTR void DotRows(const float* queries, int64_t query_stride, const B* keys, int64_t key_stride, int64_t count,
                      int64_t depth, float* scores, int64_t score_stride) {
  int64_t j = 0;
  for (; j + kKeys <= count; j += kKeys) {
    DotTile<kRows, kKeys>(queries, query_stride, keys + j * key_stride, key_stride, kKeys, depth, scores + j,
                          score_stride);
  }
  if (j < count) {
    DotTile<kRows, kKeys>(queries, query_stride, keys + j * key_stride, key_stride, count - j, depth, scores + j,
                          score_stride);
  }
}

// As many sums as there are registers for.
#if HWY_TARGET == HWY_AVX3
constexpr int kMostRows = 4, kKeysOfOne = 8, kVectorsOfOne = 8;
#else
constexpr int kMostRows = 2, kKeysOfOne = 4, kVectorsOfOne = 4;
#endif

template <class B>
HWY_ATTR void Dot(const float* queries, int64_t query_stride, int64_t rows, const B* keys, int64_t key_stride,
                  int64_t count, int64_t depth, float* scores, int64_t score_stride) {
  int64_t r = 0;
  for (; r + kMostRows <= rows; r += kMostRows) {
    DotRows<kMostRows, 4>(queries + r * query_stride, query_stride, keys, key_stride, count, depth,
                          scores + r * score_stride, score_stride);
  }
  for (; r < rows; ++r) {
    DotRows<1, kKeysOfOne>(queries + r * query_stride, query_stride, keys, key_stride, count, depth,
                           scores + r * score_stride, score_stride);
  }
}

// kRows x kVectors vectors of out stay in registers over all values.
template <int kRows, int kVectors, class B>
HWY_INLINE HWY_ATTR void AddTile(const float* weights, int64_t weight_stride, const B* values, int64_t value_stride,
                                 int64_t count, float* out, int64_t out_stride) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(d, out + r * out_stride + v * lanes);
  }
  for (int64_t j = 0; j < count; ++j) {
    FloatVec value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = Widen(d, values + j * value_stride + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, weights[r * weight_stride + j]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * out_stride + v * lanes);
  }
}

template <int kRows, int kVectors, class B>
HWY_ATTR void AddRows(const float* weights, int64_t weight_stride, const B* values, int64_t value_stride, int64_t count,
                      int64_t depth, float* out, int64_t out_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t k = 0;
  for (; k + kVectors * lanes <= depth; k += kVectors * lanes) {
    AddTile<kRows, kVectors>(weights, weight_stride, values + k, value_stride, count, out + k, out_stride);
  }
  for (; k + lanes <= depth; k += lanes) {
    AddTile<kRows, 1>(weights, weight_stride, values + k, value_stride, count, out + k, out_stride);
  }
  for (; k < depth; ++k) {
    for (int r = 0; r < kRows; ++r) {
      float& to = out[r * out_stride + k];
      for (int64_t j = 0; j < count; ++j) {
        to += weights[r * weight_stride + j] * static_cast<float>(values[j * value_stride + k]);
      }
    }
  }
}

template <class B>
HWY_ATTR void Add(const float* weights, int64_t weight_stride, int64_t rows, const B* values, int64_t value_stride,
                  int64_t count, int64_t depth, float* out, int64_t out_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t r = 0;
  for (; r + kMostRows <= rows; r += kMostRows) {
    AddRows<kMostRows, 4>(weights + r * weight_stride, weight_stride, values, value_stride, count, depth,
                          out + r * out_stride, out_stride);
  }
  for (; r < rows; ++r) {
    const auto run = depth < kVectorsOfOne * lanes ? AddRows<1, 4, B> : AddRows<1, kVectorsOfOne, B>;
    run(weights + r * weight_stride, weight_stride, values, value_stride, count, depth, out + r * out_stride,
        out_stride);
  }
}

#define REPRISE_ATTENTION_ROWS(type)                                                                             \
  HWY_ATTR void DotKeysOf##type(const float* queries, int64_t query_stride, int64_t rows, const type* keys,      \
                                int64_t key_stride, int64_t count, int64_t depth, float* scores,                 \
                                int64_t score_stride) {                                                          \
    Dot(queries, query_stride, rows, keys, key_stride, count, depth, scores, score_stride);                      \
  }                                                                                                              \
  HWY_ATTR void AddValuesOf##type(const float* weights, int64_t weight_stride, int64_t rows, const type* values, \
                                  int64_t value_stride, int64_t count, int64_t depth, float* out,                \
                                  int64_t out_stride) {                                                          \
    Add(weights, weight_stride, rows, values, value_stride, count, depth, out, out_stride);                      \
  }
REPRISE_ATTENTION_ROWS(float)
REPRISE_ATTENTION_ROWS(Half)
REPRISE_ATTENTION_ROWS(BFloat16)
#undef REPRISE_ATTENTION_ROWS

HWY_ATTR float MaxOfTarget(const float* x, int64_t n) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec greatest = hn::LoadU(d, x);
  for (int64_t i = lanes; i < n; i += lanes) greatest = hn::Max(greatest, hn::LoadU(d, x + i));
  return hn::GetLane(hn::MaxOfLanes(d, greatest));
}

// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2; the polynomial of rows.cc. x is at most 0 but for NaN and
// what rounding adds, so one power of two is enough. NaN comes through.
HWY_ATTR float ExpSumTarget(float* x, float shift, int64_t n) {
  const FloatTag d;
  const IntTag di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec offset = hn::Set(d, shift);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const FloatVec v = hn::Sub(hn::LoadU(d, x + i), offset);
    const FloatVec magic = hn::Set(d, 12582912.0f);
    const FloatVec biased = hn::MulAdd(v, hn::Set(d, 0x1.715476p+0f), magic);
    const FloatVec whole = hn::Sub(biased, magic);
    const auto exponent = hn::Sub(hn::BitCast(di, biased), hn::BitCast(di, magic));
    FloatVec r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), v);
    r = hn::NegMulAdd(whole, hn::Set(d, -0x1.bd0106p-13f), r);
    FloatVec q = hn::Set(d, 0x1.a12528p-13f);
    q = hn::MulAdd(q, r, hn::Set(d, 0x1.6d4362p-10f));
    q = hn::MulAdd(q, r, hn::Set(d, 0x1.1110e0p-7f));
    q = hn::MulAdd(q, r, hn::Set(d, 0x1.5554e8p-5f));
    q = hn::MulAdd(q, r, hn::Set(d, 0x1.555556p-3f));
    q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
    const FloatVec e = hn::Add(hn::MulAdd(hn::Mul(q, r), r, r), hn::Set(d, 1.0f));
    const FloatVec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
    FloatVec result = hn::Mul(e, power);
    result = hn::IfThenElse(hn::Lt(v, hn::Set(d, -87.0f)), hn::Zero(d), result);
    hn::StoreU(result, d, x + i);
    sum = hn::Add(sum, result);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_ATTR void ScaleRowTarget(float* x, float factor, int64_t n) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  for (; i < n; ++i) x[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(WidthTarget);
HWY_EXPORT(PackKeysTarget);
HWY_EXPORT(PackValuesTarget);
HWY_EXPORT(MultiplyPanelsTarget);
HWY_EXPORT(DotKeysOffloat);
HWY_EXPORT(DotKeysOfHalf);
HWY_EXPORT(DotKeysOfBFloat16);
HWY_EXPORT(AddValuesOffloat);
HWY_EXPORT(AddValuesOfHalf);
HWY_EXPORT(AddValuesOfBFloat16);
HWY_EXPORT(MaxOfTarget);
HWY_EXPORT(ExpSumTarget);
HWY_EXPORT(ScaleRowTarget);

int64_t AttentionPanelWidth() { return HWY_DYNAMIC_DISPATCH(WidthTarget)(); }

void PackKeys(const float* keys, int64_t stride, int64_t count, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackKeysTarget)(keys, stride, count, depth, panels);
}

void PackValues(const float* values, int64_t stride, int64_t count, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackValuesTarget)(values, stride, count, depth, panels);
}

void MultiplyPanels(const float* left, int64_t left_stride, int64_t rows, const float* panels, int64_t depth,
                    int64_t cols, float* c, int64_t c_stride, bool accumulates, const PanelEnds& ends) {
  HWY_DYNAMIC_DISPATCH(MultiplyPanelsTarget)
  (left, left_stride, rows, panels, depth, cols, c, c_stride, accumulates, ends);
}

void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const float* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(DotKeysOffloat)
  (queries, query_stride, rows, keys, key_stride, count, depth, scores, score_stride);
}
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const float* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(AddValuesOffloat)
  (weights, weight_stride, rows, values, value_stride, count, depth, out, out_stride);
}

void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const Half* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(DotKeysOfHalf)
  (queries, query_stride, rows, keys, key_stride, count, depth, scores, score_stride);
}
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const Half* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(AddValuesOfHalf)
  (weights, weight_stride, rows, values, value_stride, count, depth, out, out_stride);
}

void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const BFloat16* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride) {
  HWY_DYNAMIC_DISPATCH(DotKeysOfBFloat16)
  (queries, query_stride, rows, keys, key_stride, count, depth, scores, score_stride);
}
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const BFloat16* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(AddValuesOfBFloat16)
  (weights, weight_stride, rows, values, value_stride, count, depth, out, out_stride);
}

float MaxOf(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(MaxOfTarget)(x, n); }

float ExpSum(float* x, float shift, int64_t n) { return HWY_DYNAMIC_DISPATCH(ExpSumTarget)(x, shift, n); }

void ScaleRow(float* x, float factor, int64_t n) { HWY_DYNAMIC_DISPATCH(ScaleRowTarget)(x, factor, n); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
