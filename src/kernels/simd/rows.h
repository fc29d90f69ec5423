// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies for contiguous rows of float32, float16 and bfloat16. Compiled once per instruction set and chosen at
// run time; every set gives the same bits, because each function is a fixed sequence of IEEE operations and the last
// partial vector runs through the same code. Exponentials, logarithms and their like (math-inl.h) multiply and add with
// one rounding where the set can: there all sets that can give the same bits.
//
// Aliasing: the output row may be an input row, other overlap is not allowed.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace reprise::kernels::simd {

/// Conversion between float32 and a 16-bit float, either way.
void ConvertRow(DType from, DType to, const void* src, void* dst, int64_t n);

/// x[i] = exp(x[i] - shift), the softmax numerator.
void ExpShiftedRow(float* x, float shift, int64_t n);

}  // namespace reprise::kernels::simd
