// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding: pairs of elements of the last dim are turned by an angle.
//
// Formula   y[i] = first(x)[i] * cos[i] + second(x)[i] * sin[i], where with the last dim n:
//             kHalf            first(x) = x,  second(x) = (-x[n/2 ..], x[.. n/2])
//             kInterleave      first(x) = x,  second(x) = (-x[1], x[0], -x[3], x[2], ..)
//             kQuarter         kHalf on each half of the row
//             kInterleaveHalf  first(x) = (x[0], x[2], .., x[1], x[3], ..), second(x) = (-x[1], -x[3], .., x[0], x[2],
//             ..)
//           Backward: dx is the transposed map of dy, dcos = sum of dy * first(x), dsin = sum of dy * second(x) over
//           the dims that cos and sin repeat.
// Accumulation  float32 (float64 for float64 is not offered); rounded once to the type of the result.
// NaN, Inf  as IEEE 754.
// Aliasing  y may be the very same view as x.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class RotaryMode : uint8_t { kHalf, kInterleave, kQuarter, kInterleaveHalf };

/// Rows of x, the work items of Rotate and RotateBackward.
int64_t RotaryRowCount(const TensorRef& x);

/// Bytes of scratch that one call needs.
int64_t RotaryScratchBytes(const TensorRef& x);

/// y = the rows of x turned. cos and sin have the rank of x; each of their dims but the last is that of x or has stride
/// 0. \pre the last dim is even, a multiple of 4 for kQuarter.
void Rotate(RotaryMode mode, const TensorRef& x, const TensorRef& cos, const TensorRef& sin, const TensorRef& y,
            Range range, void* scratch);

/// y = x * cos + turned * sin, for rows that were turned by a matrix. `turned` has the shape of x.
void CombineRotation(const TensorRef& x, const TensorRef& turned, const TensorRef& cos, const TensorRef& sin,
                     const TensorRef& y, Range range, void* scratch);

/// dx = the transposed map of dy.
void RotateBackward(RotaryMode mode, const TensorRef& dy, const TensorRef& cos, const TensorRef& sin,
                    const TensorRef& dx, Range range, void* scratch);

/// dcos and dsin; their dims that repeat have size 1. range: rows of dcos.
void RotaryAngleBackward(RotaryMode mode, const TensorRef& dy, const TensorRef& x, const TensorRef& dcos,
                         const TensorRef& dsin, Range range, void* scratch);

}  // namespace reprise::kernels
