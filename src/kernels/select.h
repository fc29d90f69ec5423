// SPDX-License-Identifier: Apache-2.0
//
// Elements that a test picks, in row-major order; how many there are is part of the result. The work is cut into parts
// of kSelectPart elements: first each part is counted, then each writes behind those before it.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int64_t kSelectPart = 16384;

/// counts[p] = number of elements of part p that are not 0 (NaN is not), p in `range`. A stride of 0 repeats.
void CountNonZero(const TensorRef& self, int64_t* counts, Range range);

/// The sum of n counts.
int64_t TotalOf(const int64_t* counts, int64_t n);

/// Coordinates of the elements that are not 0: coordinate d of the i-th one goes to out[i * element_stride + d *
/// coordinate_stride], strides in elements of out's type.
void WriteNonZero(const TensorRef& self, const int64_t* counts, const TensorRef& out, int64_t element_stride,
                  int64_t coordinate_stride, Range range);

/// The elements of self, which has the shape of mask and out's type, where mask is not 0, to out, a vector.
void WriteMasked(const TensorRef& self, const TensorRef& mask, const int64_t* counts, const TensorRef& out,
                 Range range);

}  // namespace reprise::kernels
