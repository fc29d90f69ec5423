// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies for contiguous rows of float32, float16 and bfloat16. Compiled
// once per instruction set and chosen at run time; every set gives the same
// bits, because each function is a fixed sequence of IEEE operations without
// fusion and the last partial vector runs through the same code.
//
// Aliasing: the output row may be an input row, other overlap is not allowed.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

/// out[i] = op(a[i], b[i]) as documented in elementwise.h.
/// \pre dtype is float32, float16 or bfloat16.
void BinaryRow(BinaryOp op, DType dtype, const void* a, const void* b, void* out, int64_t n, float alpha);

/// out[i] = op(a[i]). \pre dtype as above.
void UnaryRow(UnaryOp op, DType dtype, const void* a, void* out, int64_t n);

/// FindBinaryRow and FindUnaryRow of elementwise.h for the types above.
RowFn FindBinaryRow(BinaryOp op, DType dtype, bool is_scaled, bool b_is_single);
RowFn FindUnaryRow(UnaryOp op, DType dtype);

/// Conversion between float32 and a 16-bit float, either way.
void ConvertRow(DType from, DType to, const void* src, void* dst, int64_t n);

/// x[i] = exp(x[i] - shift), the softmax numerator.
void ExpShiftedRow(float* x, float shift, int64_t n);

}  // namespace reprise::kernels::simd
