// SPDX-License-Identifier: Apache-2.0
//
// Gradients of the parameters of layers: the weights of convolutions, sums over all but the channels, batch
// normalisation.
//
// Formulas
//   weight of a convolution  out[a, b, k] = sum over n and i of left[n, a, i] right[n, b', i stride - pad + k dilation]
//                            with b' the channel b of the group that a belongs to
//   sum of channels          out[c] = sum over n and i of in[n, c, i]
//   batch normalisation      with s = sum g, p = sum g (x - mean), N elements of a channel and w the weight or 1:
//                            of x: (g - s / N - (x - mean) p invstd^2 / N) invstd w, or g invstd w where the statistics
//                            are constants; of the weight: p invstd; of the bias: s
// Accumulation  rows of a convolution in float32 (float64 for float64) as eight partial sums, their sums in float64;
// the
//   other sums in float64. Any partition of the units gives the same bits.
// NaN, Inf  IEEE 754. Aliasing: none.
#pragma once

#include <cstdint>

#include "kernels/convolution.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// A convolution as its weight sees it: left and right are the ends that its elements join.
struct ConvGradientShape {
  int64_t groups = 1;
  ConvDim dims[3];  ///< `out` are those of left, `in` those of right
};

/// left and right are [N, C, D, H, W] of one floating type with rows in a row; out [A, B, kD, kH, kW]. A unit is a pair
/// of channels: A * B.
void ConvWeightGradient(const ConvGradientShape& shape, const TensorRef& left, const TensorRef& right,
                        const TensorRef& out, Range units, void* scratch);
int64_t ConvWeightGradientScratchBytes(const ConvGradientShape& shape);

/// `in` is [N, C, ..]; a unit is a channel.
void SumOfChannels(const TensorRef& in, const TensorRef& out, Range channels);

struct BatchNormGradient {
  const TensorRef* grad = nullptr;
  const TensorRef* x = nullptr;
  const TensorRef* weight = nullptr;  ///< null: 1
  const TensorRef* mean = nullptr;
  const TensorRef* variance = nullptr;  ///< of constant statistics; else null
  const TensorRef* invstd = nullptr;    ///< of the batch; else null
  double eps = 0;
  const TensorRef* of_x = nullptr;  ///< null: not wanted
  const TensorRef* of_weight = nullptr;
  const TensorRef* of_bias = nullptr;
};

/// grad, x and of_x are [N, C, ..], the others [C]; a unit is a channel.
void BatchNormBackward(const BatchNormGradient& operands, Range channels);

}  // namespace reprise::kernels
