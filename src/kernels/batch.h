// SPDX-License-Identifier: Apache-2.0
//
// Tensors as batches: the last dims are one entry, a row or a matrix, the others count entries.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Where entry `batch`, counted row-major over the batch dims of `shape`, begins in `ref`, whose batch dims broadcast
/// to them. `ref_dims` and `shape_dims` dims at the end are no batch dims.
inline char* EntryOf(const TensorRef& ref, int ref_dims, const TensorRef& shape, int shape_dims, int64_t batch) {
  int64_t offset = 0;
  for (int back = 1; back <= shape.rank - shape_dims; ++back) {
    const int64_t size = shape.sizes[shape.rank - shape_dims - back];
    const int d = ref.rank - ref_dims - back;
    if (d >= 0 && ref.sizes[d] != 1) offset += batch % size * ref.strides[d];
    batch /= size;
  }
  return static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype);
}

/// The number of that entry among those of `ref`, counted row-major.
inline int64_t EntryIndexOf(const TensorRef& ref, int ref_dims, const TensorRef& shape, int shape_dims, int64_t batch) {
  int64_t index = 0;
  int64_t step = 1;
  for (int back = 1; back <= shape.rank - shape_dims; ++back) {
    const int64_t size = shape.sizes[shape.rank - shape_dims - back];
    const int d = ref.rank - ref_dims - back;
    if (d < 0) break;
    if (ref.sizes[d] != 1) index += batch % size * step;
    step *= ref.sizes[d];
    batch /= size;
  }
  return index;
}

/// Number of entries.
inline int64_t EntryCount(const TensorRef& shape, int shape_dims) {
  int64_t count = 1;
  for (int d = 0; d < shape.rank - shape_dims; ++d) count *= shape.sizes[d];
  return count;
}

}  // namespace reprise::kernels
