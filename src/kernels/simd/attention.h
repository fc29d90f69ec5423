// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies of attention, compiled once per instruction set. Fused multiply-add is used where the
// processor has it, so bits may differ between instruction sets. Every element is one chain of operations in a fixed
// order, which depends on the sizes alone.
#pragma once

#include <cstdint>

#include "kernels/float16.h"

namespace reprise::kernels::simd {

/// Rows of scores are padded to a multiple of this many.
inline constexpr int64_t kScorePad = 16;

/// Columns of one panel on this processor; divides 32.
int64_t AttentionPanelWidth();

/// panels[p][k][j] = keys[p * width + j][k]; columns behind `count` are zero.
void PackKeys(const float* keys, int64_t stride, int64_t count, int64_t depth, float* panels);

/// panels[p][k][j] = values[k][p * width + j]; columns behind `depth` are zero.
void PackValues(const float* values, int64_t stride, int64_t count, int64_t depth, float* panels);

/// What matters of each row: columns of c below cols[i], elements of left below depth[i], behind which they are 0.
/// Null: all.
struct PanelEnds {
  const int32_t* cols = nullptr;
  const int32_t* depth = nullptr;
};

/// c[rows x cols] = left[rows x depth] * panels, or += if `accumulates`; cols is rounded up to whole panels. Tiles of c
/// that do not matter are left alone.
void MultiplyPanels(const float* left, int64_t left_stride, int64_t rows, const float* panels, int64_t depth,
                    int64_t cols, float* c, int64_t c_stride, bool accumulates, const PanelEnds& ends = {});

/// scores[r][j] = queries[r] . keys[j]; keys are widened on the way, which gives the bits that float32 ones give.
void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const float* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride);
void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const Half* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride);
void DotKeys(const float* queries, int64_t query_stride, int64_t rows, const BFloat16* keys, int64_t key_stride,
             int64_t count, int64_t depth, float* scores, int64_t score_stride);

/// out[r] += sum over j of weights[r][j] * values[j], in order; values are widened on the way.
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const float* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride);
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const Half* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride);
void AddValues(const float* weights, int64_t weight_stride, int64_t rows, const BFloat16* values, int64_t value_stride,
               int64_t count, int64_t depth, float* out, int64_t out_stride);

/// The greatest of x[0, n); NaN may or may not win. \pre n is a multiple of kScorePad.
float MaxOf(const float* x, int64_t n);

/// x[i] = exp(x[i] - shift); the sum of the results. At most 2 ulp off, results below 2^-126 are 0. \pre as above.
float ExpSum(float* x, float shift, int64_t n);

/// x[i] *= factor.
void ScaleRow(float* x, float factor, int64_t n);

}  // namespace reprise::kernels::simd
