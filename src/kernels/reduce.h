// SPDX-License-Identifier: Apache-2.0
//
// Sums over any set of dims.
//
// Formula   out[kept] = sum over the reduced dims of cast(self, compute); no
//   elements give 0.
// Accumulation  float32 for float32, float16, bfloat16; float64, complex64 and
//   complex128 in their own type; integers and bool modulo 2^64. The sum is
//   cast once to out's type (integers wrap).
// Order     one fixed tree: the reduced elements in row-major order are cut into
//   blocks of 512; element i of a block goes to lane i % 16, the lanes are added
//   pairwise, and so are the block sums. It depends on the number of reduced
//   elements alone, so neither the range nor the strides change a bit. The
//   error grows with the logarithm of the number of blocks.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Sums self over the dims whose bits are set in `dim_mask` (bit d: dim d).
///
/// \param compute  type that the elements are cast to before they are added
/// \param out      the kept dims of self, in order; reduced dims are absent
/// \param range    counts elements of out (FullRange(out) is everything)
void ReduceSum(const TensorRef& self, uint32_t dim_mask, DType compute, const TensorRef& out, Range range);

}  // namespace reprise::kernels
