// SPDX-License-Identifier: Apache-2.0
//
// Elements, or slices along a dim, without their duplicates.
//
// Result    values = one of each run of equal elements, in order; counts = the
//   lengths of the runs; inverse = for each element of self the number of its
//   run. Runs are those of self as it is, or of the sorted self; slices are
//   compared element by element in row-major order.
// NaN       equals nothing, itself included; sorted to the end. The zeros are
//   equal; of equal elements the first one is kept.
// Memory    values takes as many elements as self: what was found lies back to
//   back if values is contiguous, else at its strides.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Where results go; no data: not wanted.
struct UniqueOutputs {
  TensorRef values;
  TensorRef inverse;  ///< an integer type; one entry for each element (slice), in the shape of self or a vector
  TensorRef counts;   ///< an integer type; a vector
};

int64_t UniqueScratch(const TensorRef& self);
/// \returns the number of runs. \pre sorted: no complex type.
int64_t Unique(const TensorRef& self, bool sorted, const UniqueOutputs& outputs, void* scratch);

int64_t UniqueSlicesScratch(const TensorRef& self, int dim);
int64_t UniqueSlices(const TensorRef& self, int dim, bool sorted, const UniqueOutputs& outputs, void* scratch);

}  // namespace reprise::kernels
