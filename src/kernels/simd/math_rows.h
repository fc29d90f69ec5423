// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of the mathematical functions (math_functions.h) and of relu (activation_functions.h).
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class MathRow : uint8_t { kRelu, kExp, kNeg, kAbs };

/// \pre type is float32, float16 or bfloat16.
ElementRow FindMathRow(MathRow row, DType type);

}  // namespace reprise::kernels::simd
