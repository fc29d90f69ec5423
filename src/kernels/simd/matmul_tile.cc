// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/matmul_tile.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/simd/first_cache.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/matmul_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/fold_lanes-inl.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 64 bytes hold the widest vector; two vectors make one panel.
template <class T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;

constexpr int64_t kLineBytes = 64;

// ---- Tiles over packed panels ----

// Rows of one tile: with 32 registers 24 of them hold sums, with 16 of them 12.
constexpr int kMostRows = HWY_MAX_BYTES == 64 ? 12 : 6;
constexpr int kVectors = 2;

// Memory that a tile asks for, line by line: `lines` of them every `period` steps of the depth.
struct Ahead {
  const char* data = nullptr;
  int64_t lines = 0;
  int64_t period = 16;
  int64_t left = INT64_MAX;       // lines until the end of a row,
  int64_t row_lines = INT64_MAX;  // of so many,
  int64_t jump = 0;               // and from there to the next one
};

// kRows rows times kPanels panels of c stay in registers over the whole depth. What is read next is asked for on the
// way, and the rows of c, which the loads at the end would wait for. What is given by reference is not written before:
// reading it again in one piece would wait for the stores of the tile before.
template <int kRows, int kPanels, class T, class B>
HWY_ATTR void Tile(LeftRows<T> left, const B* right, const RightPanels<B>& layout, T* c, int64_t c_stride,
                   int64_t depth, bool accumulates, const Ahead& ahead) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kBases = (kRows + 2) / 3;  // one for each three rows, so that addresses fit in registers
  const T* base[kBases];
  HWY_UNROLL(4) for (int g = 0; g < kBases; ++g) base[g] = left.data + 3 * g * left.row_stride;
  const int64_t row_stride = left.row_stride;
  const int64_t panel_stride = kPanels > 1 ? layout.panel_stride : 0;
  const int64_t right_stride = layout.row_stride;
  const char* next = ahead.data;
  int64_t lines_left = ahead.left;
  T* next_row = c;
  T* const end_of_rows = c + kRows * c_stride;
  hn::Vec<Tag<T>> sum[kRows][kPanels][kVectors];
  HWY_UNROLL(12) for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4) for (int p = 0; p < kPanels; ++p) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sum[i][p][v] = hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth;) {
    for (int64_t l = 0; l < ahead.lines; ++l) {
      __builtin_prefetch(next, 0, 3);  // other hints are not followed by all processors
      next += kLineBytes;
      if (--lines_left == 0) {
        next += ahead.jump;
        lines_left = ahead.row_lines;
      }
    }
    if (next_row != end_of_rows) {
      constexpr auto kLanes = static_cast<int64_t>(kLineBytes / sizeof(T));
      for (int64_t l = 0; l < kPanels * kVectors * lanes; l += kLanes) __builtin_prefetch(next_row + l, 1, 3);
      next_row += c_stride;
    }
    const int64_t end = std::min(depth, k + ahead.period);
    for (; k < end; ++k) {
      HWY_UNROLL(4) for (int p = 0; p < kPanels; ++p) {
        hn::Vec<Tag<T>> columns[kVectors];
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) columns[v] = Widen(d, right + p * panel_stride + v * lanes);
        HWY_UNROLL(12) for (int i = 0; i < kRows; ++i) {
          const auto value = hn::Set(d, base[i / 3][i % 3 * row_stride]);
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sum[i][p][v] = hn::MulAdd(value, columns[v], sum[i][p][v]);
        }
      }
      HWY_UNROLL(4) for (int g = 0; g < kBases; ++g)++ base[g];
      right += right_stride;
    }
  }
  HWY_UNROLL(12) for (int i = 0; i < kRows; ++i, c += c_stride) {
    HWY_UNROLL(4) for (int p = 0; p < kPanels; ++p) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        T* to = c + (p * kVectors + v) * lanes;
        if (accumulates) sum[i][p][v] = hn::Add(hn::LoadU(d, to), sum[i][p][v]);
        hn::StoreU(sum[i][p][v], d, to);
      }
    }
  }
}

