// SPDX-License-Identifier: Apache-2.0
//
// Resizing of planes, and sampling of planes at given points.
//
// Resize    each dim has a table: output o is the weighted sum of `taps` inputs. Rows are combined first, then the
//   elements along the row, in float32 (float64 for float64); rounded once. With one tap elements are copied, whatever
//   their type, and exactly.
// Sample    out[n, c, h, w] = self[n, c] at the point grid[n, h, w] = (x, y), where -1 and 1 are the centres of the
//   outermost elements (align_corners) or their outer edges. Points and weights in float32 (float64). A point that is
//   NaN counts as one far outside; nothing outside of the plane is read.
// NaN, Inf  as IEEE 754; an element with weight 0 counts (0 * Inf is NaN).
// Aliasing  none.
#pragma once

#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

/// One dim of a resize: output o reads index[o * taps + k] with weight[o * taps + k].
struct ResizeDim {
  int64_t in = 0;
  int64_t out = 0;
  std::vector<int32_t> index;
  std::vector<double> weight;
};

struct ResizeTable {
  int taps = 1;  ///< 1, 2 or 4
  ResizeDim h, w;
};

/// `out` is [leading.., H, W]; a unit is one of its rows.
void Resize(const ResizeTable& table, const TensorRef& self, const TensorRef& out, Range rows, void* scratch);
int64_t ResizeScratchBytes(const ResizeTable& table);

enum class SampleMode : uint8_t { kBilinear, kNearest, kBicubic };
enum class SamplePadding : uint8_t { kZeros, kBorder, kReflection };

struct SampleShape {
  SampleMode mode = SampleMode::kBilinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;
};

/// self [N, C, H, W], grid [N, OH, OW, 2], out [N, C, OH, OW]; a unit is a row of grid.
void GridSample(const SampleShape& shape, const TensorRef& self, const TensorRef& grid, const TensorRef& out,
                Range rows, void* scratch);
int64_t GridSampleScratchBytes(const SampleShape& shape, const TensorRef& self, const TensorRef& out);

/// The weights of the four elements around a point at `t` of the way between the inner two (Keys, a = -0.75).
template <class T>
inline void CubicWeights(T t, T* weights) {
  constexpr T kA = T(-0.75);
  const auto inner = [](T x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto outer = [](T x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  weights[0] = outer(t + 1);
  weights[1] = inner(t);
  weights[2] = inner(1 - t);
  weights[3] = outer(2 - t);
}

}  // namespace reprise::kernels
