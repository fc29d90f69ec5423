// SPDX-License-Identifier: Apache-2.0
//
// Pictures of float32 between two layouts: channels in front (planes), as programs have them, and channels behind
// (pixels, one after another, each with all of its channels), as channels_last_conv.h reads and writes them.
//
// Aliasing  none.
#pragma once

#include "kernels/convolution.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Units of work for a view [N, C, D, H, W]; 0 where it has no elements.
int64_t PictureUnits(const TensorRef& planes);
/// Elements of a unit, at most.
int64_t PictureUnitElements(const TensorRef& planes);

/// pixels[n, z, y, x, c] = planes[n, c, z, y, x], for any strides of planes.
void PixelsOfPlanes(const TensorRef& planes, float* pixels, Range units);
/// planes[n, c, z, y, x] = pixels[n, z, y, x, c].
void PlanesOfPixels(const float* pixels, const TensorRef& planes, Range units);

/// columns[pixel, c, tap]: what a plain convolution of one group over two spatial dims reads for an output pixel, 0 in
/// the padding. A unit is a pixel of [N, H, W]; input is [N, C, 1, H, W] with any strides.
void Unfold(const ConvShape& shape, const TensorRef& input, float* columns, Range pixels);

}  // namespace reprise::kernels
