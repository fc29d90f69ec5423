// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/matmul_tile.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/matmul_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 64 bytes hold the widest vector; two vectors make one panel.
template <class T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;

// ---- Tiles over packed panels ----

// kRows rows times kPanels panels of c stay in registers over the whole depth.
template <int kRows, int kPanels, class T>
HWY_ATTR void Tile(LeftRows<T> left, const T* right, RightPanels<T> layout, T* c, int64_t c_stride, int64_t depth,
                   bool accumulates) {
  constexpr int kVectors = 2;
  const Tag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<Tag<T>> sum[kRows][kPanels][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < kVectors; ++v) sum[i][p][v] = hn::Zero(d);
    }
  }
  const T* const a = left.data;
  for (int64_t k = 0; k < depth; ++k) {
    for (int p = 0; p < kPanels; ++p) {
      hn::Vec<Tag<T>> columns[kVectors];
      for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, right + p * layout.panel_stride + v * lanes);
      for (int i = 0; i < kRows; ++i) {
        const auto value = hn::Set(d, a[i * left.row_stride + k]);
        for (int v = 0; v < kVectors; ++v) sum[i][p][v] = hn::MulAdd(value, columns[v], sum[i][p][v]);
      }
    }
    right += layout.row_stride;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < kVectors; ++v) {
        T* to = c + i * c_stride + (p * kVectors + v) * lanes;
        if (accumulates) sum[i][p][v] = hn::Add(hn::LoadU(d, to), sum[i][p][v]);
        hn::StoreU(sum[i][p][v], d, to);
      }
    }
  }
}

