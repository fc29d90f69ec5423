// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of the arithmetic functions (arithmetic_functions.h).
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class ArithmeticRow : uint8_t {
  kAdd,
  kAddScaled,
  kSub,
  kSubScaled,
  kRsubScaled,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kLerpBy,
  // of one operand
  kClamp,
  // of three
  kClampBetween,
  kLerp,
  kAddcmul,
  kAddcdiv,
};

/// \pre type is float32, float16 or bfloat16.
ElementRow FindArithmeticRow(ArithmeticRow row, DType type);

}  // namespace reprise::kernels::simd
