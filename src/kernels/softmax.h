// SPDX-License-Identifier: Apache-2.0
//
// Softmax along one dim.
//
// Formula   out[i] = exp(x[i] - max x) / sum over j of exp(x[j] - max x), with
//   x = cast(self, compute).
// Accumulation  float32 for float32, float16 and bfloat16, else float64; the sum
//   by the tree of reduce.h. The quotient is rounded once to out's type.
// NaN, Inf  a row with a NaN or a +Inf, or with nothing but -Inf, is all NaN;
//   otherwise -Inf gives 0.
// Sameness  a row's bits depend on its values only, not on strides or range.
// Aliasing  out may be the very same view as self when the item sizes are equal.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Number of rows, the work items of Softmax: elements over the size of `dim`.
int64_t SoftmaxRowCount(const TensorRef& out, int dim);

/// \param dim      counted from the front; rank 0 passes 0
/// \param compute  a floating type
/// \param range    counts rows ([0, SoftmaxRowCount(out, dim)) is everything)
void Softmax(const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range);

}  // namespace reprise::kernels
