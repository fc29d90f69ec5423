// SPDX-License-Identifier: Apache-2.0
//
// Matrix product with a weight of 8 or 4 bits, which becomes float32 block by block on the way.
//
// Formula   out[m, n] = sum over k of x[m, k] * w[k, n] + bias[n],
//   w[k, n] = (weight[k, n] + offset[g, n]) * scale[g, n], g = k / group.
// Accumulation  float32.
// Order     k ascends within blocks of 256, whose sums are added in order; where the weight is contiguous in k, a block
//   is summed in as many chains as a vector has lanes. Up to 16 rows and a weight of int8 that is contiguous in a dim:
//   x[m, k] * weight[k, n] is summed like that for each group, and then (that + offset * sum of x) * scale over groups.
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
  int64_t group = 0;  ///< rows that share a scale
  TensorRef scale;    ///< [k / group rounded up, n]; size 1 repeats
  TensorRef offset;   ///< the same; without data: 0
};

/// Columns of out that one work item computes.
inline constexpr int64_t kAntiquantColumns = 256;

int64_t AntiquantUnitCount(int64_t columns);
/// Bytes of scratch for one call, aligned to 64.
int64_t AntiquantScratchBytes();

/// \param x     [m, k], float32, float16 or bfloat16
/// \param bias  without data: none; [n]
/// \param out   [m, n], of those types
/// \param units  blocks of kAntiquantColumns columns
void AntiquantMatMul(const TensorRef& x, const AntiquantWeight& weight, const TensorRef& bias, const TensorRef& out,
                     Range units, void* scratch);

}  // namespace reprise::kernels
