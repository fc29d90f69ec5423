// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of convolution.h, compiled once per instruction set: a row of outputs as a sum of shifted rows (fused
// multiply-add is used where the processor has it), and the packing of both operands of a product.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Elements that TapRow may read or write beyond the end of a row.
inline constexpr int64_t kTapRowSlack = 16;

/// out[i] = bias + sum over k of weight[k] * source[offset[k] + i], k ascending. `out` must not overlap the others.
void TapRow(const float* source, const int64_t* offset, const float* weight, int64_t taps, float bias, float* out,
            int64_t n);
void TapRow(const double* source, const int64_t* offset, const double* weight, int64_t taps, double bias, double* out,
            int64_t n);

/// One panel of the right operand of matmul_tile.h: to[k * width + j] = source[offset[k] + j] for j < width =
/// PanelWidth(T()).
void CopyPanel(const float* source, const int64_t* offset, int64_t depth, float* to);
void CopyPanel(const double* source, const int64_t* offset, int64_t depth, double* to);

}  // namespace reprise::kernels::simd
