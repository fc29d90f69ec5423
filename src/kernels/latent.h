// SPDX-License-Identifier: Apache-2.0
//
// What lies between the products of latent attention: factors of quantised operands, norm, rotation, quantisation.
//
// Formula   x' = x * row_factor * column_factor, where they are there; norm: y = x' * gamma * scale / sqrt(mean of
//           squares of x' + epsilon); rotation as RotaryMode::kInterleaveHalf; quantised: round to even, saturated.
// Accumulation  float32; lines are float32 in memory of the operator.
// Aliasing  none but what is named in place.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Absent ones have no data. Factors are float32 with any strides.
struct LatentFactors {
  TensorRef row;     ///< [token]
  TensorRef column;  ///< [element]
};

/// lines[t] = the norm of its first elements, in place.
struct LatentNorm {
  TensorRef lines;  ///< float32 [token, element]
  LatentFactors factors;
  TensorRef gamma;  ///< [element]: as many elements are normed
  float epsilon = 0;
  float scale = 1;
  TensorRef smooth;      ///< [element]; multiplies before lines become integers
  bool to_int8 = false;  ///< lines become integers, x / s with s = max |x| / 127
  TensorRef line_scale;  ///< float32 [token]: s
  TensorRef copy;        ///< [token, element]: the lines; absent: not wanted
  TensorRef scale_copy;  ///< float32 [token]
  TensorRef out_scale;   ///< [1] or [element]: lines become round(x * out_scale)
};
/// \param range  counts tokens
void NormLatent(const LatentNorm& norm, Range range);

/// The end of each head of a line, turned.
struct LatentRotation {
  TensorRef lines;  ///< float32 [token, head, element]; factors are applied in place, to all elements
  LatentFactors factors;
  int64_t first = 0;    ///< of the elements that are turned
  TensorRef cos, sin;   ///< [token, element]
  TensorRef out_scale;  ///< [1] or [element]
  TensorRef out;        ///< [token, head, element]
};
/// \param scratch  a line of floats
void RotateLatent(const LatentRotation& rotation, Range range, float* scratch);

/// out = round(x / scale), scale = max |x| / 127, for each line.
///
/// \param x, out  [token, head, element]; x is float32
/// \param scale   float32 [token, head]
void QuantizeLatent(const TensorRef& x, const TensorRef& out, const TensorRef& scale, Range range);

}  // namespace reprise::kernels