// What will be read next, in the order of memory: each tile asks for some lines behind those of the tile before it.
class Prefetcher {
 public:
  // `panels`: of the right operand, back to back, `panel_bytes` each. `at_once` of them have `tiles` tiles together,
  // and one that is left has as many.
  Prefetcher(const NextRead* next, const void* right, int64_t panels, int64_t panel_bytes, int64_t at_once,
             int64_t tiles, int64_t depth) {
    if (next == nullptr) return;
    NextRead behind = *next;
    if (behind.is_behind_panels) {
      // While some are read, as many behind them have to come.
      const int64_t own = std::max<int64_t>(0, panels - at_once);
      first_next_ = (own + at_once - 1) / at_once * at_once;
      own_ = Source({static_cast<const char*>(right) + at_once * panel_bytes, 1, 0, own * panel_bytes}, first_next_,
                    at_once, tiles, depth);
      behind.row_bytes = std::min(behind.row_bytes, at_once * panel_bytes);
    }
    next_ = Source(behind, panels - first_next_, at_once, tiles, depth);
  }
  // For the next tile, of panels from `panel` on: of one, or of as many as are read together.
  HWY_INLINE Ahead OfTile(int64_t panel, bool is_one) {
    return panel < first_next_ ? own_.Take(is_one) : next_.Take(is_one);
  }

 private:
  // Lines that tiles take one after the other. Divisions here, and none for a tile.
  class Source {
   public:
    Source() = default;
    Source(const NextRead& read, int64_t panels, int64_t at_once, int64_t tiles, int64_t depth)
        : data_(read.data), row_stride_(read.row_stride) {
      if (data_ == nullptr || read.rows == 0 || panels == 0) return;
      row_lines_ = (read.row_bytes + kLineBytes - 1) / kLineBytes;
      left_ = read.rows * row_lines_;
      const int64_t of_panel = (left_ + panels - 1) / panels;
      several_ = Share(of_panel * at_once, tiles, depth);
      one_ = Share(of_panel, tiles, depth);
    }
    HWY_INLINE Ahead Take(bool is_one) {
      Ahead ahead;
      const Share& share = is_one ? one_ : several_;
      const int64_t lines = std::min(left_, share.of_tile);
      if (lines == 0) return ahead;
      ahead.data = data_ + at_ * kLineBytes;
      ahead.lines = share.at_a_time;
      ahead.period = share.period;
      ahead.left = row_lines_ - at_;
      ahead.row_lines = row_lines_;
      ahead.jump = row_stride_ - row_lines_ * kLineBytes;
      left_ -= lines;
      for (at_ += lines; at_ >= row_lines_; at_ -= row_lines_) data_ += row_stride_;
      return ahead;
    }

   private:
    struct Share {
      int64_t of_tile = 0, at_a_time = 0, period = 0;
      Share() = default;
      Share(int64_t lines, int64_t tiles, int64_t depth)
          : of_tile((lines + tiles - 1) / tiles),
            at_a_time((of_tile + depth - 1) / depth),
            period(of_tile <= depth ? depth / std::max<int64_t>(1, of_tile) : 1) {}
    };
    const char* data_ = nullptr;  // of the row
    int64_t row_stride_ = 0, row_lines_ = 0;
    int64_t at_ = 0;    // lines of the row that were asked for
    int64_t left_ = 0;  // lines of all rows that were not
    Share one_, several_;
  };

  Source own_;              // panels but the first ones
  Source next_;             // what the caller names,
  int64_t first_next_ = 0;  // during panels from this one on
};

template <class T, class B>
using TileFn = void (*)(LeftRows<T> left, const B* right, const RightPanels<B>& layout, T* c, int64_t c_stride,
                        int64_t depth, bool accumulates, const Ahead& ahead);

// Few rows have too few sums for the latency of an addition, so that they take several panels at a time.
constexpr int PanelsOf(int rows) {
  const int panels = kMostRows / rows;
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;  // operands come in fours
}

// By rows - 1: of one panel, and of PanelsOf(rows).
template <class T, class B>
struct TileShapes {
  TileFn<T, B> of[kMostRows][2];
};

template <class T, class B, size_t... kIndex>
constexpr TileShapes<T, B> MakeShapes(std::index_sequence<kIndex...>) {
  return {{{Tile<kIndex + 1, 1, T, B>, Tile<kIndex + 1, PanelsOf(kIndex + 1), T, B>}...}};
}

// See PrefersLowTiles. Of more rows than these, which come in two tiles or more.
constexpr int kLowRows = kMostRows / 2;
constexpr bool kHasLowTiles = PanelsOf(kLowRows) == 2 && PanelsOf(kLowRows - 2) == 2;

