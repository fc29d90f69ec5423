// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies of loss.h: contiguous rows of float32. Every instruction set that has fused multiply-add gives the
// same bits.
#pragma once

#include <cstdint>

#include "kernels/loss.h"

namespace reprise::kernels::simd {

/// out[i] = op of x[i] and target[i]; pos_weight may be null. out may be an input.
void LossRow(LossOp op, const float* x, const float* target, const float* pos_weight, float beta, float* out,
             int64_t n);

}  // namespace reprise::kernels::simd