// What will be read next, asked for in equal parts while tiles are computed.
class Prefetcher {
 public:
  Prefetcher(const NextRead* next, int64_t tiles) {
    if (next == nullptr || next->data == nullptr) return;
    next_ = *next;
    const int64_t lines = next_.rows * ((next_.row_bytes + kLine - 1) / kLine);
    step_ = (lines + tiles - 1) / tiles;
  }
  HWY_INLINE void Step() {
    for (int64_t i = 0; i < step_ && row_ < next_.rows; ++i) {
      __builtin_prefetch(next_.data + row_ * next_.row_stride + offset_, 0, 2);
      offset_ += kLine;
      if (offset_ < next_.row_bytes) continue;
      offset_ = 0;
      ++row_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  NextRead next_;
  int64_t step_ = 0;
  int64_t row_ = 0;
  int64_t offset_ = 0;
};

template <class T>
using TileFn = void (*)(LeftRows<T> left, const T* right, RightPanels<T> layout, T* c, int64_t c_stride, int64_t depth,
                        bool accumulates);

// Few rows have too few sums for the latency of an addition, so that they take several panels at a time.
template <class T>
struct TileShape {
  TileFn<T> one;      // panel
  TileFn<T> several;  // as many as `panels`
  int64_t panels;
};

template <class T>
HWY_ATTR void Block(LeftRows<T> left, RightPanels<T> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                    int64_t depth, bool accumulates, const NextRead* next) {
  static constexpr TileShape<T> kTiles[kTileRows] = {
      {Tile<1, 1, T>, Tile<1, 4, T>, 4}, {Tile<2, 1, T>, Tile<2, 2, T>, 2}, {Tile<3, 1, T>, Tile<3, 2, T>, 2},
      {Tile<4, 1, T>, Tile<4, 1, T>, 1}, {Tile<5, 1, T>, Tile<5, 1, T>, 1}, {Tile<6, 1, T>, Tile<6, 1, T>, 1}};
  const int64_t width = 2 * static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const int64_t panels = cols / width;
  Prefetcher prefetcher(next, panels * ((rows + kTileRows - 1) / kTileRows));
  const int64_t at_once = rows < kTileRows ? kTiles[rows - 1].panels : 1;
  for (int64_t p = 0; p < panels;) {
    const bool has_several = p + at_once <= panels;
    const int64_t taken = has_several ? at_once : 1;
    const T* panel = right.data + p * right.panel_stride;
    for (int64_t i = 0; i < rows;) {
      // The last two tiles share their rows, since a tile of few is slow.
      int64_t height = std::min(kTileRows, rows - i);
      if (rows - i > kTileRows && rows - i <= kTileRows + kTileRows / 2) height = (rows - i + 1) / 2;
      const TileShape<T>& shape = kTiles[height - 1];
      (at_once > 1 && has_several ? shape.several : shape.one)({left.data + i * left.row_stride, left.row_stride},
                                                               panel, right, c + i * c_stride + p * width, c_stride,
                                                               depth, accumulates);
      prefetcher.Step();
      i += height;
    }
    p += taken;
  }
}

// ---- Few rows ----

// The sum of the lanes of each vector. Vectors of float32 are folded four at a time.
template <int kCount, class T>
HWY_INLINE HWY_ATTR void FoldLanes(Tag<T> d, const hn::Vec<Tag<T>>* sums, T* totals) {
#if HWY_MAX_BYTES >= 32
  if constexpr (kCount == 4 && std::is_same_v<T, float>) {
    const hn::RepartitionToWide<Tag<T>> pairs;
    const auto fold = [](auto tag, auto a, auto b) HWY_ATTR {
      return std::pair(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
    };
    const auto [low01, high01] = fold(d, sums[0], sums[1]);
    const auto [low23, high23] = fold(d, sums[2], sums[3]);
    const auto [low, high] =
        fold(pairs, hn::BitCast(pairs, hn::Add(low01, high01)), hn::BitCast(pairs, hn::Add(low23, high23)));
    // Each block of four lanes has a part of each of the four sums.
    const auto blocks = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
    const hn::Half<Tag<T>> half;
    const auto halves = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
#if HWY_MAX_BYTES == 64
    const hn::Half<decltype(half)> quarter;
    hn::StoreU(hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves)), quarter, totals);
#else
    hn::StoreU(halves, half, totals);
#endif
    return;
  }
#endif
  for (int s = 0; s < kCount; ++s) totals[s] = hn::GetLane(hn::SumOfLanes(d, sums[s]));
}

// kRows x kCols sums, each in a vector over the depth.
template <int kRows, int kCols, class T, class B>
HWY_ATTR void DotTile(const StreamBlock<T, B>& block, int64_t i, int64_t j) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* const a = block.left.data + i * block.left.row_stride;
  const B* const b = block.right + j * block.right_stride;
  hn::Vec<Tag<T>> sum[kRows][kCols];
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kCols; ++s) sum[r][s] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= block.depth; k += lanes) {
    hn::Vec<Tag<T>> row[kRows];
    for (int r = 0; r < kRows; ++r) row[r] = hn::LoadU(d, a + r * block.left.row_stride + k);
    for (int s = 0; s < kCols; ++s) {
      const auto column = Widen(d, b + s * block.right_stride + k);
      for (int r = 0; r < kRows; ++r) sum[r][s] = hn::MulAdd(row[r], column, sum[r][s]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    T totals[kCols];
    FoldLanes<kCols>(d, sum[r], totals);
    for (int s = 0; s < kCols; ++s) {
      T total = totals[s];
      for (int64_t l = k; l < block.depth; ++l) {
        total += a[r * block.left.row_stride + l] * static_cast<T>(b[s * block.right_stride + l]);
      }
      T& to = block.c[(i + r) * block.c_stride + j + s];
      to = block.accumulates ? to + total : total;
    }
  }
}

// Columns in groups, whose rows of the left operand come from the first-level cache and whose own elements from there
// or the second level after the first rows.
template <class T, class B>
HWY_ATTR void ByColumns(const StreamBlock<T, B>& block) {
  constexpr int kCols = 4;
  for (int64_t j = 0; j < block.cols; j += kCols) {
    const bool is_full = j + kCols <= block.cols;
    int64_t i = 0;
    for (; is_full && i + 3 <= block.rows; i += 3) DotTile<3, kCols>(block, i, j);
    for (; is_full && i + 2 <= block.rows; i += 2) DotTile<2, kCols>(block, i, j);
    for (; i < block.rows; ++i) {
      if (is_full) {
        DotTile<1, kCols>(block, i, j);
      } else {
        for (int64_t l = j; l < block.cols; ++l) DotTile<1, 1>(block, i, l);
      }
    }
  }
}

// Adds kDepth rows of the right operand, each times its factor, to kRows rows of c.
template <int kRows, int kDepth, class T, class B>
HWY_ATTR void AddRows(const StreamBlock<T, B>& block, int64_t i, int64_t k, bool prefetches) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* const a = block.left.data + i * block.left.row_stride + k;
  const B* const b = block.right + k * block.right_stride;
  T* const c = block.c + i * block.c_stride;
  hn::Vec<Tag<T>> factor[kRows][kDepth];
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kDepth; ++s) factor[r][s] = hn::Set(d, a[r * block.left.row_stride + s]);
  }
  constexpr int kVectors = 2;  // a cache line, which is prefetched for the rows to come
  int64_t j = 0;
  for (; j + kVectors * lanes <= block.cols; j += kVectors * lanes) {
    hn::Vec<Tag<T>> sum[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = k == 0 ? hn::Zero(d) : hn::LoadU(d, c + r * block.c_stride + j + v * lanes);
      }
    }
    for (int s = 0; s < kDepth; ++s) {
      const B* const from = b + s * block.right_stride + j;
      if (prefetches) __builtin_prefetch(from + kDepth * block.right_stride);
      for (int v = 0; v < kVectors; ++v) {
        const auto row = Widen(d, from + v * lanes);
        for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(factor[r][s], row, sum[r][v]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * block.c_stride + j + v * lanes);
    }
  }
  for (; j < block.cols; ++j) {
    for (int r = 0; r < kRows; ++r) {
      T sum = k == 0 ? T{0} : c[r * block.c_stride + j];
      for (int s = 0; s < kDepth; ++s) {
        sum += a[r * block.left.row_stride + s] * static_cast<T>(b[s * block.right_stride + j]);
      }
      c[r * block.c_stride + j] = sum;
    }
  }
}

