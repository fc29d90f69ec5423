// SPDX-License-Identifier: Apache-2.0
//
// What tiles of products ask memory for while they multiply. Internal to simd/.
#pragma once

#include <cstdint>

#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels::simd {

// Memory that a tile asks for: at each step of the depth as many bytes as its panels have there.
struct Ahead {
  const char* data = nullptr;  // null: nothing
  int64_t step = 0;            // bytes
  int64_t steps = INT64_MAX;   // until the end of a row,
  int64_t jump = 0;            // and from there to the next one
};

// What will be read next, in the order of memory: the first tile of each panel asks for its share of the rows.
class Prefetcher {
 public:
  // `row_bytes`: of a row of a panel
  Prefetcher(const NextRead* next, int64_t depth, int64_t row_bytes) : depth_(depth), row_bytes_(row_bytes) {
    if (next == nullptr) return;
    next_ = *next;
    row_bytes_ /= next_.share;
  }
  // For the first tile of `count` panels from `panel` on.
  Ahead OfPanels(int64_t panel, int64_t count) const {
    if (next_.data == nullptr) return {};
    if (next_.rows == 1) return {next_.data + panel * depth_ * row_bytes_, count * row_bytes_};
    const int64_t step = count * row_bytes_;
    const int64_t steps = (next_.row_bytes + step - 1) / step;
    const int64_t row = panel * depth_ * row_bytes_ / next_.row_bytes;
    return {next_.data + row * next_.row_stride, step, steps, next_.row_stride - steps * step};
  }

 private:
  NextRead next_;
  int64_t depth_;
  int64_t row_bytes_;
};

}  // namespace reprise::kernels::simd
