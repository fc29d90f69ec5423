// SPDX-License-Identifier: Apache-2.0
//
// Attention of queries over keys and values that are read once, block by block; the matrix of scores never exists.
//
// Formula   s[i, j] = scale * (query[i] . key[j]) + shift[i, j]    (scale * (query[i] . key[j] + shift[i, j]) if
//             shift_first), -Inf where key j is hidden from query i;
//           out[i] = sum over j of exp(s[i, j] - m[i]) * keep[i, j] * value[j] / l[i], with
//           m[i] = max over j of s[i, j], l[i] = sum over j of exp(s[i, j] - m[i]) (+ exp(sink - m[i])).
// Accumulation  float32 for every type; a query is multiplied by scale first. Keys are taken in blocks of 128, from the
//           first on; the running sums are rescaled when the maximum grows. `out` is rounded once.
//           Types of 16 bits, more than 8 rows, with a matrix unit (simd/matrix_unit.h): sums are multiplied by scale
//           instead, weights are rounded to 16 digits, and a product of a weight and a value below 2^-126 counts as 0.
// Quantised  int8 keys and values count (x + offset) * scale, queries x * query_factor; the parts that come apart do
// not.
//           Scores are multiplied by score_factor, results by weight_factor * value_factor; with out_scale they become
//           int8: x * out_scale + out_offset, rounded to even, saturated.
// Hidden    key j of query i is seen if j < keys of the sequence, low <= j - i <= high, and its mask byte is 0. A query
//           that sees no key gets out = 0, maximum -Inf, sum 0 and log-sum +Inf. What lies behind the last key that any
//           of a few rows sees is not multiplied.
// NaN, Inf  a NaN score that is seen makes the row NaN, and so does +Inf.
// Sameness  a query's bits depend on its sequence and on how many queries the sequence has, not on the range.
// Aliasing  none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

/// A run of queries, the keys that they may see, and where both are.
struct AttentionSequence {
  int64_t query_batch = 0;  ///< of query, out and the statistics
  int64_t query_begin = 0;  ///< first token there
  int64_t queries = 0;
  int64_t kv_tensor = 0;  ///< which of the tensors of keys
  int64_t kv_batch = 0;   ///< of the tensor, or row of the block table
  int64_t kv_begin = 0;
  int64_t keys = 0;
  int64_t low = INT64_MIN / 4;  ///< query i sees keys i + low to i + high
  int64_t high = INT64_MAX / 4;
  int64_t prefix = 0;       ///< and keys below this one
  int64_t mask_batch = 0;   ///< of mask and shift
  int64_t drop_begin = 0;   ///< bit of query 0 of head 0 and key 0
  int64_t drop_stride = 0;  ///< bits between queries
  int64_t first_unit = 0;   ///< set by PrepareAttention, as the rest
  int64_t blocks = 0;       ///< of rows, of one key head
  int64_t block_rows = 0;
};

/// What does not depend on addresses.
struct AttentionSetup {
  int64_t heads = 1;
  int64_t kv_heads = 1;    ///< divides heads; heads [g * heads / kv_heads, ...) share key head g
  int64_t depth = 0;       ///< of queries and keys, all parts
  int64_t rope_depth = 0;  ///< the end of each query and key that is a tensor of its own
  int64_t value_depth = 0;
  float scale = 1;
  bool shift_first = false;
  float keep = 1;           ///< what drop keeps is divided by it
  int64_t page_tokens = 0;  ///< tokens in a block of paged keys; 0: they are not paged
  std::vector<AttentionSequence> sequences;
  // Set by PrepareAttention.
  bool is_split = false;  ///< units are pieces of keys; MergeAttention joins what they leave
  int64_t pieces = 1;
  int64_t piece_keys = 0;
  int64_t most_rows = 0;
  int64_t units = 0;
  int64_t merge_units = 0;
};

/// What int8 tokens stand for. Absent ones have no data.
struct TokenFactors {
  TensorRef scale;   ///< [batch, head, token, element], dims that repeat have stride 0; of_pages: [block, ..]
  TensorRef offset;  ///< alike
  bool of_pages = false;
};