template <class T, class B>
HWY_ATTR void Block(LeftRows<T> left, RightPanels<B> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                    int64_t depth, bool accumulates, const NextRead* next) {
  static constexpr TileShapes<T, B> kShapes = MakeShapes<T, B>(std::make_index_sequence<kMostRows>());
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const int64_t panels = cols / width;
  const bool is_low = kHasLowTiles && rows > kMostRows && PrefersLowTiles();
  const int64_t most = is_low ? kLowRows : kMostRows;
  const int64_t tiles = (rows + most - 1) / most;
  const int64_t at_once = tiles == 1 ? PanelsOf(static_cast<int>(rows)) : is_low ? PanelsOf(kLowRows) : 1;
  Prefetcher prefetcher(next, right.data, panels, width * depth * static_cast<int64_t>(sizeof(B)), at_once, tiles,
                        depth);
  // Of about the same size, since tiles of few rows are slow.
  const int64_t least = rows / tiles;
  const int64_t higher = rows - least * tiles;  // that have a row more
  for (int64_t p = 0; p < panels;) {
    const bool has_several = at_once > 1 && p + at_once <= panels;
    const B* const panel = right.data + p * right.panel_stride;
    int64_t i = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t height = least + (tile < higher ? 1 : 0);
      kShapes.of[height - 1][has_several]({left.data + i * left.row_stride, left.row_stride}, panel, right,
                                          c + i * c_stride + p * width, c_stride, depth, accumulates,
                                          prefetcher.OfTile(p, !has_several));
      i += height;
    }
    p += has_several ? at_once : 1;
  }
}

// ---- Few rows ----

// The sum of the lanes of each vector. Vectors of float32 are folded four at a time.
template <int kCount, class T>
HWY_INLINE HWY_ATTR void FoldLanes(Tag<T> d, const hn::Vec<Tag<T>>* sums, T* totals) {
  if constexpr (kCount == 4 && std::is_same_v<T, float>) return FoldFour(d, sums, totals);
  for (int s = 0; s < kCount; ++s) totals[s] = hn::GetLane(hn::SumOfLanes(d, sums[s]));
}

// kRows x kCols sums, each in a vector over the depth. With kPrefetches, as many columns behind these are asked for,
// one after the other: as one run through memory, whatever the order in which they are read.
template <int kRows, int kCols, bool kPrefetches, class T, class B>
HWY_ATTR void DotTile(const StreamBlock<T, B>& block, int64_t i, int64_t j) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* const a = block.left.data + i * block.left.row_stride;
  const B* const b = block.right + j * block.right_stride;
  hn::Vec<Tag<T>> sum[kRows][kCols];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int s = 0; s < kCols; ++s) sum[r][s] = hn::Zero(d);
  }
  constexpr int kParts = kPrefetches ? kCols : 1;  // of the depth, in which one column each is asked for
  constexpr int64_t kLineItems = kLineBytes / static_cast<int64_t>(sizeof(B));
  const int64_t whole = block.depth / lanes * lanes;
  const int64_t part = (block.depth / lanes + kParts - 1) / kParts * lanes;
  int64_t k = 0;
  for (int p = 0; p < kParts; ++p) {
    const int64_t end = std::min(whole, (p + 1) * part);
    const B* next = b + (kCols + p) * block.right_stride;
    for (; k < end; k += lanes) {
      if constexpr (kPrefetches) {
        for (int64_t l = 0; l < kParts * lanes; l += kLineItems) __builtin_prefetch(next + l);
        next += kParts * lanes;
      }
      hn::Vec<Tag<T>> row[kRows];
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) row[r] = hn::LoadU(d, a + r * block.left.row_stride + k);
      HWY_UNROLL(8) for (int s = 0; s < kCols; ++s) {
        const auto column = Widen(d, b + s * block.right_stride + k);
        HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) sum[r][s] = hn::MulAdd(row[r], column, sum[r][s]);
      }
    }
  }
  if (k == block.depth && !block.accumulates) {
    T* const to = block.c + i * block.c_stride + j;
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) FoldLanes<kCols>(d, sum[r], to + r * block.c_stride);
    return;
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
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

// Rows of one tile: with 32 registers 20 of them hold sums of four columns, with 16 of them 12.
constexpr int64_t kMostDotRows = HWY_MAX_BYTES == 64 ? 5 : 3;

// Rows of the next tile where so many are left. Of three rows or fewer compilers read a column anew for each of them,
// so that such tiles are slow: 8 rows are 4 and 4, not 5 and 3.
constexpr int64_t DotRows(int64_t left) {
  if (left <= kMostDotRows) return left;
  const int64_t behind = left - kMostDotRows;
  return kMostDotRows > 3 && (behind == 1 || behind == 3) ? kMostDotRows - 1 : kMostDotRows;
}

