// SPDX-License-Identifier: Apache-2.0
//
// Floating point numbers of 8 bits: types of storage, which convert and are moved, and in which nothing is computed.
//
// - float8_e4m3fn, float8_e5m2: as the Open Compute Project has them, with four (five) bits of exponent, the first
//   without an infinity. To nearest, even at half; what is too large becomes 448 (infinity).
// - float8_e8m0: a power of two from 2^-127 to 2^127, 255 is NaN. To nearest, up at half; signs get lost.
// - hifloat8: as its authors published it. A prefix code says how many bits the exponent has, 0 to 4, so that numbers
//   around 1 have three bits behind the point, and those from 2^8 on one. 2^-22 to 2^15 in magnitude. To nearest, away
//   from 0 at half; what is too large becomes infinity.
#pragma once

#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

/// The numbers equal those of aclDataType.
enum class SmallFloat : int32_t { kHiFloat8 = 34, kFloat8E5M2 = 35, kFloat8E4M3 = 36, kFloat8E8M0 = 37 };

constexpr bool IsSmallFloat(int32_t number) { return number >= 34 && number <= 37; }

float FromSmall(SmallFloat type, uint8_t bits);
uint8_t ToSmall(SmallFloat type, float value);

/// dst = src, broadcast to its shape; `range` counts elements of dst. Numbers of aclDataType say what the tensors hold
/// whose types are small (then they are tensors of uint8); others are as their types say. \pre one of both is small
void ConvertSmall(const TensorRef& src, int32_t from, const TensorRef& dst, int32_t to, Range range);

}  // namespace reprise::kernels
