// SPDX-License-Identifier: Apache-2.0
//
// Attention of each query to the keys that were chosen for it.
//
// Formula   s[i, j] = scale * (query[i] . key[j]) for the chosen keys j that query i sees;
//           out[i] = sum over j of exp(s[i, j] - m[i]) * value[j] / l[i], m and l as in attention.h.
//           Backward: P = exp(s - m) / l, G the gradient of out, dS = P * (G value^T - rowsum(G * out)):
//           dquery = scale * dS key, dkey = scale * dS^T query, dvalue = P^T G.
// Choice    entries of a list: entry e stands for keys [e * block, (e + 1) * block); those below 0 and behind the last
//           key that is seen stand for none, one that comes twice counts twice. Or a table: keys of block c are chosen
//           for queries of block r where a byte is not 0. Or all keys.
// Accumulation  float32; keys are taken in the order of the list, 64 at a time. Results are rounded once.
// Hidden    a query without keys gets out = 0, maximum -Inf, sum 0 and log-sum +Inf.
// Aliasing  none.
#pragma once

#include <vector>

#include "kernels/token_sequences.h"

namespace reprise::kernels {

/// What does not depend on addresses.
struct ChosenSetup {
  TokenLayout layout;
  int64_t heads = 1;
  int64_t kv_heads = 1;  ///< divides heads
  int64_t group = 1;     ///< heads of a work item: all of a key head, or 1
  int64_t depth = 0;     ///< of queries and keys, all parts
  int64_t rope_depth = 0;
  int64_t value_depth = 0;
  int64_t block = 1;        ///< keys of an entry or of a column of the table
  int64_t query_block = 1;  ///< queries of a row of the table
  float scale = 1;
  /// Not 0: a line of keys is bytes: int8 numbers, the turned part in the type of the queries, and a float32 factor for
  /// each `tile` of the numbers. The numbers are the values, too.
  int64_t tile = 0;

  int64_t items() const { return layout.rows() * (heads / group); }
};

/// Views are [batch, head, token, element]; absent ones have no data.
struct ChosenOperands {
  TokenLengths lengths;
  TensorRef query;
  TensorRef query_rope;  ///< the ends of the queries
  TensorRef key;
  TensorRef key_rope;
  TensorRef value;   ///< absent: the first elements of the keys
  TensorRef choice;  ///< int32 [batch, key head, token, entry]
  TensorRef table;   ///< bytes [batch, head, block of queries, block of keys]
  TensorRef mask;    ///< bytes [1, 1, token of the sequence, key]: not 0 hides
  TensorRef sink;    ///< [head]: takes part in the sum
  TensorRef out;
  TensorRef maximum;  ///< float32, and the next two
  TensorRef sum;
  TensorRef log_sum;
};

/// Bytes of scratch that one call of either function needs.
int64_t ChosenScratchBytes(const ChosenSetup& setup);

/// \param range  counts rows, and groups of heads in each
void AttendChosen(const ChosenSetup& setup, const ChosenOperands& operands, Range range, void* scratch);

/// Gradients: `query` and `query_rope` are written for the queries of sequences; to the others, which are float32
/// [batch, head, token, element], the gradients are added.
struct ChosenGradients {
  TensorRef gradient;
  TensorRef query;
  TensorRef query_rope;
  TensorRef key;  ///< both parts side by side
  TensorRef value;
};

/// \param forward  its operands and what it made: out, and maximum and sum, or log_sum
/// \param range    counts pairs of a sequence and a key head
void AttendChosenBackward(const ChosenSetup& setup, const ChosenOperands& forward, const ChosenGradients& gradients,
                          Range range, void* scratch);

/// Blocks of keys by what attention to compressed keys gives them. With P[c] the sum over the heads of a key head of
/// the weights of compressed key c, `block`, `stride` and `select` tokens of a window, between windows and of a block:
///     score[j] = sum over m < select / stride and n < block / stride of P[select / stride * j - m - n];
/// the `count` blocks with the greatest scores, greatest first, of equal ones the first; -1 behind them.
struct BlockChoice {
  int64_t block = 0, stride = 0, select = 0, count = 0;
  std::vector<int64_t> blocks;  ///< of each sequence
  TensorRef hidden;             ///< bytes [1, 1, token of the sequence, block]: not 0 leaves out; absent: none
  TensorRef choice;             ///< int32 [batch, key head, token, count]
};
int64_t BlockChoiceScratchBytes(const ChosenSetup& setup, const BlockChoice& choice);
/// \param forward  its operands and what it made: maximum and sum  \param range  counts rows and their key heads
void ChooseBlocks(const ChosenSetup& setup, const ChosenOperands& forward, const BlockChoice& choice, Range range,
                  void* scratch);

}  // namespace reprise::kernels
