// SPDX-License-Identifier: Apache-2.0
//
// One row of outputs of a convolution as a sum of shifted rows, float32 and float64, compiled once per instruction set.
// Fused multiply-add is used where the processor has it.
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

}  // namespace reprise::kernels::simd
