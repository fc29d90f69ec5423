// SPDX-License-Identifier: Apache-2.0
//
// How a matrix product is cut: into work items, and into blocks for the caches. Internal to kernels/matmul.cc.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/batch.h"
#include "kernels/matmul.h"
#include "kernels/simd/bfloat16_pairs.h"
#include "kernels/simd/bfloat16_tile.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/matrix_unit.h"
#include "kernels/strided.h"

namespace reprise::kernels::matmul {

// Block sizes in elements. A block of the left operand (132 x 256) and one panel of the right (256 x 16) are read over
// and over: second- and first-level cache. kBlockRows is a multiple of the tile height, the columns are of any width.
inline constexpr int64_t kBlockRows = 132;
inline constexpr int64_t kBlockDepth = 256;
/// Columns whose sums are kept at a time, where they cannot be kept in out.
inline constexpr int64_t kBlockCols = 256;
/// Columns of a work item.
inline constexpr int64_t kUnitCols = 32;
/// Columns that are packed at a time: rows are read in pieces of that length.
inline constexpr int64_t kPackCols = 128;
/// Rows that share one packing of the right operand, and what they may take.
inline constexpr int64_t kGroupRows = 4 * kBlockRows;
inline constexpr int64_t kGroupBytes = kGroupRows * kBlockDepth * 8;
/// Work items below which groups of rows are cut, while they have kBlockRows each.
inline constexpr int64_t kUnitsWanted = 8;
/// So far apart are the rows of a copied left operand: they lie in different cache sets.
inline constexpr int64_t kLeftStride = kBlockDepth + 16;
/// The same for the matrix unit, which reads whole lines.
inline constexpr int64_t kUnitLeftStride = kBlockDepth + simd::kUnitDepth;
/// A right operand that takes less than this is read where it lies: the first-level cache holds it.
inline constexpr int64_t kInPlaceBytes = 32 << 10;
/// Lanes that packing reads at a time from an operand contiguous in depth.
inline constexpr int64_t kLines = 8;

/// Up to so many rows columns of the right operand are read where they lie, once: packing them would cost more than it
/// saves.
inline constexpr int64_t kFewRows = 10;
/// Up to so many, if it consists of rows, which tiles can read where they lie.
inline constexpr int64_t kFewRowsOfTiles = 2 * simd::kTileRows;
/// A result with no more columns, and more rows, is computed as its transpose.
inline constexpr int64_t kFewColsOfResult = 16;
/// Columns of a work item then, by layout.
inline constexpr int64_t kStreamByColumns = 64;
inline constexpr int64_t kStreamByRows = 256;
/// Columns of rows that are read as one run, more where c is a single row: multiples of those of a work item.
inline constexpr int64_t kLongRun = 1024;
inline constexpr int64_t kLongRunOfOne = 2048;
/// Depth at a time, for columns that are contiguous in it. By rows it is kBlockDepth.
inline constexpr int64_t kStreamDepth = 4096;

inline constexpr int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
inline constexpr int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

/// How a product is computed.
enum class Way : uint8_t {
  kTiles,    ///< packed panels, tiles of out in registers
  kColumns,  ///< few rows; columns of the right operand are contiguous
  kRows,     ///< one row; its rows are
};

inline void SwapLast(TensorRef& ref) {
  std::swap(ref.sizes[ref.rank - 1], ref.sizes[ref.rank - 2]);
  std::swap(ref.strides[ref.rank - 1], ref.strides[ref.rank - 2]);
}

inline bool IsStreamed(DType compute, DType right) {
  switch (compute) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return right == DType::kFloat || right == DType::kFloat16 || right == DType::kBFloat16;
    case DType::kDouble: return right == DType::kDouble;
    default: return false;
  }
}

/// The matrix unit has so many rows at a time, and a group that fits them.
inline constexpr int64_t kUnitGroupRows = 4 * simd::kMostUnitRows;
/// More rows than these, and so much depth, are worth the parts of both operands.
inline constexpr int64_t kMostRowsWithoutParts = 32;
inline constexpr int64_t kLeastDepthOfParts = 16;
/// It makes so many multiply-adds of bfloat16 while the tiles of a core make one of float32.
inline constexpr int64_t kUnitSpeed = 10;

