// SPDX-License-Identifier: Apache-2.0
//
// Copies whose dims are cut into pieces: padding, roll, flip, repetition.
//
// Formula   out(i0, i1, …) = self(p0(i0), p1(i1), …), each p linear on every piece of its dim; the fill value where any
//   of them lies on a piece without a source.
// Elements are moved bit for bit. Aliasing: none. Any partition of the elements gives the same bits.
#pragma once

#include <span>
#include <vector>

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Positions [begin, end) of a dim of out come from source, source + step, … of self.
struct RemapPiece {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t source = 0;
  int64_t step = 1;  // 1, -1 or 0
  bool is_fill = false;
};

/// What to copy, without addresses. Filled from the outermost dim to the innermost, then Finish.
struct Remap {
  struct Dim {
    int64_t size = 0;
    int64_t out_stride = 0;   // bytes
    int64_t self_stride = 0;  // bytes
    std::vector<RemapPiece> pieces;
  };
  std::vector<Dim> dims;
  DType dtype = DType::kUndefined;
  alignas(16) char fill[16] = {};

  /// Drops and joins dims.
  void Finish();
};

/// `range` counts elements of out in row-major order.
void RunRemap(const Remap& remap, const char* self, char* out, Range range);

/// The columns of an image: see Unfold.
struct UnfoldWindow {
  int64_t kernel[2], dilation[2], padding[2], stride[2];
  int64_t out_size[2];  // positions of the window
};

/// out [n, c * kh * kw, oh * ow] = the elements of self [n, c, h, w] under each position of the window, 0 beside it.
/// `range` counts rows of out: n * c * kh * kw.
void Unfold(const TensorRef& self, const UnfoldWindow& window, const TensorRef& out, Range range);

}  // namespace reprise::kernels
