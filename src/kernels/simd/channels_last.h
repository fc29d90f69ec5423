// SPDX-License-Identifier: Apache-2.0
//
// The inner blocks of convolutions over tensors whose channels lie back to back (NHWC), compiled once per instruction
// set: outputs of some pixels by a panel of channels stay in registers over taps and channels of the input. Each output
// is a chain of its own, so bits depend neither on how pixels are cut into tiles nor on who computes them.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// (x - centre) * scale + shift, each by itself: one number for each channel.
struct ChannelScaling {
  const float* centre = nullptr;
  const float* scale = nullptr;  ///< null: there is no scaling
  const float* shift = nullptr;
};

/// What becomes of the sums when they are complete, in this order.
struct PixelEpilogue {
  const float* bias = nullptr;    ///< one number for each column; null: none
  ChannelScaling scaling;         ///< of columns
  const float* addend = nullptr;  ///< of pixel p, column j: addend[p * addend_stride + j]; null: none
  int64_t addend_stride = 0;
  bool clamps = false;   ///< NaN stays NaN, zeros stay as they are
  bool is_relu = false;  ///< what is not above 0 becomes 0; NaN stays NaN
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
  const float* next;    ///< panels that will be read after these, to be fetched meanwhile; null: none
  int64_t columns;
  float* out;
  int64_t out_stride;  ///< from one pixel to the next
  bool accumulates;    ///< adds to what is there
  bool is_last;        ///< the epilogue follows
  PixelEpilogue epilogue;
  /// A row of zeros: taps all of whose rows it is are left out, so that numbers of panels have to be finite. null: none
  /// are.
  const float* zeros = nullptr;
};
void MultiplyPixels(const PixelBlock& block);

/// out[p, c] = sum over y, x of rows[y * row_stride + p * pixel_step + x * tap_step][c] * weights[y, x, c], each
/// channel by itself, y first; then the epilogue.
struct PlanePixels {
  const float* const* rows;  ///< by row of the kernel, then column of the input
  int64_t row_stride;        ///< from one row of the kernel to the next
  int64_t pixel_step, tap_step;
  int64_t pixels;
  int64_t kernel_h, kernel_w;
  const float* weights;  ///< [kernel_h, kernel_w, channels]
  int64_t channels;
  float* out;
  int64_t out_stride;
  PixelEpilogue epilogue;
};
void FilterPixels(const PlanePixels& block);

/// out[p, j] = the sum over t, in order, of taps[t][p * step + j]; outputs beside them stay as they are.
struct TapSums {
  const float* const* taps;  ///< of pixel 0; whole fours of floats are read behind each pixel
  int64_t count;
  int64_t step;  ///< from one pixel to the next
  int64_t pixels;
  int64_t columns;  ///< at most 8
  float* out;
  int64_t out_step;
};
void SumTaps(const TapSums& block);

/// out[p, j] = the epilogue of in[p, j], as if that were a sum. out may be in.
struct FinishedPixels {
  const float* in;
  int64_t pixels, columns;
  float* out;
  int64_t stride;  ///< of both, from one pixel to the next
  PixelEpilogue epilogue;
};
void FinishPixels(const FinishedPixels& block);

/// out[p, c] = in[p, c] * factors[c]; pixels lie one after the other. out may be in.
struct ScaledPixels {
  const float* in;
  int64_t pixels, channels;
  float* out;
  const float* factors;
};
void ScalePixels(const ScaledPixels& block);

/// out[c] = the largest of pixels[i][c] for i < count, -inf where there are none; NaN where there is one. out may be
/// pixels[0].
void LargestOfPixels(const float* const* pixels, int64_t count, int64_t channels, float* out);

}  // namespace reprise::kernels::simd
