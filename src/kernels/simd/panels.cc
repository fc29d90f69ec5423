// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/panels.h"

#include <algorithm>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/panels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;

int64_t Width() { return 2 * static_cast<int64_t>(hn::Lanes(Floats())); }

// Exchanges rows and columns of kLines x kLines elements; `to` has rows of `to_stride`.
#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
constexpr int64_t kLines = 8;

template <class B>
HWY_INLINE HWY_ATTR void ExchangeBlock(const B* from, int64_t stride, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 8> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  using Vec = hn::Vec<decltype(d)>;
  Vec pairs[8];
  for (int i = 0; i < 4; ++i) {
    const Vec a = Widen(d, from + 2 * i * stride);
    const Vec b = Widen(d, from + (2 * i + 1) * stride);
    pairs[2 * i] = hn::InterleaveLower(d, a, b);
    pairs[2 * i + 1] = hn::InterleaveUpper(d, a, b);
  }
  Vec quads[8];  // [half][column of the half]
  for (int half = 0; half < 2; ++half) {
    for (int upper = 0; upper < 2; ++upper) {
      const auto a = hn::BitCast(wide, pairs[4 * half + upper]);
      const auto b = hn::BitCast(wide, pairs[4 * half + 2 + upper]);
      quads[4 * half + 2 * upper] = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
      quads[4 * half + 2 * upper + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
    }
  }
  for (int i = 0; i < 4; ++i) {
    hn::StoreU(hn::ConcatLowerLower(d, quads[4 + i], quads[i]), d, to + i * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, quads[4 + i], quads[i]), d, to + (4 + i) * to_stride);
  }
}
#else
constexpr int64_t kLines = 4;

template <class B>
HWY_INLINE HWY_ATTR void ExchangeBlock(const B* from, int64_t stride, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < kLines; ++i) {
    for (int64_t j = 0; j < kLines; ++j) to[j * to_stride + i] = static_cast<float>(from[i * stride + j]);
  }
}
#endif

template <class B>
HWY_ATTR void Columns(const B* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  const int64_t width = Width();
  int64_t lane = 0;
  for (; lane + kLines <= lanes; lane += kLines) {
    const B* const from = source + lane * stride;
    float* const to = panel + lane;
    int64_t k = 0;
    for (; k + kLines <= depth; k += kLines) ExchangeBlock(from + k, stride, to + k * width, width);
    for (; k < depth; ++k) {
      for (int64_t l = 0; l < kLines; ++l) to[k * width + l] = static_cast<float>(from[l * stride + k]);
    }
  }
  if (lane == width) return;
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t l = lane; l < width; ++l) {
      panel[k * width + l] = l < lanes ? static_cast<float>(source[l * stride + k]) : 0.0f;
    }
  }
}

template <class B>
HWY_ATTR void Rows(const B* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  const Floats d;
  const auto half = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = Width();
  const int64_t whole = lanes / width * width;
  for (int64_t k = 0; k < depth; ++k) {
    const B* const from = source + k * stride;
    float* to = panels + k * width;
    for (int64_t lane = 0; lane < whole; lane += width, to += width * depth) {
      hn::StoreU(Widen(d, from + lane), d, to);
      hn::StoreU(Widen(d, from + lane + half), d, to + half);
    }
    if (whole == lanes) continue;
    for (int64_t l = 0; l < width; ++l) to[l] = whole + l < lanes ? static_cast<float>(from[whole + l]) : 0.0f;
  }
}

HWY_ATTR void ScaleAdd(float* row, float alpha, const float* addend, float beta, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, alpha);
  const auto other = hn::Set(d, beta);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const auto sum = hn::Add(hn::Mul(factor, hn::LoadU(d, row + j)), hn::Mul(other, hn::LoadU(d, addend + j)));
    hn::StoreU(sum, d, row + j);
  }
  for (; j < n; ++j) {
    const float scaled = alpha * row[j];
    row[j] = scaled + beta * addend[j];
  }
}

HWY_ATTR void FloatColumns(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  Columns(source, stride, lanes, depth, panel);
}
HWY_ATTR void HalfColumns(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  Columns(source, stride, lanes, depth, panel);
}
HWY_ATTR void BFloat16Columns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  Columns(source, stride, lanes, depth, panel);
}
HWY_ATTR void FloatRows(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  Rows(source, stride, lanes, depth, panels);
}
HWY_ATTR void HalfRows(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  Rows(source, stride, lanes, depth, panels);
}
HWY_ATTR void BFloat16Rows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  Rows(source, stride, lanes, depth, panels);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FloatColumns);
HWY_EXPORT(HalfColumns);
HWY_EXPORT(BFloat16Columns);
HWY_EXPORT(FloatRows);
HWY_EXPORT(HalfRows);
HWY_EXPORT(BFloat16Rows);
HWY_EXPORT(ScaleAdd);

void PanelOfColumns(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  HWY_DYNAMIC_DISPATCH(FloatColumns)(source, stride, lanes, depth, panel);
}
void PanelOfColumns(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  HWY_DYNAMIC_DISPATCH(HalfColumns)(source, stride, lanes, depth, panel);
}
void PanelOfColumns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panel) {
  HWY_DYNAMIC_DISPATCH(BFloat16Columns)(source, stride, lanes, depth, panel);
}

void PanelsOfRows(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(FloatRows)(source, stride, lanes, depth, panels);
}
void PanelsOfRows(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(HalfRows)(source, stride, lanes, depth, panels);
}
void PanelsOfRows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(BFloat16Rows)(source, stride, lanes, depth, panels);
}

void ScaleAddRow(float* row, float alpha, const float* addend, float beta, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleAdd)(row, alpha, addend, beta, n);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
