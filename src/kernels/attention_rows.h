// SPDX-License-Identifier: Apache-2.0
//
// Rows around attention: results of two parts put together, heads of queries and keys normed and turned, windows of
// keys compressed to one.
//
// Accumulation  float32; results are rounded once.
// Aliasing  none.
#pragma once

#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

/// Results of attention to two sets of keys become that to both: with m = max(m1, m2), l = l1 exp(m1 - m) +
/// l2 exp(m2 - m), out = (out1 l1 exp(m1 - m) + out2 l2 exp(m2 - m)) / l. A part that saw no key (l 0) counts nothing.
/// Views are [batch, head, token, element]; maxima and sums are float32 with copies of each number.
struct RingParts {
  TensorRef out[2], maximum[2], sum[2];
  TensorRef new_out, new_maximum, new_sum;
};
/// \param scratch  3 lines of results, as floats  \param range  counts (batch, head, token) of new_out
void JoinRing(const RingParts& parts, Range range, float* scratch);

/// Heads of a token: those of queries and of keys are normed (x * gamma / sqrt(mean of squares + epsilon)) and turned
/// as RotaryMode::kHalf, those of values stay.
struct QkvHeads {
  TensorRef qkv;  ///< [token, (queries + keys + values) * size]
  TensorRef query_gamma, key_gamma;
  TensorRef cos, sin;  ///< [token, size]
  float epsilon = 0;
  int64_t size = 0;
  int64_t heads[3] = {};
  TensorRef query;       ///< [token, queries * size]
  TensorRef lines[2];    ///< float32 [token, .. * size] of keys and of values, for their caches
  TensorRef scales[2];   ///< [heads or 1, size or 1]: lines are divided by it and become int8; absent: they do not
  TensorRef offsets[2];  ///< alike, added before
  TensorRef copies[3];   ///< queries, keys, values before that; absent: not wanted
};
/// \param scratch  6 * size floats  \param range  counts tokens
void SplitQkv(const QkvHeads& heads, Range range, float* scratch);

/// Windows of `block` tokens become one: out[w, n, d] = sum over b of weight[b, n] * x[begin[w] + b, n, d].
struct Windows {
  int64_t block = 0;
  int64_t stride = 0;
  std::vector<int64_t> begins;      ///< first token of each window
  std::vector<int64_t> first, end;  ///< of each sequence: its windows, as places in begins
  std::vector<int64_t> tokens;      ///< of each sequence: first token; and behind the last one
};
/// x [token, head, element], weight [block, head]. \param range  counts windows
void CompressWindows(const Windows& windows, const TensorRef& x, const TensorRef& weight, const TensorRef& out,
                     Range range, float* scratch);
/// dx[t] = sum over windows w with t of weight[t - begin[w]] * dout[w]. \param range  counts tokens
void CompressInputBackward(const Windows& windows, const TensorRef& dout, const TensorRef& weight, const TensorRef& dx,
                           Range range, float* scratch);
/// dweight[b, n] = sum over w and d of dout[w, n, d] * x[begin[w] + b, n, d]. \param range  counts rows b
void CompressWeightBackward(const Windows& windows, const TensorRef& dout, const TensorRef& x, const TensorRef& dweight,
                            Range range);

/// The newest window of each sequence, where its last token completes one, into line slots[b] of out.
struct WindowCache {
  int64_t block = 0, stride = 0;
  std::vector<int64_t> lengths;  ///< of each sequence
  std::vector<int64_t> begins;   ///< of each sequence among packed tokens; none: tokens lie in pages
};
/// \param x      [token, head, element], or with a table pages [page, token, head, element]
/// \param table  int32 [sequence, page], or without data
/// \param slots  int32 or int64 [sequence]; what is no line of out is left out
void CompressNewest(const WindowCache& cache, const TensorRef& x, const TensorRef& weight, const TensorRef& table,
                    const TensorRef& slots, const TensorRef& out, Range range, float* scratch);

}  // namespace reprise::kernels
