// SPDX-License-Identifier: Apache-2.0
//
// Dropout through a mask of packed bits: bit i % 8 of byte i / 8 belongs to element i, 1 keeps it. A mask has whole
// groups of 16 bytes; the bits behind the last element are 0.
//
// Formulas  DropoutMask   bit i = word i of the draw (philox.h, one word for each element) says keep: it is not below
//                         p * 2^32, so the same elements are kept as by a draw of kDropout
//           ApplyDropout  out = bit ? self * scale : 0; float32 for the 16-bit types, rounded once
// Aliasing  out may be the very same view as self.
#pragma once

#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int64_t kMaskGroup = 16;  ///< bytes

/// Bytes of a mask for `count` elements.
constexpr int64_t DropoutMaskBytes(int64_t count) {
  return (count + 8 * kMaskGroup - 1) / (8 * kMaskGroup) * kMaskGroup;
}

/// Writes the groups [range.begin, range.end) of a mask of which the first `count` bits are drawn.
///
/// \param p  probability to drop, in [0, 1]
void DropoutMask(double p, uint64_t seed, uint64_t position, int64_t count, const TensorRef& mask, Range range);

/// \param mask   uint8, read in row-major order; at least a byte for 8 elements
/// \param range  row-major elements; begins at a multiple of 8
void ApplyDropout(const TensorRef& self, const TensorRef& mask, double scale, const TensorRef& out, Range range);

}  // namespace reprise::kernels
