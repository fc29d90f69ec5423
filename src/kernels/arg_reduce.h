// SPDX-License-Identifier: Apache-2.0
//
// The largest or smallest element along one dim, and where it is.
//
// Formula   values[kept] = largest x along dim, indices[kept] = the first place
//   where it is. NaN is larger and smaller than any number.
// Sameness  depends on neither range, strides nor a cut into parts.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// \param dim      of self; a self of rank 0 is one element
/// \param values   the kept dims of self; no data: not wanted
/// \param indices  the same, of an integer type
/// \param range    counts elements of indices
/// \pre the dim has elements; no complex types.
void ArgReduce(bool is_max, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
               Range range);

// ---- The same in parts, for few outputs of many elements each ----

/// Elements of one part.
inline constexpr int64_t kArgReducePart = 32768;

/// Type of partial values.
DType ArgReduceStage(DType self);

/// \param values, indices  contiguous, of ArgReduceStage and int64: [parts, kept dims]
/// \param range            counts elements of indices
void ArgReduceParts(bool is_max, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
                    Range range);

/// \param range  counts elements of indices
void ArgReducePartials(bool is_max, DType self, const TensorRef& part_values, const TensorRef& part_indices,
                       const TensorRef& values, const TensorRef& indices, Range range);

}  // namespace reprise::kernels
