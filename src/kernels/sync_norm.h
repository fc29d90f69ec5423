// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation in pieces, for batches that lie on several devices: statistics of one part, their union, the
// normalisation by given statistics, and the same for gradients. Tensors are [N, C, ..], statistics have one element
// for each channel; a unit is a channel.
//
// Formulas, sums over all elements of the channel, count = their number
//   Sums        sum = sum of x, squares = sum of x^2
//   Stats       mean = sum / count, invstd = 1 / sqrt(sum of (x - mean)^2 / count + eps)
//   Normalise   out = (x - mean) invstd weight + bias
//   Gradients   sum_dy = sum of dy, sum_dy_xmu = sum of dy (x - mean), of weight sum_dy_xmu invstd, of bias sum_dy
//   GradientOfX (dy - sum_dy / total - (x - mean) invstd^2 sum_dy_xmu / total) invstd weight
//   Gather      of parts with count n_i, mean m_i, invstd s_i, whose variance is 1 / s_i^2 - eps: those of their union
//   GatherSums  of parts with sums and squares: mean, 1 / sqrt(var + eps)
//   Both gathers move running statistics: old (1 - momentum) + new momentum, the variance with Bessel's correction.
// Accumulation  float64, each result is rounded once. Order: that of the elements.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Null where a function does not use it, or nobody wants it.
struct SyncNormArgs {
  const TensorRef* x = nullptr;
  const TensorRef* dy = nullptr;
  const TensorRef* mean = nullptr;
  const TensorRef* invstd = nullptr;
  const TensorRef* weight = nullptr;   ///< null: 1
  const TensorRef* bias = nullptr;     ///< null: 0
  const TensorRef* sum = nullptr;      ///< of x or of dy
  const TensorRef* product = nullptr;  ///< of x its squares, of dy its products with x - mean
  const TensorRef* of_weight = nullptr;
  const TensorRef* of_bias = nullptr;
  const TensorRef* out = nullptr;
  const TensorRef* counts = nullptr;  ///< of the parts
  const TensorRef* running_mean = nullptr;
  const TensorRef* running_var = nullptr;
  const TensorRef* all_mean = nullptr;
  const TensorRef* all_invstd = nullptr;
  double momentum = 0;
  double eps = 0;
};

void SyncNormSums(const SyncNormArgs& args, Range channels);
void SyncNormStats(const SyncNormArgs& args, Range channels);
void SyncNormalise(const SyncNormArgs& args, Range channels);
void SyncNormGradients(const SyncNormArgs& args, Range channels);
void SyncNormGradientOfX(const SyncNormArgs& args, Range channels);
/// mean and invstd are [parts, C].
void SyncNormGather(const SyncNormArgs& args, Range channels);
/// sum and product are [parts, C].
void SyncNormGatherSums(const SyncNormArgs& args, Range channels);

}  // namespace reprise::kernels
