// SPDX-License-Identifier: Apache-2.0
//
// Matrix product with a weight of 8 or 4 bits, which becomes float32 block by block on the way.
//
// Formula   out[m, n] = sum over k of x[m, k] * w[k, n] + bias[n],
//   w[k, n] = (weight[k, n] + offset[g, n]) * scale[g, n], g = k / group.
// Accumulation  float32.
// Order     k ascends within blocks of 256, whose sums are added in order. Up to 16 rows and a weight whose numbers lie
//   back to back in a dim: x[m, k] * (weight[k, n] + offset[g, n]) is summed for a group, or a part of it, then
//   multiplied by its scale and added: along columns in as many chains as a vector has lanes, along rows 8 numbers at a
//   time. Rows of 16 bits times 4 bits along rows, on processors with products of bfloat16, and up to 48 rows: 16 rows
//   of the weight, in pairs; sum of x * weight + offset * sum of x. So, too, 6 rows of bfloat16 and more times other
//   numbers, and more than 48 times those: a group at a time, or what a block has of it. Not a matter of the range.
// Rounding  each step in float32, the result once to out's type.
// NaN, Inf  as IEEE 754.
// Aliasing  none: out must not overlap an input or the scratch memory.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// How 4-bit numbers lie in an element, eight in an int32 and two in an int8: the first in the lowest bits.
enum class Packing : uint8_t { kNone, kAlongRows, kAlongColumns };

struct AntiquantWeight {
  TensorRef weight;  ///< int8 [k, n]; packed by p numbers: [k, n / p] along rows, [k / p, n] along columns
  Packing packing = Packing::kNone;
  int64_t group = 0;         ///< rows that share a scale
  TensorRef scale;           ///< [k / group rounded up, n]; size 1 repeats
  TensorRef offset;          ///< the same; without data: 0
  bool is_prepared = false;  ///< weight.data is what PrepareAntiquant has made
};

/// Columns of out that one work item computes.
inline constexpr int64_t kAntiquantColumns = 128;

int64_t AntiquantUnitCount(int64_t columns);
/// Bytes of scratch for one call, aligned to 64.
int64_t AntiquantScratchBytes();

/// Bytes of a form of the weight that products with this x read faster, with the same bits; 0: there is none.
int64_t PreparedAntiquantBytes(const TensorRef& x, const AntiquantWeight& weight);
/// Products of more rows have no such form on this processor.
int64_t MostPreparedAntiquantRows();
/// \param weight  4 bits, packed along rows
/// \param to      aligned to 64
void PrepareAntiquant(const TensorRef& weight, void* to);

/// \param x     [m, k], float32, float16 or bfloat16
/// \param bias  without data: none; [n]
/// \param out   [m, n], of those types
/// \param units  blocks of kAntiquantColumns columns
void AntiquantMatMul(const TensorRef& x, const AntiquantWeight& weight, const TensorRef& bias, const TensorRef& out,
                     Range units, void* scratch);

}  // namespace reprise::kernels
