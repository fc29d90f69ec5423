// SPDX-License-Identifier: Apache-2.0
//
// Softmax of rows that are scaled and masked first, and the pieces of a transformer around it.
//
// Formulas
//   MaskedSoftmax      y = softmax of scale x, where -10000 takes the place of what is masked
//   MaskedSoftmaxGrad  out = scale y (dy - sum of dy y), 0 where it is masked
//   BiasedSoftmax      y = softmax of scale x + mask + bias
//   GeluProduct        out = gelu(left half) right half, of the last dim
//   GeGluGrad          with left and right parts of self, forwards left gelu(right), or right gelu(left):
//                      the gradients of both parts, for gelu as it was computed
//   SplitHeads         q, k, v [B, heads, T, d] of qkv + bias [B, T, 3 heads d]; q is divided by sqrt(d)
// gelu is x Phi(x), or by tanh: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
// Accumulation  float64, in the order of the elements; each result is rounded once.
// NaN, Inf  as IEEE 754; a row with nothing but -Inf is NaN.
// Aliasing  a result of the softmaxes may be the very same view as x.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct MaskedRows {
  const TensorRef* out;
  const TensorRef* x;               ///< of gradients dy; [B, N, S, L]
  const TensorRef* y = nullptr;     ///< of gradients
  const TensorRef* mask = nullptr;  ///< [B or 1, N or 1, S, L]; null: what is right of the diagonal is masked
  double scale = 1;
};
/// \param scratch 3 L numbers of float64
void MaskedSoftmax(const MaskedRows& rows, void* scratch, Range range);
void MaskedSoftmaxGrad(const MaskedRows& rows, void* scratch, Range range);

struct BiasedRows {
  const TensorRef* out;
  const TensorRef* x;               ///< elements of [B, W, N, S, L]
  const TensorRef* mask = nullptr;  ///< elements of [W, S, L]
  const TensorRef* bias;            ///< elements of [N, S, L]
  double scale = 1;
  int64_t heads = 1;   ///< N
  int64_t steps = 1;   ///< S
  int64_t length = 1;  ///< L
};
void BiasedSoftmax(const BiasedRows& rows, void* scratch, Range range);

/// Items are elements of out. x is [rows, 2 n] in row-major order, out [rows, n].
void GeluProduct(const TensorRef& x, const TensorRef& out, bool by_tanh, int64_t n, Range range);

/// self and of_self are [outer, 2 n], of_out and gelu [outer, n] in row-major order; items are elements of of_out.
struct GeGluGradient {
  const TensorRef* of_out;
  const TensorRef* self;
  const TensorRef* gelu;
  const TensorRef* of_self;
  int64_t n = 0;
  bool by_tanh = true;
  bool activates_left = false;
};
void GeGluGrad(const GeGluGradient& args, Range range);

/// An item is a row [.., 3 heads d] of qkv.
void SplitHeads(const TensorRef& qkv, const TensorRef& bias, const TensorRef* const outs[3], Range rows);

}  // namespace reprise::kernels
