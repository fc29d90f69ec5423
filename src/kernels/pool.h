// SPDX-License-Identifier: Apache-2.0
//
// Pooling over the last two or three dims; the dims before them are taken one by one.
//
// Max       out = the largest element of the window; NaN is larger than everything. Exact. The index of an element is
//   h * W + w in its plane; the first of several equal ones counts (of several NaNs the last), the first of the window
//   where all are -inf.
// Average   out = sum of the window / divisor: divisor_override, or the size of the window, or that of its part inside
//   of the input, with count_include_pad false. Sums of rows first, then along the row, in float32 (float64 for
//   float64); rounded once. The order depends on the window alone.
// Adaptive  window o of n covers [floor(o * in / n), ceil((o + 1) * in / n)).
// Backward  every gradient goes back to where its output came from; sums in float32 (float64), in the order of the
//   outputs, rounded once. An index outside of the plane is passed over.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// One dim of a pool.
struct PoolDim {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t pad = 0;        ///< in front
  int64_t pad_after = 0;  ///< what count_include_pad counts behind
  int64_t dilation = 1;
  bool is_adaptive = false;  ///< kernel, stride, pad and dilation say nothing
};

/// Elements of a window, about as many where it is adaptive.
inline int64_t WindowSize(const PoolDim& dim) {
  return dim.is_adaptive ? (dim.in + dim.out - 1) / dim.out : dim.kernel;
}

struct PoolShape {
  PoolDim d, h, w;
  int64_t divisor_override = 0;
  bool count_include_pad = true;
};

/// Output rows: the units of the two functions below. `out` is [leading.., D, H, W].
int64_t PoolRowCount(const TensorRef& out);

/// `indices` has the shape of out and is int32 or int64; `mask` is [leading.., kernel elements, any] of bytes:
/// mask[.., t, h * OW + w] = 1 where output (h, w) comes from element t of its window, else 0, and 0 to the end of the
/// row. Either may be null. D is 1.
void MaxPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef* indices,
             const TensorRef* mask, Range rows, void* scratch);
void AvgPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows, void* scratch);
/// For a call of either.
int64_t PoolScratchBytes(const PoolShape& shape);

/// The gradients go from grad_out to grad_in; units are the planes of grad_in.
void MaxPoolBackward(const TensorRef& grad_out, const TensorRef& indices, const TensorRef& grad_in, Range planes,
                     void* scratch);
void AvgPoolBackward(const PoolShape& shape, const TensorRef& grad_out, const TensorRef& grad_in, Range planes,
                     void* scratch);
/// For a call of either.
int64_t PoolBackwardScratchBytes(const TensorRef& grad_out, const TensorRef& grad_in);

}  // namespace reprise::kernels
