// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of the mathematical functions (math_functions.h).
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class MathRow : uint8_t {
  kAbs,
  kAcos,
  kAsin,
  kAtan,
  kCeil,
  kCos,
  kCosh,
  kErf,
  kErfInv,
  kErfc,
  kExp,
  kExp2,
  kExpm1,
  kFloor,
  kFrac,
  kLog,
  kLog10,
  kLog1p,
  kLog2,
  kNanToNum,
  kNeg,
  kReciprocal,
  kRound,
  kRoundScaledDown,
  kRoundScaledUp,
  kRsqrt,
  kSign,
  kSin,
  kSinh,
  kSqrt,
  kTan,
  kTanh,
  kTrunc,
};

/// \pre type is float32, float16 or bfloat16.
ElementRow FindMathRow(MathRow row, DType type);

}  // namespace reprise::kernels::simd
