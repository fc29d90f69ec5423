// SPDX-License-Identifier: Apache-2.0
//
// Numbers to integers of 8 or 4 bits, a row (the last dim) at a time.
//
// Formula   Quantize: y = clamp(round(x * scale + offset)), with scale squared on demand.
//   DynamicQuantize: v = x * smooth; by row
//     symmetric:  scale = max |v| / top,                                     y = clamp(round(v / scale))
//     asymmetric: scale = (max v - min v) / (top - bottom), offset = top - max v / scale,
//                                                                            y = clamp(round(v / scale + offset))
//   with [bottom, top] = [-128, 127], or [-8, 7] for 4 bits. Where scale is 0, offset and y are 0.
// Accumulation  float32, each step rounded.
// Rounding  to nearest, ties to even, unless told otherwise. Four bits: element 8 i + j of a row is in bits 4 j .. 4 j
//   + 3 of its int32 i.
// NaN       becomes 0; a row of DynamicQuantize that has one has scale NaN, and zeros.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class Rounding : uint8_t { kNearest, kFloor, kCeil, kTrunc };

/// Rows of x; the work items of both.
int64_t QuantizeRowCount(const TensorRef& x);

/// \param x       float32, float16 or bfloat16
/// \param scale, offset  as many dims as x, size 1 repeats; offset without data: 0
/// \param y       int8 of x's shape, or int32 with an eighth of its last dim, for 4 bits
void Quantize(const TensorRef& x, const TensorRef& scale, const TensorRef& offset, bool square, Rounding rounding,
              const TensorRef& y, Range rows);

/// \param smooth  without data: 1; [n], or [e, n] with group_index
/// \param group_index  int32 or int64 [e], ascending: row r takes the first smooth[i] with r < group_index[i]; rows
///                     beyond the last take none
/// \param scale, offset  float32, the shape of x without its last dim; offset without data: symmetric
void DynamicQuantize(const TensorRef& x, const TensorRef& smooth, const TensorRef& group_index, const TensorRef& y,
                     const TensorRef& scale, const TensorRef& offset, Range rows);

/// What becomes of the int32 sums of a product of integers; absent operands have no data.
struct DequantizeOperands {
  TensorRef sums;       ///< int32 [.., m, n]
  TensorRef scale;      ///< [n] or [1]: float32, bfloat16, or 64 bits as PackQuantParam makes them
  TensorRef offset;     ///< [n] or [1]; without: what is packed in scale, else 0
  TensorRef row_scale;  ///< [m]
  TensorRef bias;       ///< [n], or [.., 1, n] as sums; int32 is added to the sums, others to the result
};
/// int32: y = sums + bias. Others: y = (sums + bias) * scale * row_scale + bias, rounded once; int8: with offset,
/// clamp(round(..)). \param rows  counts rows of sums
void DequantizeSums(const DequantizeOperands& operands, const TensorRef& y, Range rows);

/// y = bits of scale without the last 13, bit 46, and round(offset) from -256 to 255 in bits 37 to 45.
/// \param scale, offset  float32 [n] or [1]; offset without data: 0
/// \param rounds  the last 13 bits of scale round it away from 0 at the half, not: they are cut off
/// \param y  64-bit integers [n] \param range  counts elements of y
void PackQuantParam(const TensorRef& scale, const TensorRef& offset, bool rounds, const TensorRef& y, Range range);

/// y = the lowest 4 bits of each x, eight of a row in an int32, the first in the lowest bits.
/// \param x  int32 \param y  int32, an eighth of the last dim \param rows  counts rows
void PackInt4(const TensorRef& x, const TensorRef& y, Range rows);

}  // namespace reprise::kernels
