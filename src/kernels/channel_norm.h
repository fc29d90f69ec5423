// SPDX-License-Identifier: Apache-2.0
//
// Batch and group normalisation: tensors [N, C, ..] with statistics for each channel, or for each group of channels of
// each entry of the batch.
//
// Formula   out = (self - mean) / sqrt(var + eps) * weight + bias, var without Bessel's correction. The backward
// formula
//   of group normalisation, with y = (self - mean) * rstd, g = grad * gamma, n elements in a group:
//     grad_in = rstd * (g - sum(g) / n - y * sum(g * y) / n), grad_gamma = sum(grad * y), grad_beta = sum(grad)
// Accumulation  elements are float32 (float64 for float64). Of each block of 512 (float32 by the lanes of
//   simd/centred_sums.h) mean and squares of the differences from it; blocks are joined in float64. Statistics are
//   rounded once. With one element for each channel of an entry of the batch sums of 64 elements are joined so.
// Order     that of the elements; it does not depend on strides.
// NaN, Inf  as IEEE 754.
// Aliasing  none; elements without training: out may be self.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct BatchNormArgs {
  const TensorRef* self;
  const TensorRef* weight = nullptr;  ///< null: 1
  const TensorRef* bias = nullptr;    ///< null: 0
  const TensorRef* running_mean = nullptr;
  const TensorRef* running_var = nullptr;
  const TensorRef* out;
  const TensorRef* save_mean = nullptr;    ///< written when training
  const TensorRef* save_invstd = nullptr;  ///< written when training
  bool training = false;  ///< statistics of self, which move the running ones; otherwise the running ones
  double momentum = 0;
  double eps = 0;
};

/// A unit is a channel.
void BatchNorm(const BatchNormArgs& args, Range channels);

/// The same without training, for elements [begin, end) of self and out, which are contiguous and of float32: the same
/// bits, however the elements are cut.
void BatchNormElements(const BatchNormArgs& args, Range elements);

/// The numbers of that formula for all channels: (x - centre) * scale + shift.
void BatchNormScaling(const BatchNormArgs& args, int64_t channels, float* centre, float* scale, float* shift);

struct GroupNormArgs {
  const TensorRef* self;
  const TensorRef* gamma = nullptr;  ///< null: 1
  const TensorRef* beta = nullptr;   ///< null: 0
  const TensorRef* out;
  const TensorRef* mean;  ///< [N, groups], as rstd
  const TensorRef* rstd;
  int64_t groups = 1;
  double eps = 0;
};

/// A unit is a group of an entry of the batch.
void GroupNorm(const GroupNormArgs& args, Range units);

struct GroupNormBackwardArgs {
  const TensorRef* grad_out;
  const TensorRef* self;
  const TensorRef* mean;
  const TensorRef* rstd;
  const TensorRef* gamma = nullptr;
  const TensorRef* grad_in = nullptr;  ///< null: not wanted
  const TensorRef* sums;               ///< float64 [N, C, 2]: sum(grad * y), sum(grad)
  int64_t groups = 1;
};

/// Writes grad_in and sums. A unit is a group of an entry of the batch.
void GroupNormBackward(const GroupNormBackwardArgs& args, Range units);
/// out[c] = sum of sums[.., c, which] over the batch; a unit is a channel.
void GroupNormParameterGrad(const TensorRef& sums, int64_t which, const TensorRef& out, Range channels);

}  // namespace reprise::kernels