/// Parts of bfloat16 that a number of such a right operand is multiplied in by the matrix unit, for left operands of
/// that type; 0: it has none, or there is no such unit.
inline int UnitPartsOf(DType right) {
  if (right == DType::kFloat) return simd::HasMatrixUnitForFloat32() ? 3 : 0;
  if (!simd::HasMatrixUnit()) return 0;
  return right == DType::kBFloat16 ? 1 : right == DType::kFloat16 ? 2 : 0;
}

/// Whether panels of such a right operand hold pairs, for left operands of that type.
inline bool HasPairPanels(DType right) {
  return right == DType::kBFloat16 && (simd::HasFastBFloat16Pairs() || simd::HasMatrixUnit());
}

/// Whether `rows` rows of a left operand and a right one of that depth are multiplied in several parts.
inline bool UsesParts(const TensorRef& a, DType right, int64_t rows, int64_t depth) {
  return rows > kMostRowsWithoutParts && depth >= kLeastDepthOfParts && a.dtype == right && UnitPartsOf(right) > 1;
}

/// Work items are some columns of a group of rows; neighbours are run as one.
struct Problem {
  TensorRef a, b, out;
  bool is_prepared;
  bool is_turned;  ///< out^T = b^T x a^T is computed, whose left operand has few rows
  int64_t m, n, k, batch;
  Way way = Way::kTiles;
  bool uses_pairs;           ///< of bfloat16, in tiles
  int parts = 1;             ///< of bfloat16, that a number of both operands is the sum of: where pairs are used
  bool uses_unit = false;    ///< the matrix unit multiplies the pairs
  bool reads_rows_in_place;  ///< of the right operand, if these are contiguous
  int64_t unit_cols = kUnitCols;
  int64_t most_units = INT64_MAX;  ///< that are run as one
  int64_t group_rows;
  int64_t row_groups, col_units;

  Problem(const TensorRef& left, const TensorRef& right, DType compute, const TensorRef& result, bool prepared)
      : a(left), b(right), out(result), is_prepared(prepared) {
    const int64_t rows = out.sizes[out.rank - 2];
    const int64_t cols = out.sizes[out.rank - 1];
    is_turned = cols < rows && cols <= kFewColsOfResult && !is_prepared;
    if (is_turned) {
      std::swap(a, b);
      SwapLast(a);
      SwapLast(b);
      SwapLast(out);
    }
    m = out.sizes[out.rank - 2];
    n = out.sizes[out.rank - 1];
    k = a.sizes[a.rank - 1];
    batch = EntryCount(out, 2);
    if (m <= kFewRows && !is_prepared && IsStreamed(compute, b.dtype)) {
      if (b.strides[b.rank - 2] == 1 || k == 1) {
        way = Way::kColumns;
        unit_cols = kStreamByColumns;
        most_units = kLongRun / kStreamByColumns;
      } else if (m == 1 && (b.strides[b.rank - 1] == 1 || n == 1)) {
        way = Way::kRows;
        unit_cols = kStreamByRows;
        most_units = kLongRunOfOne / kStreamByRows;
      }
    }
    uses_pairs = way == Way::kTiles && (is_prepared || m > kFewRows) && IsStreamed(compute, b.dtype) &&
                 a.dtype == b.dtype && HasPairPanels(b.dtype);
    if (way == Way::kTiles && IsStreamed(compute, b.dtype)) {
      const bool uses_parts = UsesParts(a, b.dtype, m, k);
      uses_unit = uses_parts || (uses_pairs && simd::HasMatrixUnit());
      uses_pairs = uses_pairs || uses_parts;
      if (uses_parts) parts = UnitPartsOf(b.dtype);
    }
    reads_rows_in_place = !uses_pairs && m <= kFewRowsOfTiles && !is_prepared && way == Way::kTiles &&
                          IsStreamed(compute, b.dtype) && (b.dtype != DType::kFloat16 || simd::WidensHalf());
    // Groups of about the same size, so that work items are.
    const int64_t most =
        uses_unit ? kUnitGroupRows : std::min(kGroupRows, kGroupBytes / (kBlockDepth * ItemSize(compute)));
    const int64_t tile = uses_unit ? simd::kUnitRows : simd::kTileRows;
    col_units = DivideUp(n, unit_cols);
    int64_t groups = std::max<int64_t>(1, DivideUp(m, most));
    // Few columns are few work items: packing them for each of more groups costs less than threads without one.
    while (!uses_unit && batch * groups * col_units < kUnitsWanted && m >= 2 * groups * kBlockRows) groups *= 2;
    group_rows = way == Way::kTiles ? RoundUp(DivideUp(m, groups), tile) : m;
    row_groups = group_rows == 0 ? 0 : DivideUp(m, group_rows);
  }