template <class T, class B>
using DotTileFn = void (*)(const StreamBlock<T, B>& block, int64_t i, int64_t j);

template <int kCols, bool kPrefetches, class T, class B, size_t... kIndex>
constexpr std::array<DotTileFn<T, B>, sizeof...(kIndex)> MakeDotTiles(std::index_sequence<kIndex...>) {
  return {DotTile<kIndex + 1, kCols, kPrefetches, T, B>...};
}

// All rows times kCols columns; the first tile fetches these from memory.
template <int kCols, bool kPrefetches, class T, class B>
HWY_ATTR void DotColumns(const StreamBlock<T, B>& block, int64_t j) {
  constexpr auto kRowCounts = std::make_index_sequence<kMostDotRows>();
  static constexpr auto kFirst = MakeDotTiles<kCols, kPrefetches, T, B>(kRowCounts);
  static constexpr auto kOthers = MakeDotTiles<kCols, false, T, B>(kRowCounts);
  for (int64_t i = 0; i < block.rows;) {
    const int64_t height = DotRows(block.rows - i);
    (i == 0 ? kFirst : kOthers)[static_cast<size_t>(height - 1)](block, i, j);
    i += height;
  }
}

// Columns in groups, whose rows of the left operand come from the first-level cache and whose own elements from there
// or the second level after the first rows.
template <class T, class B>
HWY_ATTR void ByColumns(const StreamBlock<T, B>& block) {
  constexpr int kCols = 4;
  int64_t j = 0;
  for (; j + 2 * kCols <= block.cols; j += kCols) DotColumns<kCols, true>(block, j);
  for (; j + kCols <= block.cols; j += kCols) DotColumns<kCols, false>(block, j);
  for (; j < block.cols; ++j) {
    for (int64_t i = 0; i < block.rows; ++i) DotTile<1, 1, false>(block, i, j);
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
  // kVectors are a cache line or two, which are prefetched for the rows to come.
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

// ---- Small products ----

// kRows rows of some columns stay in registers over the depth.
template <int kRows, class D>
HWY_INLINE HWY_ATTR void SmallRows(D d, const StreamBlock<float, float>& block, int64_t i, int64_t j) {
  const float* const a = block.left.data + i * block.left.row_stride;
  const float* b = block.right + j;
  hn::Vec<D> sum[kRows];
  HWY_UNROLL(4) for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
  for (int64_t k = 0; k < block.depth; ++k, b += block.right_stride) {
    const auto row = hn::LoadU(d, b);
    HWY_UNROLL(4) for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(d, a[r * block.left.row_stride + k]), row, sum[r]);
    }
  }
  float* const c = block.c + i * block.c_stride + j;
  HWY_UNROLL(4) for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, c + r * block.c_stride);
}

HWY_ATTR void Small(const StreamBlock<float, float>& block) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < block.cols; j += lanes) {
    int64_t i = 0;
    for (; i + 4 <= block.rows; i += 4) SmallRows<4>(d, block, i, j);
    for (; i < block.rows; ++i) SmallRows<1>(d, block, i, j);
  }
}

// ---- Exchanging rows and columns ----

#if HWY_TARGET != HWY_SCALAR
// Four vectors become columns, each four lanes of them by themselves.
template <class D, class V>
HWY_INLINE HWY_ATTR void StoreTurned(D d, V a, V b, V e, V f, float* to, int64_t dst_stride) {
  const hn::RepartitionToWide<D> wide;
  const auto ab_low = hn::BitCast(wide, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
  const auto ef_low = hn::BitCast(wide, hn::InterleaveLower(d, e, f));
  const auto ef_high = hn::BitCast(wide, hn::InterleaveUpper(d, e, f));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_low, ef_low)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_low, ef_low)), d, to + dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_high, ef_high)), d, to + 2 * dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_high, ef_high)), d, to + 3 * dst_stride);
}

// Four rows and four columns.
HWY_INLINE HWY_ATTR void TransposeFour(const float* from, int64_t src_stride, float* to, int64_t dst_stride) {
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, from);
  const auto b = hn::LoadU(d, from + src_stride);
  const auto e = hn::LoadU(d, from + 2 * src_stride);
  const auto f = hn::LoadU(d, from + 3 * src_stride);
  StoreTurned(d, a, b, e, f, to, dst_stride);
}
#endif

