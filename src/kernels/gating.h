// SPDX-License-Identifier: Apache-2.0
//
// Choice of experts: softmax of each row and its k greatest elements.
//
// Formula   p = softmax(x[row]); y[row, j] = the j-th greatest of p, expert[row, j] = where it is in the row, source
//           [row, j] = j * rows + row. Of equal ones the first counts as greater, NaN is greater than any number. A
//           finished row has expert = columns of x.
// Accumulation  float32; y is rounded once.
// NaN, Inf  as softmax.h.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Rows have two indices: row = i * x.sizes[1] + j.
///
/// \param x         [i, j, column]
/// \param finished  bool [i, j], or without data
/// \param y         [i, j, k]; expert and source alike, of int32
/// \param range     counts rows
/// \param scratch   8 bytes for each column
void ChooseExperts(const TensorRef& x, const TensorRef& finished, const TensorRef& y, const TensorRef& expert,
                   const TensorRef& source, Range range, void* scratch);

}  // namespace reprise::kernels
