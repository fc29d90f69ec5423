// SPDX-License-Identifier: Apache-2.0
//
// Norms with something before or behind them: a sum of tensors, a second result, an activation.
//
// Formulas  SumNorm   s = x1 + x2 + bias; rows of s become (s - mean) rstd (gamma + shift) + beta, where
//                     rstd = 1 / sqrt(mean of (s - mean)^2 + eps); without centring mean is 0 throughout
//           GroupNormSwish      y = (x - mean) rstd gamma + beta for each group of channels; out = y sigmoid(scale y)
//           the gradients are those of these formulas, for statistics that are given
// Accumulation  float64; each result is rounded once to the type that it is stored in.
// Order     that of the elements, whatever the range and the strides.
// NaN, Inf  as IEEE 754.
// Aliasing  none, but that `out` may be the very same view as `x1` or `x2`.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Operands of the same number of rows of `length` elements; null where the comment says so.
struct SumNormArgs {
  const TensorRef* x1;
  const TensorRef* x2 = nullptr;    ///< null: 0
  const TensorRef* bias = nullptr;  ///< null: 0; one row for all, or one for each row
  const TensorRef* gamma;           ///< one row
  const TensorRef* beta = nullptr;  ///< null: 0; one row
  const TensorRef* out;
  const TensorRef* out2 = nullptr;  ///< what `out` holds, in a type of its own
  const TensorRef* sum = nullptr;   ///< s
  const TensorRef* mean = nullptr;  ///< one element for each row, as rstd
  const TensorRef* rstd = nullptr;
  int64_t length = 0;
  bool centres = true;
  bool rounds_sum = false;  ///< s is rounded to the type of `sum` before it is normalised
  double shift = 0;
  double eps = 0;
};

int64_t SumNormScratchBytes(int64_t length);
void SumNorm(const SumNormArgs& args, void* scratch, Range rows);

/// The gradient of SumNorm with centring, without bias.
struct SumNormGradArgs {
  const TensorRef* dy;
  const TensorRef* x1;
  const TensorRef* x2;
  const TensorRef* mean;
  const TensorRef* rstd;
  const TensorRef* gamma;
  const TensorRef* dsum = nullptr;  ///< is added to dx; null: 0
  const TensorRef* dx = nullptr;
  const TensorRef* dgamma = nullptr;
  const TensorRef* dbeta = nullptr;
  int64_t length = 0;
  int64_t rows = 0;
};

int64_t SumNormGradScratchBytes(int64_t length);
/// dx of some rows.
void SumNormGradOfX(const SumNormGradArgs& args, void* scratch, Range rows);
/// dgamma and dbeta of some columns.
void SumNormGradOfParameters(const SumNormGradArgs& args, Range columns);

struct GroupSwishArgs {
  const TensorRef* x;                ///< [N, C, ..]
  const TensorRef* gamma = nullptr;  ///< [C]; null: 1
  const TensorRef* beta = nullptr;   ///< [C]; null: 0
  const TensorRef* out = nullptr;    ///< of gradients dx
  const TensorRef* mean = nullptr;   ///< [N, groups], as rstd; of gradients inputs
  const TensorRef* rstd = nullptr;
  const TensorRef* dy = nullptr;    ///< of gradients
  const TensorRef* sums = nullptr;  ///< of gradients: float64 [N, C, 2], those for gamma and beta
  int64_t groups = 1;
  double eps = 0;
  bool activates = true;
  double scale = 1;
};

/// A unit is a group of an entry of the batch.
void GroupNormSwish(const GroupSwishArgs& args, Range units);
void GroupNormSwishGrad(const GroupSwishArgs& args, Range units);

}  // namespace reprise::kernels
