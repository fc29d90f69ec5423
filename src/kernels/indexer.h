// SPDX-License-Identifier: Apache-2.0
//
// Indexer: light scores of all keys for each query, which tell the keys that attention is worth.
//
// Formula   I[i, j] = sum over heads h of weight[i, h] * relu(query[i, h] . key[j]) * factor[j], where the factor of a
//           query, if there is one, is part of its weight.
//           ChooseKeys: the `count` keys with the greatest I that query i sees, greatest first, of equal ones the
//           first; -1 and -Inf behind them. IndexerSums: max over j of I[i, j], sum over j of exp(I[i, j] - max).
//           Backward, for given dI: dweight[i, h] = sum dI relu(q . k), dquery[i, h] = weight * sum dI * [q . k > 0] *
//           k, dkey[j] alike. For the loss of IndexerLoss, dI = softmax(I) - P with P the mean over heads of the
//           weights of attention to the same keys, and loss = sum over rows and keys of P * (ln P - ln softmax(I)).
// Accumulation  float32.
// NaN       is greater than all numbers.
// Aliasing  none.
#pragma once

#include "kernels/token_sequences.h"

namespace reprise::kernels {

struct IndexerSetup {
  TokenLayout layout;
  int64_t heads = 1;     ///< of queries
  int64_t kv_heads = 1;  ///< divides heads
  int64_t depth = 0;
  int64_t count = 0;  ///< keys to choose

  int64_t items() const { return layout.rows() * kv_heads; }
};

/// Views are [batch, head, token, element]; absent ones have no data.
struct IndexerOperands {
  TokenLengths lengths;
  TensorRef query;
  TensorRef key;
  TensorRef weight;        ///< [batch, head, token, 1]
  TensorRef query_factor;  ///< [batch, head, token, 1]
  TensorRef key_factor;    ///< [batch, key head, token, 1]
  TensorRef choice;        ///< int32 [batch, key head, token, count]; for the backward pass absent: all keys
  TensorRef values;        ///< [batch, key head, token, count]
  TensorRef maximum;       ///< float32 [batch, key head, token, 1]
  TensorRef sum;
};

int64_t IndexerScratchBytes(const IndexerSetup& setup);

/// Writes `choice`, and `values` if they are there. \param range  counts rows and their key heads
void ChooseKeys(const IndexerSetup& setup, const IndexerOperands& operands, Range range, void* scratch);

/// Writes `maximum` and `sum`; a row that sees no key gets -Inf and 0.
void IndexerSums(const IndexerSetup& setup, const IndexerOperands& operands, Range range, void* scratch);

/// What attention weighs the same keys with.
struct IndexerTarget {
  int64_t heads = 0, kv_heads = 1;
  int64_t depth = 0, rope_depth = 0;
  float scale = 1;
};
struct IndexerTargetOperands {
  TensorRef query, query_rope, key, key_rope;  ///< as ChosenOperands
  TensorRef maximum, sum;                      ///< float32 [batch, head, token, 1]
};

/// The gradients. `key` is float32 [batch, head, token, element], to which is added; the others are written for the
/// queries of sequences.
struct IndexerGradients {
  TensorRef score;  ///< dI, [batch, key head, token, count]; absent: that of the loss
  TensorRef query;
  TensorRef key;
  TensorRef weight;
  TensorRef loss;  ///< float32 [sequence, key head]
};

int64_t IndexerBackwardScratchBytes(const IndexerSetup& setup, const IndexerTarget& target);

/// \param operands  `maximum` and `sum`, if they are there, are those of IndexerSums, else they are worked out
/// \param range     counts pairs of a sequence and a key head
void IndexerBackward(const IndexerSetup& setup, const IndexerOperands& operands, const IndexerTarget& target,
                     const IndexerTargetOperands& target_operands, const IndexerGradients& gradients, Range range,
                     void* scratch);

}  // namespace reprise::kernels