/// Absent ones have no data. Every view has dims as written; size 1 with stride 0 repeats.
struct AttentionOperands {
  TensorRef query;         ///< [batch, head, token, depth]
  TensorRef mask;          ///< bytes, [batch, head, query, key]
  TensorRef shift;         ///< [batch, head, query, key]
  TensorRef drop;          ///< bits, lowest first; 1 keeps
  TensorRef table;         ///< int32, [batch, block]: which block of the keys; out of range ones are moved into it
  TensorRef sink;          ///< [head]
  TensorRef query_rope;    ///< the ends of the queries, as query
  TensorRef key_rope;      ///< the ends of the keys, as the only tensor of keys
  TensorRef query_factor;  ///< [batch, head, token, 1]
  TensorRef score_factor;  ///< a number: float32, or uint64 whose lower half has the bits of one; alike the next two
  TensorRef weight_factor;
  TensorRef value_factor;
  TensorRef out_scale;   ///< [1, head, 1, element], dims that repeat have stride 0
  TensorRef out_offset;  ///< alike
  TokenFactors key_factors;
  TokenFactors value_factors;
  TensorRef out;      ///< [batch, head, token, depth]
  TensorRef maximum;  ///< float32 [batch, head, token, copies], and the next two
  TensorRef sum;
  TensorRef log_sum;
  std::span<const TensorRef> keys;    ///< [batch, head, token, depth]; paged: [block, head, token, depth]
  std::span<const TensorRef> values;  ///< alike
};

/// Cuts the work into units.
///
/// \param capacity  most keys that a sequence can have: the cut depends on it, not on how many it has
void PrepareAttention(AttentionSetup& setup, int64_t capacity);

/// Bytes of scratch that one call of either function needs.
int64_t AttentionScratchBytes(const AttentionSetup& setup);

/// float32 elements that the units of a split setup leave for MergeAttention.
int64_t AttentionPartialCount(const AttentionSetup& setup);
/// The most that it is for plans of the same sizes and capacity, whatever their sequences.
int64_t MostAttentionPartials(const AttentionSetup& setup, int64_t capacity);

/// Does units [range.begin, range.end).
///
/// \param partial  AttentionPartialCount elements if is_split; the statistics and `out` are then left alone
/// \param scratch  AttentionScratchBytes bytes, aligned to 64
void Attend(const AttentionSetup& setup, const AttentionOperands& operands, Range range, float* partial, void* scratch);

/// Joins the pieces of a split setup; units [0, setup.merge_units).
void MergeAttention(const AttentionSetup& setup, const AttentionOperands& operands, Range range, const float* partial,
                    void* scratch);

/// Where the backward pass reads the gradient of the result and writes those of its operands; views as theirs.
struct AttentionGradients {
  TensorRef gradient;
  TensorRef query;
  TensorRef key;
  TensorRef value;
  TensorRef query_rope;  ///< of the ends, where they come apart
  TensorRef key_rope;
};

/// Bytes of scratch that one call of AttendBackward needs.
int64_t AttentionBackwardScratchBytes(const AttentionSetup& setup);

/// Backward: with P the weights of the forward pass divided by their sums, D = keep * P, and the gradient G of the
/// result, dvalue = D^T G and dS = P * (keep * (G value^T) - rowsum(G * out)), dquery = scale * dS key and
/// dkey = scale * dS^T query. float32 throughout, query blocks in order.
///
/// \param setup     prepared with capacity 0, without pages and with one tensor of keys
/// \param forward  its operands and what it made: out, maximum and sum
/// \param range    counts pairs of a sequence and a key head
void AttendBackward(const AttentionSetup& setup, const AttentionOperands& forward, const AttentionGradients& gradients,
                    Range range, void* scratch);

/// gradient of sink[h] = - sum over all queries of exp(sink[h] - m) / l * rowsum(G * out). \param range  counts heads
void SinkGradient(const AttentionSetup& setup, const AttentionOperands& forward, const TensorRef& gradient,
                  const TensorRef& sink_gradient, Range range);

}  // namespace reprise::kernels
