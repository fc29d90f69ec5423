// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of float32 for divisions with a remainder, powers and angles (arithmetic_functions.h).
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class PowerRow : uint8_t { kTruncateDiv, kFloorDiv, kFmod, kRemainder, kPow, kPowOf, kAtan2, kLogAddExp };

/// Of float32; the 16-bit floats convert.
ElementRow FindPowerRow(PowerRow row);

}  // namespace reprise::kernels::simd