template <class T, class B>
HWY_ATTR void ByRows(const StreamBlock<T, B>& block) {
  int64_t k = 0;
  if (block.rows == 1) {
    // Runs are as long as they come, which the processor foresees by itself.
    constexpr int kDepth = 8;
    for (; k + kDepth <= block.depth; k += kDepth) AddRows<1, kDepth>(block, 0, k, false);
  }
  constexpr int kDepth = 4;
  for (; k + kDepth <= block.depth; k += kDepth) {
    const bool is_last = k + 2 * kDepth > block.depth;
    int64_t i = 0;
    for (; i + 2 <= block.rows; i += 2) AddRows<2, kDepth>(block, i, k, i == 0 && !is_last);
    if (i < block.rows) AddRows<1, kDepth>(block, i, k, i == 0 && !is_last);
  }
  for (; k < block.depth; ++k) {
    for (int64_t i = 0; i < block.rows; ++i) AddRows<1, 1>(block, i, k, false);
  }
}

// ---- Exchanging rows and columns ----

HWY_ATTR void TransposeBlock(const float* src, int64_t src_stride, int64_t rows, int64_t cols, float* dst,
                             int64_t dst_stride) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  for (; i + 4 <= rows; i += 4) {
    const float* const from = src + i * src_stride;
    int64_t j = 0;
    for (; j + 4 <= cols; j += 4) {
      const auto a = hn::LoadU(d, from + j);
      const auto b = hn::LoadU(d, from + src_stride + j);
      const auto e = hn::LoadU(d, from + 2 * src_stride + j);
      const auto f = hn::LoadU(d, from + 3 * src_stride + j);
      const auto ab_low = hn::BitCast(wide, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
      const auto ef_low = hn::BitCast(wide, hn::InterleaveLower(d, e, f));
      const auto ef_high = hn::BitCast(wide, hn::InterleaveUpper(d, e, f));
      float* const to = dst + j * dst_stride + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_low, ef_low)), d, to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_low, ef_low)), d, to + dst_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_high, ef_high)), d, to + 2 * dst_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_high, ef_high)), d, to + 3 * dst_stride);
    }
    for (; j < cols; ++j) {
      for (int64_t l = 0; l < 4; ++l) dst[j * dst_stride + i + l] = from[l * src_stride + j];
    }
  }
#endif
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
  }
}

// ---- What is exported ----

HWY_ATTR int64_t FloatWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<float>())); }
HWY_ATTR int64_t DoubleWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<double>())); }

