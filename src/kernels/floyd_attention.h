// SPDX-License-Identifier: Apache-2.0
//
// Attention over triangles: query (n, m) looks at every k through the two edges (n, k) and (k, m).
//
// Formula   s[n, m, k] = scale * query[n, m] . (key1[n, k] + key2[k, m]), -Inf where the mask hides k;
//           out[n, m] = sum over k of P * (value1[n, k] + value2[k, m]), P = exp(s - max) / sum.
//           Backward: with G the gradient, dP = G . (value1 + value2), dS = P * (dP - rowsum(G * out)):
//           dquery = scale * sum over k of dS * (key1 + key2), dkey1[n, k] = scale * sum over m of dS * query,
//           dkey2[k, m] the sum over n; dvalue1[n, k] = sum over m of P * G, dvalue2[k, m] the sum over n.
// Accumulation  float32; rounded once.
// Hidden    a query that sees no k gets 0, maximum -Inf and sum 0.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Views are [batch, head, first, second, element].
struct FloydOperands {
  TensorRef query;
  TensorRef key[2], value[2];  ///< (n, k) and (k, m)
  TensorRef mask;              ///< bytes [batch, head, n, m, k], dims that repeat have stride 0; absent: none
  TensorRef out;
  TensorRef maximum, sum;  ///< float32 [.., copies]
  float scale = 1;
};
int64_t FloydScratchFloats(const FloydOperands& operands);
/// \param range  counts queries
void FloydAttention(const FloydOperands& operands, Range range, float* scratch);

struct FloydGradients {
  TensorRef gradient;
  TensorRef query;
  TensorRef key[2], value[2];
};
int64_t FloydBackwardScratchFloats(const FloydOperands& operands);
/// \param range  counts pairs of a batch and a head
void FloydBackward(const FloydOperands& forward, const FloydGradients& gradients, Range range, float* scratch);

}  // namespace reprise::kernels
