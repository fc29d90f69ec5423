// SPDX-License-Identifier: Apache-2.0
//
// Batched product of int8 matrices.
//
// Formula   out[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]; batch dims of a and b broadcast to those of out.
// Accumulation  int32, modulo 2^32: exact, in any order. The result may go on to numbers before it is stored
//   (kernels/quantize.h).
// Aliasing  none: out must not overlap an input or the scratch memory.
#pragma once

#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Whether MatMul with these operands is one of these products.
bool IsInt8Product(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out);

/// Work items, and bytes of scratch of a call, aligned to 64.
int64_t Int8MatMulUnitCount(const TensorRef& out, int64_t depth);
int64_t Int8MatMulScratchBytes(const TensorRef& out, int64_t depth);

/// \param a, b     int8, rank at least 2, any strides
/// \param out      int32
/// \param range    of work items
/// \param epilogue null: out is the sums
void Int8MatMul(const TensorRef& a, const TensorRef& b, const TensorRef& out, Range range, void* scratch,
                const MatMulEpilogue* epilogue = nullptr);
/// \param out      any type that DequantizeSums takes
/// \param factors  what DequantizeSums makes of the sums; its `sums` does not count
void Int8MatMul(const TensorRef& a, const TensorRef& b, const DequantizeOperands& factors, const TensorRef& out,
                Range range, void* scratch);

}  // namespace reprise::kernels
