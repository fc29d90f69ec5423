// SPDX-License-Identifier: Apache-2.0
//
// What models put behind and beside their matrix products.
//
// Formulas
//   FuseRows   out = f(x), or x + other, x * other
//   AddLora    out[b] = y[b], and in columns [offset, offset + width) + scale (x[b] A^T) B^T for the matrices that
//              indices[b] chooses; a negative index, or one beyond the matrices, chooses none. Without A: scale x[b]
//              B^T
// Accumulation  float64, each result is rounded once.
// NaN, Inf  as IEEE 754.
// Aliasing  the out of AddLora may be the very same view as y; else none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class RowFunction : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kFastGelu, kSilu, kAdd, kMul };

/// Items are elements of out; x, other and out have as many, in row-major order.
void FuseRows(RowFunction function, const TensorRef& x, const TensorRef* other, const TensorRef& out, Range range);

struct LoraRows {
  const TensorRef* out;
  const TensorRef* y;
  const TensorRef* x;            ///< [batch, H1]
  const TensorRef* b;            ///< [W, layers, H2, R]
  const TensorRef* a = nullptr;  ///< [W, layers, R, H1]
  const TensorRef* indices;      ///< [batch]
  int64_t layer = 0;
  double scale = 1;
  int64_t offset = 0;
  int64_t width = 0;
};
int64_t AddLoraScratchBytes(const LoraRows& rows);
/// An item is a row.
void AddLora(const LoraRows& rows, void* scratch, Range range);

}  // namespace reprise::kernels