  int64_t units() const { return batch * row_groups * col_units; }
  ProductWork UnitWork() const {
    const int64_t cols = std::min(unit_cols, n);
    const int64_t depth = std::max<int64_t>(1, k);
    const int64_t products = std::min(group_rows, m) * cols * depth;
    return {uses_unit ? products * parts * parts / kUnitSpeed : products, cols * depth * ItemSize(b.dtype),
            way == Way::kTiles && !uses_pairs && !uses_unit};
  }
  /// Whether the left operand can be read where it lies by products that add in `type`.
  bool is_left_in_place(DType type) const { return a.dtype == type && (a.strides[a.rank - 1] == 1 || k == 1); }
};

/// Scratch memory of a call that adds in T: operands in elements of Item, sums in those of T.
template <class T, class Item>
struct Layout {
  static constexpr bool kIsPairs = !std::is_same_v<T, Item>;
  /// Elements in a cache line or so, to which operands are rounded up.
  static constexpr int64_t kRound = 16 * static_cast<int64_t>(sizeof(T) / sizeof(Item));

  int64_t width;
  bool is_left_in_place;
  int64_t left_stride = kLeftStride;
  int64_t left, right, c, c_stride, line;
  /// Operands in float32, of which parts are made: the left one unless it can be read where it lies, and panels.
  int64_t numbers = 0, panels = 0;
  int parts;

  Layout(const Problem& p, int64_t panel_width)
      : width(panel_width),
        is_left_in_place(p.parts == 1 && p.is_left_in_place(DTypeOf<Item>()) && !(kIsPairs && p.k % 2 != 0)),
        parts(p.parts) {
    if (p.way == Way::kTiles) {
      const int64_t panel_cols = RoundUp(std::min(p.n, kPackCols), width);
      const int64_t depth = std::min(p.k, kBlockDepth);
      c_stride = RoundUp(std::min(p.n, kBlockCols), width);
      if (p.uses_unit) left_stride = kUnitLeftStride;
      left = is_left_in_place ? 0 : RoundUp(parts * p.group_rows * left_stride, kRound);
      right = p.is_prepared ? 0 : RoundUp(panel_cols * PanelDepth(depth), kRound);
      c = RoundUp(p.group_rows * c_stride, 16);
      if (parts > 1) {
        numbers = p.is_left_in_place(p.a.dtype) ? 0 : RoundUp(p.group_rows * kLeftStride, 16);
        panels = p.is_prepared ? 0 : RoundUp(panel_cols * depth, 16);
      }
      line = kLines * kBlockDepth;
    } else {
      c_stride = RoundUp(std::min(p.n, p.unit_cols * p.most_units), 16);
      left_stride = RoundUp(std::min(p.k, p.way == Way::kColumns ? kStreamDepth : kBlockDepth), 16);
      left = is_left_in_place ? 0 : p.m * left_stride;
      c = p.m * c_stride;
      right = p.way == Way::kRows ? c : 0;  // the sums of one block of the depth
      line = std::max(kLines * kBlockDepth, c_stride);
    }
  }

  /// What tiles take for that depth, and the rows of a panel: of all its parts.
  static constexpr int64_t TileDepth(int64_t depth) { return kIsPairs ? simd::EvenDepth(depth) : depth; }
  int64_t PanelDepth(int64_t depth) const { return parts * TileDepth(depth); }

  int64_t Bytes() const {
    return (left + right) * static_cast<int64_t>(sizeof(Item)) +
           (c + line + numbers + panels) * static_cast<int64_t>(sizeof(T));
  }
};

}  // namespace reprise::kernels::matmul
