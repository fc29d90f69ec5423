// SPDX-License-Identifier: Apache-2.0
//
// Losses that compare elements, and their gradients with respect to x.
//
// Formulas  d = x - t, p = pos_weight or 1
//   kMse            d^2                                    kMseGrad            2 d
//   kL1             |d|
//   kSmoothL1       |d| < beta ? d^2 / (2 beta) : |d| - beta / 2
//   kBce            (t - 1) max(log(1 - x), -100) - t max(log(x), -100)
//   kBceLogits      (1 - t) x + (1 + (p - 1) t) log(1 + e^-x)
//   kBceLogitsGrad  (p t + 1 - t) sigmoid(x) - p t
//   kKl             t log(t) - t x, 0 log(0) = 0           kKlGrad             -t
//   kKlLog          e^t (t - x)                            kKlLogGrad          -e^t
//   kSoftMargin     log(1 + e^(-t x))                      kSoftMarginGrad     -t sigmoid(-t x)
//   kL1Grad         the sign of d, 0 for NaN               kSmoothL1Grad       |d| < beta ? d / beta : the sign of d
//   kBceGrad        d / max((1 - x) x, 1e-12)
//   With respect to t: kKlTargetGrad  t == 0 ? 0 : log(t) + 1 - x;  kKlLogTargetGrad  e^t (t + 1 - x)
//   Each is multiplied with weight, with grad and with scale, where there are such.
// Accumulation  float32 for float32, float16 and bfloat16, float64 for float64. Sums: blocks of 1024 elements in the
//   order of simd/normalize.h, blocks in float64.
// NaN, Inf  IEEE 754.
// Aliasing  none.
#pragma once

#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

enum class LossOp : uint8_t {
  kMse,
  kL1,
  kSmoothL1,
  kBce,
  kBceLogits,
  kKl,
  kKlLog,
  kMseGrad,
  kBceLogitsGrad,
  kKlGrad,
  kKlLogGrad,
  kSoftMargin,
  kSoftMarginGrad,
  kL1Grad,
  kSmoothL1Grad,
  kBceGrad,
  kKlTargetGrad,
  kKlLogTargetGrad,
};

/// Views of one shape (stride 0 where they broadcast); null for what is absent.
struct LossOperands {
  const TensorRef* x = nullptr;
  const TensorRef* target = nullptr;
  const TensorRef* weight = nullptr;
  const TensorRef* pos_weight = nullptr;
  const TensorRef* grad = nullptr;
  double beta = 0;
  double scale = 1;
};

/// out = op, for the row-major elements [range.begin, range.end).
void MapLoss(LossOp op, const LossOperands& operands, DType compute, const TensorRef& out, Range range);

/// The sum of these elements.
double SumLoss(LossOp op, const LossOperands& operands, DType compute, Range range);

}  // namespace reprise::kernels
