// SPDX-License-Identifier: Apache-2.0
//
// Rows (the last dim) that end as integers of 8 or 4 bits, or begin as such.
//
// Accumulation  float32, each step rounded.
// Integers  the nearest, ties to even, clamped to what the type holds; NaN becomes 0. Where `is_packed` says so an
//   int32 holds eight numbers of 4 bits, the first in the lowest bits.
// Step      of dynamic quantization: max |v| * ratio / top, v / step is stored; where it is 0, zeros are; NaN and zeros
//   where v has a NaN.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// y = x / scale + offset or x * scale + offset.
struct ScaleQuantization {
  TensorRef x = {};
  TensorRef smooth = {};  ///< broadcasts to x, which it multiplies first; or without data
  TensorRef scale = {};   ///< broadcasts to x; with groups [groups, n]
  TensorRef offset = {};  ///< broadcasts to x, or without data
  TensorRef y = {};
  TensorRef group_ends = {};  ///< [groups] of a matrix x, or without data; rows beyond become 0
  bool divides = false;
  bool is_packed = false;
};
void QuantizeByScale(const ScaleQuantization& operands, Range rows);

/// How a row becomes integers by what is in it.
struct DynamicQuantization {
  TensorRef x = {};
  TensorRef smooth = {};  ///< broadcasts to x, or without data
  TensorRef extent = {};  ///< float32 [rows, 2], least and greatest, of which those of `share` rows count together; or
                          ///< without data: the row's own
  int64_t share = 1;
  TensorRef y = {};
  TensorRef step = {};    ///< float32, one for each row of x, or for `share` of them; or without data
  TensorRef offset = {};  ///< alike: v / step + offset, step = (max - min) / 255; without data: symmetric
  float top = 127;
  float ratio = 1;
  bool is_packed = false;
};
void QuantizeDynamically(const DynamicQuantization& operands, Range rows);
/// extent[row] = least and greatest element of x * smooth; NaN both where there is one.
void FindExtents(const TensorRef& x, const TensorRef& smooth, const TensorRef& extent, Range rows);

/// gelu(x), then * smooth and dynamic, or * scale + offset.
struct GeluQuantization {
  TensorRef x = {}, scale = {}, offset = {};  ///< the last two [n] or [1], or without data
  TensorRef y = {}, step = {};                ///< step without data: static
  bool is_tanh = false;
};
int64_t GeluQuantizeScratchBytes(int64_t n);
void GeluQuantize(const GeluQuantization& operands, Range rows, void* scratch);

/// x * rstd * gamma + beta, then / scale or * scale, + offset.
struct NormQuantization {
  TensorRef x = {}, gamma = {}, beta = {}, scale = {},
            offset = {};        ///< beta and offset may have no data; scale and offset [n] or [1]
  TensorRef y = {}, rstd = {};  ///< rstd float32, one for each row, or without data
  float epsilon = 0;
  bool divides = false;
  bool is_packed = false;
};
int64_t NormQuantizeScratchBytes(int64_t n);
void NormQuantize(const NormQuantization& operands, Range rows, void* scratch);

/// Numbers again: y = (x + offset) * scale, scale twice if `square`. x is int8, or packed int32.
void Antiquantize(const TensorRef& x, bool is_packed, const TensorRef& scale, const TensorRef& offset, bool square,
                  const TensorRef& y, Range rows);

/// Blocks of rows by columns of the last two dims: step = max(max |x| / top, least), y = x / step.
struct BlockQuantization {
  TensorRef x = {}, y = {}, step = {};  ///< step [.., blocks down, blocks across]
  int64_t rows = 1, columns = 1;
  float top = 127, least = 0;
};
/// \param blocks  counts rows of blocks: blocks down of each matrix
void QuantizeBlocks(const BlockQuantization& operands, Range blocks);

/// q = round(x / scale) + zero; mask = low <= q <= high; out = (clamp(q) - zero) * scale, or x and true if `enabled` is
/// 0. scale and zero broadcast to x.
struct FakeQuantization {
  TensorRef x = {}, scale = {}, zero = {}, out = {}, mask = {};
  int64_t low = 0, high = 0;
  bool enabled = true;
};
void FakeQuantize(const FakeQuantization& operands, Range rows);

/// Rows of `self` from index[b] on along dim `axis` become those of updates[b], / scale + zero.
struct QuantScatter {
  TensorRef self = {};              ///< int8, at least 2 dims
  TensorRef index = {};             ///< integers [batch]; updates that lie beyond self write nothing
  TensorRef updates = {};           ///< as many dims as self
  TensorRef scale = {}, zero = {};  ///< broadcast to updates; zero without data: 0
  int axis = 1;
};
/// \param rows  counts rows of updates
void ScatterQuantized(const QuantScatter& operands, Range rows);

/// Clamps each group of `group` elements of a row to alpha times its greatest, unless alpha is outside (0, 1).
void ClampGroups(const TensorRef& x, const TensorRef& alpha, int64_t group, Range rows);

/// The gradient of x * rstd * gamma for x, / scale or * scale, + offset, and the sum of that for gamma.
struct NormGradQuantization {
  TensorRef dy = {}, x = {}, rstd = {}, gamma = {}, scale = {},
            offset = {};  ///< gamma [n]; scale and offset [n] or [1], offset maybe without data
  TensorRef y = {};
  bool divides = false;
};
int64_t NormGradQuantizeScratchBytes(int64_t n);
/// \param dgamma  [n], to which the rows are added
void NormGradQuantize(const NormGradQuantization& operands, float* dgamma, Range rows, void* scratch);
/// out[i] = sum of partials[.., i]. \param range  counts elements of out
void SumLines(const TensorRef& partials, const TensorRef& out, Range range);

/// out[m, n] = sum over b of sums[b, m, n] * row_scale[b, m], * scale[n]. \param rows  counts rows of out
void ReduceScaledSums(const TensorRef& sums, const TensorRef& row_scale, const TensorRef& scale, const TensorRef& out,
                      Range rows);

/// out[index[r]] += sums[r] * scale[group of r] * row_scale[r] * weight[r], over shared_weight * shared from row
/// `shared_first` on.
struct GroupedRowSum {
  TensorRef sums = {};       ///< int32 [rows, n]
  TensorRef scale = {};      ///< [groups, n]: numbers, or 64 bits of PackQuantParam
  TensorRef row_scale = {};  ///< [rows], or without data; and the next
  TensorRef weight = {};
  TensorRef index = {};   ///< integers [rows]
  TensorRef groups = {};  ///< integers: ends, or counts
  TensorRef shared = {};  ///< [.., n], or without data
  TensorRef out = {};     ///< float32 [.., n]
  bool holds_ends = false;
  float shared_weight = 1;
  int64_t shared_first = 0;
};
/// Columns of a work item.
inline constexpr int64_t kGroupedRowSumColumns = 256;
/// \param blocks  of columns
void SumGroupedRows(const GroupedRowSum& operands, Range blocks);

/// out = (sums + bias) * scale, by dim 1. \param scale  [channels] or [1]: numbers, or 64 bits of PackQuantParam
/// \param bias  [channels], or without data \param rows  counts rows of out
void ScaleChannels(const TensorRef& sums, const TensorRef& scale, const TensorRef& bias, const TensorRef& out,
                   Range rows);

/// out = gelu(x), row by row.
void GeluOfRows(const TensorRef& x, bool is_tanh, const TensorRef& out, Range rows);

}  // namespace reprise::kernels
