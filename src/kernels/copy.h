// SPDX-License-Identifier: Apache-2.0
//
// Moving elements: copy with conversion, fill, concatenation. Permute, expand
// and slice are copies from a view with other strides.
//
// Formula   dst[i] = cast(src[i]); conversions by the rules of cast.h. Equal
//   types are copied bit for bit.
// Aliasing  dst may be the very same view as src when the item sizes are equal;
//   other overlap is not allowed. No two elements of dst may share memory.
// Splitting every element is independent: any partition gives the same bits.
#pragma once

#include <span>

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Copies src, broadcast to dst's shape, into dst. `range` counts elements of
/// dst (FullRange(dst) is everything).
void Copy(const TensorRef& src, const TensorRef& dst, Range range);

/// dst[i] = cast(value); `range` counts elements of dst.
void Fill(const TensorRef& dst, const Scalar& value, Range range);

/// Sets the elements to all-zero bits.
void Zero(const TensorRef& dst, Range range);

/// Concatenates along `dim` (counted from the front). The sources have dst's
/// rank and its sizes but for `dim`, where theirs add up to dst's; rank-1
/// sources with no elements are skipped whatever dst's rank. `range` counts
/// elements, source after source; FullRange(dst) is everything.
void Concat(std::span<const TensorRef> sources, int dim, const TensorRef& dst, Range range);

}  // namespace reprise::kernels