#if HWY_CAP_GE256
// Eight rows and four columns: as the four, in both halves of a vector.
HWY_INLINE HWY_ATTR void TransposeEight(const float* from, int64_t src_stride, float* to, int64_t dst_stride) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const auto load = [&](int64_t row) HWY_ATTR {
    return hn::Combine(d, hn::LoadU(half, from + (row + 4) * src_stride), hn::LoadU(half, from + row * src_stride));
  };
  const auto a = load(0);
  const auto b = load(1);
  const auto e = load(2);
  const auto f = load(3);
  StoreTurned(d, a, b, e, f, to, dst_stride);
}
#endif

HWY_ATTR void TransposeBlock(const float* src, int64_t src_stride, int64_t rows, int64_t cols, float* dst,
                             int64_t dst_stride) {
  int64_t whole_rows = 0;
  int64_t whole_cols = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_rows = rows / 4 * 4;
  whole_cols = cols / 4 * 4;
  const auto four = [&](int64_t i, int64_t j) HWY_ATTR {
    TransposeFour(src + i * src_stride + j, src_stride, dst + j * dst_stride + i, dst_stride);
  };
#if HWY_CAP_GE256
  constexpr int64_t kStep = 8;
  const auto step = [&](int64_t i, int64_t j) HWY_ATTR {
    TransposeEight(src + i * src_stride + j, src_stride, dst + j * dst_stride + i, dst_stride);
  };
#else
  constexpr int64_t kStep = 4;
  const auto step = four;
#endif
  const int64_t stepped = rows / kStep * kStep;
  // Of the side whose rows lie further apart few are walked at a time: many of these may share the sets of a cache.
  if (dst_stride > src_stride) {
    for (int64_t j = 0; j < whole_cols; j += 4) {
      for (int64_t i = 0; i < stepped; i += kStep) step(i, j);
      for (int64_t i = stepped; i < whole_rows; i += 4) four(i, j);
    }
  } else {
    for (int64_t i = 0; i < stepped; i += kStep) {
      for (int64_t j = 0; j < whole_cols; j += 4) step(i, j);
    }
    for (int64_t i = stepped; i < whole_rows; i += 4) {
      for (int64_t j = 0; j < whole_cols; j += 4) four(i, j);
    }
  }
#endif
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
  }
}

// ---- What is exported ----

HWY_ATTR int64_t FloatWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<float>())); }
HWY_ATTR bool WidensHalfs() { return kWidensHalf; }
HWY_ATTR int64_t DoubleWidth() { return 2 * static_cast<int64_t>(hn::Lanes(Tag<double>())); }

HWY_ATTR void FloatBlock(LeftRows<float> left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                         int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

HWY_ATTR void HalfBlock(LeftRows<float> left, RightPanels<Half> right, float* c, int64_t c_stride, int64_t rows,
                        int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  Block(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

HWY_ATTR void BFloat16Block(LeftRows<float> left, RightPanels<BFloat16> right, float* c, int64_t c_stride, int64_t rows,
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
HWY_EXPORT(HalfBlock);
HWY_EXPORT(BFloat16Block);
HWY_EXPORT(DoubleBlock);
HWY_EXPORT(WidensHalfs);
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
HWY_EXPORT(Small);
HWY_EXPORT(TransposeBlock);

int64_t PanelWidth(float) { return HWY_DYNAMIC_DISPATCH(FloatWidth)(); }
bool WidensHalf() { return HWY_DYNAMIC_DISPATCH(WidensHalfs)(); }
int64_t PanelWidth(double) { return HWY_DYNAMIC_DISPATCH(DoubleWidth)(); }

void MultiplyBlock(LeftRows<float> left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  HWY_DYNAMIC_DISPATCH(FloatBlock)(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

void MultiplyBlock(LeftRows<float> left, RightPanels<Half> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  HWY_DYNAMIC_DISPATCH(HalfBlock)(left, right, c, c_stride, rows, cols, depth, accumulates, next);
}

void MultiplyBlock(LeftRows<float> left, RightPanels<BFloat16> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  HWY_DYNAMIC_DISPATCH(BFloat16Block)(left, right, c, c_stride, rows, cols, depth, accumulates, next);
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

void MultiplySmall(const StreamBlock<float, float>& block) { HWY_DYNAMIC_DISPATCH(Small)(block); }

void Transpose(const float* src, int64_t src_stride, int64_t rows, int64_t cols, float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeBlock)(src, src_stride, rows, cols, dst, dst_stride);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
