// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit floating point formats as value types. Both convert from
// float32 with round-to-nearest-even, keep subnormals, overflow to infinity and
// turn a NaN into a quiet NaN with the same sign and leading payload bits. The
// bit patterns equal those of the x86 F16C instructions, so vector code may use
// the hardware and still agree with this file.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise::kernels {

/// binary16 bits of `value`, rounded to nearest even.
constexpr uint16_t FloatToHalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal or zero
    // The ulp of 0.5 is the half subnormal step 2^-24: the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  } else {
    // Rebias the exponent by -112 and round to nearest even in one addition.
    half = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

/// The float32 value of binary16 bits; exact.
constexpr float HalfBitsToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = 0;
  if (magnitude > 0x7c00u) {
    bits = 0x7fc00000u | (magnitude << 13);
  } else if (magnitude == 0x7c00u) {
    bits = 0x7f800000u;
  } else {
    // 2^112 undoes the exponent bias; exact, and it normalises subnormals.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    bits = std::bit_cast<uint32_t>(scaled);
  }
  return std::bit_cast<float>(sign | bits);
}

/// bfloat16 bits of `value`, rounded to nearest even.
constexpr uint16_t FloatToBFloat16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The float32 value of bfloat16 bits; exact, a signalling NaN stays one.
constexpr float BFloat16BitsToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// IEEE binary16.
struct Half {
  uint16_t bits = 0;

  constexpr Half() = default;
  constexpr explicit Half(float value) : bits(FloatToHalfBits(value)) {}
  constexpr explicit operator float() const { return HalfBitsToFloat(bits); }
  static constexpr Half FromBits(uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
};

/// The upper half of a float32.
struct BFloat16 {
  uint16_t bits = 0;

  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(FloatToBFloat16Bits(value)) {}
  constexpr explicit operator float() const { return BFloat16BitsToFloat(bits); }
  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 value;
    value.bits = bits;
    return value;
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

}  // namespace reprise::kernels
