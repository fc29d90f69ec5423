// SPDX-License-Identifier: Apache-2.0
//
// Windows of pools along one dim.
#pragma once

#include <algorithm>

#include "kernels/pool.h"

namespace reprise::kernels {

/// The part of a window inside of the input.
struct Window {
  int64_t begin;
  int64_t end;
  int64_t extent;  ///< elements that the divisor counts
};

inline Window WindowOf(const PoolDim& dim, int64_t o, bool count_include_pad) {
  if (dim.is_adaptive) {
    const int64_t begin = o * dim.in / dim.out;
    const int64_t end = ((o + 1) * dim.in + dim.out - 1) / dim.out;
    return {begin, end, end - begin};
  }
  const int64_t first = o * dim.stride - dim.pad;
  const int64_t last = std::min(first + dim.kernel, dim.in + dim.pad_after);
  const int64_t begin = std::max<int64_t>(first, 0);
  const int64_t end = std::min(last, dim.in);
  return {begin, end, count_include_pad ? last - first : end - begin};
}

}  // namespace reprise::kernels
