// SPDX-License-Identifier: Apache-2.0
//
// Averages over the bins of boxes in images, and their gradient.
//
// Formula   box [n, x1, y1, x2, y2] of image n; with (x1, y1) scale - shift as its begin and (x2 + more, y2 + more)
// scale
//           - shift as its end, sizes at least `least`, it is cut into bins; out is the mean of `samples` x `samples`
//           points in the middle of equal parts of the bin (0: as many as the bin has pixels, rounded up), read
//           bilinearly. Points more than one pixel outside of the image are 0, others outside have its edge.
// Accumulation  float64, in the order of the boxes, bins and points.
// NaN, Inf  a point that is no number, or beyond, reads 0.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct RoiAlign {
  const TensorRef* image;  ///< [N, C, H, W]; of gradients the result
  const TensorRef* boxes;  ///< [R, 5]
  const TensorRef* out;    ///< [R, C, height, width]; of gradients the input
  double scale = 1;
  double shift = 0;
  double more = 0;
  double least = 1;
  int64_t samples = 0;
};

/// An item is a channel of a box. Boxes of images that do not exist give 0.
void RoiAlignForward(const RoiAlign& args, Range items);
/// An item is a channel of an image. \param scratch H W numbers of float64
void RoiAlignBackward(const RoiAlign& args, void* scratch, Range items);

}  // namespace reprise::kernels
