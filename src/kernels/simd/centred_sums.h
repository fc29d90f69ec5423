// SPDX-License-Identifier: Apache-2.0
//
// Sums over a block of float32, and the scaling that follows them, compiled once per instruction set, with the same
// bits on each: element i is added to lane i % 32, lanes are folded pairwise (l with l + 16, then with l + 8, ..).
// Nothing is fused.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Sum of x[i].
float SumBlock(const float* x, int64_t n);
/// Sum of (x[i] - centre)^2.
float SumSquares(const float* x, float centre, int64_t n);
/// Sum of g[i] * (x[i] - centre).
float SumProducts(const float* g, const float* x, float centre, int64_t n);

/// out[i] = (x[i] - centre) * scale + shift; out may be x.
void ScaleRow(const float* x, float centre, float scale, float shift, int64_t n, float* out);

}  // namespace reprise::kernels::simd
