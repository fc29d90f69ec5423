// SPDX-License-Identifier: Apache-2.0
//
// Sampling of planes and volumes at given points, and its gradients; for any number of spatial dims.
//
// Formula   out[n, c, p] = sum over the taps of point p of weight * in[n, c, tap]. The taps are the product of those of
//   each axis: 2 (linear), 1 (nearest, halves to the even one), 4 (cubic, Keys with a = -0.75). A tap outside of `in`
//   counts as 0 after padding: zeros leaves it, border moves it to the nearest element, reflection mirrors it first.
// Gradients with regard to in: the transposed sum. With regard to the grid: the derivative of the weights along each
//   axis; 0 where padding holds a point fast, and for the nearest mode.
// Order     as taps, then channels, then points come; the result does not depend on how units are cut.
// Data      row-major, float32 or float64, in which all is computed. A coordinate that is NaN counts as one far
// outside.
#pragma once

#include "kernels/resize.h"
#include "kernels/strided.h"

namespace reprise::kernels {

struct GridSampling {
  SampleShape shape;
  int dims = 2;          ///< spatial; the grid tells the last one first
  int64_t size[3] = {};  ///< of in
  int64_t channels = 0;
  int64_t points = 0;  ///< of each item of the batch

  int64_t plane() const;
};

/// in [N, C, sizes], grid [N, points, dims], out [N, C, points]; a unit is a point of an item.
void SampleGrid(const GridSampling& sampling, DType type, const void* in, const void* grid, void* out, Range units);

/// Channels that a unit of SampleGridInputGradient does.
inline constexpr int64_t kSampleChannels = 8;
/// in_grad [N, C, sizes]; a unit is a group of kSampleChannels channels of an item.
void SampleGridInputGradient(const GridSampling& sampling, DType type, const void* grad, const void* grid,
                             void* in_grad, Range units);
/// grid_grad [N, points, dims]; a unit is a point of an item.
void SampleGridPointGradient(const GridSampling& sampling, DType type, const void* grad, const void* in,
                             const void* grid, void* grid_grad, Range units);

/// The points of an image that an affine map gives: out [N, sizes, dims] = theta [N, dims, dims + 1] x (position, 1),
/// positions between the centres (align_corners) or the edges of the outermost elements. A unit is a point of all.
void AffinePoints(DType type, int dims, const int64_t* sizes, bool align_corners, const void* theta, void* out,
                  Range units);

}  // namespace reprise::kernels
