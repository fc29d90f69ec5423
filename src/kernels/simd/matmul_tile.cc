// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/matmul_tile.h"

#include <algorithm>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/matmul_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 64 bytes hold the widest vector; two vectors make one panel.
template <class T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;

// kRows x kVectors vectors of c stay in registers over the whole depth.
template <int kRows, int kVectors, class T>
HWY_ATTR void Tile(const T* left, const T* right, int64_t right_stride, T* c, int64_t c_stride, int64_t depth,
                   bool accumulates) {
  const Tag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<Tag<T>> sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<Tag<T>> columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, right + v * lanes);
    for (int i = 0; i < kRows; ++i) {
      const auto value = hn::Set(d, left[i]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(value, columns[v], sum[i][v]);
    }
    left += kPanelHeight;
    right += right_stride;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      T* to = c + i * c_stride + v * lanes;
      if (accumulates) sum[i][v] = hn::Add(hn::LoadU(d, to), sum[i][v]);
      hn::StoreU(sum[i][v], d, to);
    }
  }
}

template <class T>
using TileFn = void (*)(const T* left, const T* right, int64_t right_stride, T* c, int64_t c_stride, int64_t depth,
                        bool accumulates);

template <class T>
HWY_ATTR void Block(const T* left, RightPanels<T> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                    int64_t depth, bool accumulates) {
  static constexpr TileFn<T> kTiles[kPanelHeight] = {Tile<1, 2, T>, Tile<2, 2, T>, Tile<3, 2, T>,
                                                     Tile<4, 2, T>, Tile<5, 2, T>, Tile<6, 2, T>};
  const int64_t width = 2 * static_cast<int64_t>(hn::Lanes(Tag<T>()));
  int64_t j = 0;
  if (rows == 1 && right.panel_stride == width) {
    // Vector times matrix in place: wide tiles read longer runs of each row.
    for (; j + 4 * width <= cols; j += 4 * width) {
      Tile<1, 8>(left, right.data + j, right.row_stride, c + j, c_stride, depth, accumulates);
    }
  }
  for (; j < cols; j += width) {
    const T* right_panel = right.data + j / width * right.panel_stride;
    for (int64_t i = 0; i < rows; i += kPanelHeight) {
      const TileFn<T> tile = kTiles[std::min(kPanelHeight, rows - i) - 1];
      tile(left + i * depth, right_panel, right.row_stride, c + i * c_stride + j, c_stride, depth, accumulates);
    }
  }
}

HWY_ATTR int64_t FloatWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<float>())); }
HWY_ATTR int64_t DoubleWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<double>())); }

HWY_ATTR void FloatBlock(const float* left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                         int64_t cols, int64_t depth, bool accumulates) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates);
}

HWY_ATTR void DoubleBlock(const double* left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                          int64_t cols, int64_t depth, bool accumulates) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FloatWidth);
HWY_EXPORT(DoubleWidth);
HWY_EXPORT(FloatBlock);
HWY_EXPORT(DoubleBlock);

int64_t PanelWidth(float) { return HWY_DYNAMIC_DISPATCH(FloatWidth)(); }
int64_t PanelWidth(double) { return HWY_DYNAMIC_DISPATCH(DoubleWidth)(); }

void MultiplyBlock(const float* left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows, int64_t cols,
                   int64_t depth, bool accumulates) {
  HWY_DYNAMIC_DISPATCH(FloatBlock)(left, right, c, c_stride, rows, cols, depth, accumulates);
}

void MultiplyBlock(const double* left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates) {
  HWY_DYNAMIC_DISPATCH(DoubleBlock)(left, right, c, c_stride, rows, cols, depth, accumulates);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
