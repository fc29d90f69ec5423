// SPDX-License-Identifier: Apache-2.0
//
// Choice of the next token among the most likely ones, and the bookkeeping between two steps of a decoder.
//
// Formula of a row of logits (or of probabilities, whose logits are their logarithms)
//   (1) of the largest top_k, where 1 <= top_k <= the limit: those that are not less than the last of them stay
//   (2) p = softmax of what stays; in ascending order what has a cumulative p of at most 1 - top_p goes, where
//       top_p < 1, but for the largest
//   (3) what has less than min_p times the largest p goes, where there is a min_p
//   (4) the token is that with the largest p / (|q| + eps), or p without q; of equal ones the first
// Accumulation  float64.
// NaN  counts as the smallest number; of a row of -Inf the first token stays.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Matrices [batch, vocabulary] and vectors [batch]. Null: absent, or not wanted.
struct TokenSampling {
  const TensorRef* logits;
  const TensorRef* top_k;
  const TensorRef* top_p;
  const TensorRef* q = nullptr;
  const TensorRef* min_p = nullptr;
  const TensorRef* token;
  const TensorRef* kept = nullptr;    ///< logits, or probabilities; -Inf, or 0, for those that went
  const TensorRef* order = nullptr;   ///< the tokens by descending logits
  const TensorRef* sorted = nullptr;  ///< p in that order, 0 for those that went
  double eps = 0;
  int64_t most_k = 0;
  bool is_logits = true;
};

int64_t TokenSamplingScratchBytes(int64_t vocabulary);
void SampleTokens(const TokenSampling& sampling, void* scratch, Range rows);

/// Sequence i gets its sampled token and a place in the cache:
///   tokens = sampled, positions = lengths, lengths = lengths + 1,
///   slots = blocks[i, positions / block_size] block_size + positions % block_size
/// A position for which the table has no block leaves the slot as it is. All int64 but for blocks.
struct AdvanceStep {
  const TensorRef* tokens;
  const TensorRef* positions;
  const TensorRef* lengths;
  const TensorRef* slots;
  const TensorRef* sampled;
  const TensorRef* blocks;
  int64_t block_size = 1;
};
void AdvanceSequences(const AdvanceStep& step, Range sequences);

}  // namespace reprise::kernels
