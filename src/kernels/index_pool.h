// SPDX-License-Identifier: Apache-2.0
//
// Pools that tell which elements they chose, in volumes, and what goes the way back: gradients and unpooling.
//
// Max       out = the largest element of the window, index = (d * H + h) * W + w in its volume. Of several equal ones
// the
//   first counts; NaN is larger than everything, of several the last one counts. Exact.
// Scatter   out = 0, then out[index] += in or out[index] = in, in row-major order of in; an index beside the volume
//   writes nothing. Sums in float32 (float64 for float64), rounded once.
// Mask      mask[.., t, o] of bytes says that output o of a plane comes from element t of its window.
// Aliasing: none. Any partition of the units gives the same bits.
#pragma once

#include "kernels/pool.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// `self`, `out` and `indices` are [leading.., D, H, W], indices int32 or int64; a unit is a row of out.
void MaxPoolVolumes(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef& indices,
                    Range rows, void* scratch);
int64_t MaxPoolVolumesScratchBytes(const PoolShape& shape);

/// `in` and `indices` have one shape [leading.., D, H, W]; a unit is a volume of out.
void ScatterVolumes(const TensorRef& in, const TensorRef& indices, const TensorRef& out, bool adds, Range volumes,
                    void* scratch);
/// As ScatterVolumes, adding, for the mask of a pool of planes: D is 1.
void ScatterMasked(const PoolShape& shape, const TensorRef& in, const TensorRef& mask, const TensorRef& out,
                   Range volumes, void* scratch);
/// For a call of either.
int64_t ScatterVolumesScratchBytes(const TensorRef& out);

}  // namespace reprise::kernels
