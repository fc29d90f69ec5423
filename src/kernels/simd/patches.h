// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of 3 x 3 taps by the minimal filtering of Winograd, F(2 x 2, 3 x 3), for tensors whose channels lie back
// to back: patches of 4 x 4 pixels, each of which gives 2 x 2 outputs. Patches and filters are transformed; the
// products over channels are those of one place in the patch, 16 for 4 outputs in place of 36; their sums are
// transformed back. Transforms add and subtract, and halve the filters. Compiled once per instruction set; bits depend
// on the patch alone.
#pragma once

#include <cstdint>

#include "kernels/simd/channels_last.h"

namespace reprise::kernels::simd {

inline constexpr int64_t kPatchPlaces = 16;  ///< pixels of a patch, row by row

/// out[place, p, c]: the patch p, transformed.
struct PatchBlock {
  const float* const* pixels;  ///< by place, then patch: the channels of the pixel
  int64_t patches;
  int64_t channels;
  float* out;  ///< [16, patches, channels]
};
void TransformPatches(const PatchBlock& block);

/// out[place, c]: the filter of one output and one input c, transformed; from [9, channels], rounded once.
void TransformFilter(const float* filter, int64_t channels, float* out);

/// What products gave, back to outputs, then the epilogue.
struct PatchSums {
  const float* sums;  ///< [16, patches, stride]
  int64_t patches;
  int64_t columns, stride;
  const int64_t* pixels;  ///< by patch, 2 x 2 each: which output pixel, as out and the epilogue count them; < 0: none
  float* out;
  int64_t out_stride;  ///< from one pixel to the next
  PixelEpilogue epilogue;
  /// Patches of which a sum is infinite or NaN are left out and listed here, at most as many as there are: what stands
  /// beside an infinity in a patch is lost in it.
  int64_t* left_out;
};
/// How many are left out.
int64_t FinishPatches(const PatchSums& block);

}  // namespace reprise::kernels::simd
