// SPDX-License-Identifier: Apache-2.0
//
// The inner blocks of convolutions over tensors whose channels lie back to back (NHWC), compiled once per instruction
// set: outputs of some pixels by a panel of channels stay in registers over taps and channels of the input. Each output
// is a chain of its own, so bits depend neither on how pixels are cut into tiles nor on who computes them.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// What becomes of the sums when they are complete.
struct PixelEpilogue {
  const float* bias = nullptr;    ///< one number for each column; null: none
  const float* addend = nullptr;  ///< of pixel p, column j: addend[p * addend_stride + j]; null: none
  int64_t addend_stride = 0;
  bool clamps = false;  ///< NaN stays NaN
  float low = 0, high = 0;
};

/// out[p, j] (+)= sum over taps t and depth k of rows[t * row_stride + p][k] * panel[t, k, j]
struct PixelBlock {
  const float* const* rows;  ///< by tap, then pixel
  int64_t row_stride;        ///< from one tap to the next
  int64_t pixels;
  int64_t taps;
  int64_t first;  ///< element of each row that depth begins at
  int64_t depth;
  const float* panels;  ///< column panels, each [taps, depth, PanelWidth(float)]
  int64_t columns;
  float* out;
  int64_t out_stride;  ///< from one pixel to the next
  bool accumulates;    ///< adds to what is there
  bool is_last;        ///< the epilogue follows
  PixelEpilogue epilogue;
};
void MultiplyPixels(const PixelBlock& block);

/// out[p, c] = sum over taps of rows[t * row_stride + p][c] * weights[t, c]: each channel by itself, then the epilogue.
struct PlanePixels {
  const float* const* rows;
  int64_t row_stride;
  int64_t pixels;
  int64_t taps;
  const float* weights;  ///< [taps, channels]
  int64_t channels;
  float* out;
  int64_t out_stride;
  PixelEpilogue epilogue;
};
void FilterPixels(const PlanePixels& block);

}  // namespace reprise::kernels::simd
