// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies of normalize.h: contiguous rows of float32, one after the other. Every instruction set that has
// fused multiply-add gives the same bits: sums run in 32 lanes (element i in lane i % 32), folded pairwise, in blocks
// of 4096 elements whose sums are added in float64.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Sum of n elements.
float SumRow(const float* x, int64_t n);

// out may be x, dx may be dy.
void SoftmaxRows(const float* x, float* out, int64_t rows, int64_t n);
void LogSoftmaxRows(const float* x, float* out, int64_t rows, int64_t n);
/// Softmax (its logarithm) of columns: element i of column c lies at x[i * x_pitch + c].
void SoftmaxColumns(bool is_log, const float* x, int64_t x_pitch, float* out, int64_t out_pitch, int64_t columns,
                    int64_t n);
void SoftmaxGradRows(const float* dy, const float* y, float* dx, int64_t rows, int64_t n);
void LogSoftmaxGradRows(const float* dy, const float* y, float* dx, int64_t rows, int64_t n);

/// mean and rstd: one number for each row.
void LayerNormRows(const float* x, const float* weight, const float* bias, float eps, float* out, float* mean,
                   float* rstd, int64_t rows, int64_t n);
/// dx may be null, and so may dw and db together, to which the rows are added.
void LayerNormGradRows(const float* dy, const float* x, const float* mean, const float* rstd, const float* weight,
                       float* dx, float* dw, float* db, int64_t rows, int64_t n);
void RmsNormRows(const float* x, const float* weight, float eps, float* out, float* rstd, int64_t rows, int64_t n);
void RmsNormGradRows(const float* dy, const float* x, const float* rstd, const float* weight, float* dx, float* dw,
                     int64_t rows, int64_t n);

}  // namespace reprise::kernels::simd