HWY_ATTR void FloatBlock(LeftRows<float> left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                         int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

HWY_ATTR void DoubleBlock(LeftRows<double> left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                          int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

HWY_ATTR void FloatByColumns(const StreamBlock<float, float>& block) { ByColumns(block); }
HWY_ATTR void HalfByColumns(const StreamBlock<float, Half>& block) { ByColumns(block); }
HWY_ATTR void BFloat16ByColumns(const StreamBlock<float, BFloat16>& block) { ByColumns(block); }
HWY_ATTR void Int8ByColumns(const StreamBlock<float, int8_t>& block) { ByColumns(block); }
HWY_ATTR void DoubleByColumns(const StreamBlock<double, double>& block) { ByColumns(block); }
HWY_ATTR void FloatByRows(const StreamBlock<float, float>& block) { ByRows(block); }
HWY_ATTR void HalfByRows(const StreamBlock<float, Half>& block) { ByRows(block); }
HWY_ATTR void BFloat16ByRows(const StreamBlock<float, BFloat16>& block) { ByRows(block); }
HWY_ATTR void Int8ByRows(const StreamBlock<float, int8_t>& block) { ByRows(block); }
HWY_ATTR void DoubleByRows(const StreamBlock<double, double>& block) { ByRows(block); }

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FloatWidth);
HWY_EXPORT(DoubleWidth);
HWY_EXPORT(FloatBlock);
HWY_EXPORT(DoubleBlock);
HWY_EXPORT(FloatByColumns);
HWY_EXPORT(HalfByColumns);
HWY_EXPORT(BFloat16ByColumns);
HWY_EXPORT(Int8ByColumns);
HWY_EXPORT(DoubleByColumns);
HWY_EXPORT(FloatByRows);
HWY_EXPORT(HalfByRows);
HWY_EXPORT(BFloat16ByRows);
HWY_EXPORT(Int8ByRows);
HWY_EXPORT(DoubleByRows);
HWY_EXPORT(TransposeBlock);

int64_t PanelWidth(float) { return HWY_DYNAMIC_DISPATCH(FloatWidth)(); }
int64_t PanelWidth(double) { return HWY_DYNAMIC_DISPATCH(DoubleWidth)(); }

void MultiplyBlock(LeftRows<float> left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  HWY_DYNAMIC_DISPATCH(FloatBlock)(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

void MultiplyBlock(LeftRows<double> left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  HWY_DYNAMIC_DISPATCH(DoubleBlock)(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

void MultiplyByColumns(const StreamBlock<float, float>& block) { HWY_DYNAMIC_DISPATCH(FloatByColumns)(block); }
void MultiplyByColumns(const StreamBlock<float, Half>& block) { HWY_DYNAMIC_DISPATCH(HalfByColumns)(block); }
void MultiplyByColumns(const StreamBlock<float, BFloat16>& block) { HWY_DYNAMIC_DISPATCH(BFloat16ByColumns)(block); }
void MultiplyByColumns(const StreamBlock<float, int8_t>& block) { HWY_DYNAMIC_DISPATCH(Int8ByColumns)(block); }
void MultiplyByColumns(const StreamBlock<double, double>& block) { HWY_DYNAMIC_DISPATCH(DoubleByColumns)(block); }
void MultiplyByRows(const StreamBlock<float, float>& block) { HWY_DYNAMIC_DISPATCH(FloatByRows)(block); }
void MultiplyByRows(const StreamBlock<float, Half>& block) { HWY_DYNAMIC_DISPATCH(HalfByRows)(block); }
void MultiplyByRows(const StreamBlock<float, BFloat16>& block) { HWY_DYNAMIC_DISPATCH(BFloat16ByRows)(block); }
void MultiplyByRows(const StreamBlock<float, int8_t>& block) { HWY_DYNAMIC_DISPATCH(Int8ByRows)(block); }
void MultiplyByRows(const StreamBlock<double, double>& block) { HWY_DYNAMIC_DISPATCH(DoubleByRows)(block); }

void Transpose(const float* src, int64_t src_stride, int64_t rows, int64_t cols, float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeBlock)(src, src_stride, rows, cols, dst, dst_stride);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
