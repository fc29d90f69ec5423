// SPDX-License-Identifier: Apache-2.0
//
// The inner block of a matrix product over packed panels, float32 and float64,
// compiled once per instruction set. Fused multiply-add is used where the
// processor has it, so bits may differ between instruction sets (not between
// shapes of the block: each element is one chain over the depth, in order).
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Rows of one panel of the left operand, on every processor.
inline constexpr int64_t kPanelHeight = 6;

/// Columns of one panel of the right operand on this processor; divides 32.
int64_t PanelWidth(float);
int64_t PanelWidth(double);

/// Right operand: element (k, j) of panel p lies at
/// data[p * panel_stride + k * row_stride + j].
template <class T>
struct RightPanels {
  const T* data;
  int64_t panel_stride;
  int64_t row_stride;
};

/// c[rows x cols] = left * right, or += if `accumulates`.
///
/// `left` is packed: element (i, k) at
/// left[(i / kPanelHeight) * depth * kPanelHeight + k * kPanelHeight + i % kPanelHeight].
/// Rows of c are `c_stride` elements apart. \pre cols is a multiple of
/// PanelWidth(T()); depth > 0.
void MultiplyBlock(const float* left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows, int64_t cols,
                   int64_t depth, bool accumulates);
void MultiplyBlock(const double* left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates);

}  // namespace reprise::kernels::simd
