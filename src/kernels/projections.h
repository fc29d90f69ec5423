// SPDX-License-Identifier: Apache-2.0
//
// What models put behind and beside their matrix products.
//
// Formulas
//   FuseRows   out = f(x), or x + other, x * other
//   AddLora    out[b] = y[b], and in columns [offset, offset + width) + scale (x[b] A^T) B^T for the matrices that
//              indices[b] chooses; a negative index, or one beyond the matrices, chooses none. Without A: scale x[b]
//              B^T
//   DeltaRule  for each token of a sequence, with S [Dv, Dk] of each head of the values:
//              S = exp(g) S exp(gk)^T, S = S + beta (v - S k) k^T, out = scale S q
//              S begins as the state of the last accepted token of the sequence and is stored behind each token.
//              Indices of states that do not exist are not read (S = 0) and not written.
// Accumulation  float64 (DeltaRule float32), each result is rounded once.
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

struct DeltaRule {
  const TensorRef* out;                 ///< [T, Nv, Dv]
  const TensorRef* state;               ///< [blocks, Nv, Dv, Dk]
  const TensorRef* query;               ///< [T, Nk, Dk]
  const TensorRef* key;                 ///< [T, Nk, Dk]
  const TensorRef* value;               ///< [T, Nv, Dv]
  const TensorRef* beta = nullptr;      ///< [T, Nv]; null: 1
  const TensorRef* g = nullptr;         ///< [T, Nv]; null: 0
  const TensorRef* gk = nullptr;        ///< [T, Nv, Dk]; null: 0
  const TensorRef* lengths;             ///< [sequences]
  const TensorRef* indices;             ///< [T]
  const TensorRef* accepted = nullptr;  ///< [sequences]; null: 1
  double scale = 1;
};
int64_t DeltaRuleScratchBytes(const DeltaRule& rule);
/// An item is a head of the values.
void RunDeltaRule(const DeltaRule& rule, void* scratch, Range heads);

}  // namespace reprise::kernels
