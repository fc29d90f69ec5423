// SPDX-License-Identifier: Apache-2.0
//
// One step of AdamW, element by element, for step number t, or for given powers of the betas:
//
//   g = gradient, or -gradient if maximize
//   m = m + (g - m) * (1 - beta1)
//   v = v * beta2 + g * g * (1 - beta2)
//   w = v; with a maximum: largest = max(largest, v), w = largest
//   var = var * (1 - rate * decay) - rate / (1 - beta1^t) * m / (sqrt(w) / sqrt(1 - beta2^t) + epsilon)
//
// Rounding  the factors are computed in float64; elements in float64 for tensors of float64 and in float32 for all
//   others, each operation rounding once; what is stored rounds to its own type, and var uses m and v from before that.
// NaN, Inf  as IEEE 754; NaN wins in the maximum.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct AdamWStep {
  double rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double decay = 0;
  double epsilon = 0;
  bool maximize = false;
  bool keeps_largest = false;  ///< the maximum is used and not stored
};

/// Places of the operands in the array that AdamW takes.
enum AdamWOperand { kAdamVar, kAdamM, kAdamV, kAdamLargest, kAdamGradient, kAdamOperands };

/// Elements `range`, row-major, of tensors of one shape. \param power1, power2 beta1^t and beta2^t \param compute
/// float32 or float64 \param largest absent if its data is null.
void AdamW(const AdamWStep& step, double power1, double power2, const TensorRef* operands, DType compute, Range range);

}  // namespace reprise::kernels
