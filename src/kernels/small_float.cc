// SPDX-License-Identifier: Apache-2.0
#include "kernels/small_float.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- What the bits mean ----

// With `exponent_bits` bits of exponent and the rest, but for the sign, behind the point.
float DecodeIeee(uint32_t bits, int exponent_bits) {
  const int mantissa_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<float>(bits & ((1U << mantissa_bits) - 1));
  const int exponent = static_cast<int>(bits >> mantissa_bits);
  const float unit = 1.0F / static_cast<float>(1 << mantissa_bits);
  if (exponent == 0) return std::ldexp(mantissa * unit, 1 - bias);
  return std::ldexp(1.0F + mantissa * unit, exponent - bias);
}

// The prefix 11, 10, 01, 001, 0001 says 4, 3, 2, 1, 0 bits of exponent: its sign, and its digits behind a leading 1.
// 0000: below the others, a power of two by the last three bits.
float DecodeHiFloat8(uint32_t bits) {
  constexpr uint32_t kInfinite = 0x6f;
  if (bits == kInfinite) return kInfinity;
  if (bits < 8) return bits == 0 ? 0.0F : std::ldexp(1.0F, static_cast<int>(bits) - 23);
  const int width = bits >= 0x60 ? 4 : bits >= 0x40 ? 3 : bits >= 0x20 ? 2 : bits >= 0x10 ? 1 : 0;
  const int mantissa_bits = width >= 3 ? 5 - width : 3;
  const uint32_t field = bits >> mantissa_bits & ((1U << width) - 1);
  int exponent = 0;
  if (width > 0) {
    const uint32_t digits = field & ((1U << (width - 1)) - 1);
    exponent = static_cast<int>(digits | 1U << (width - 1));
    if ((field >> (width - 1) & 1) != 0) exponent = -exponent;
  }
  const auto mantissa = static_cast<float>(bits & ((1U << mantissa_bits) - 1));
  return std::ldexp(1.0F + mantissa / static_cast<float>(1 << mantissa_bits), exponent);
}

float Decode(SmallFloat type, uint32_t bits) {
  switch (type) {
    case SmallFloat::kFloat8E5M2: return bits > 0x7c ? kNan : bits == 0x7c ? kInfinity : DecodeIeee(bits, 5);
    case SmallFloat::kFloat8E4M3: return bits == 0x7f ? kNan : DecodeIeee(bits, 4);
    default: return DecodeHiFloat8(bits);
  }
}

// ---- Rounding ----

// Magnitudes in ascending order with their bits; the last one stands for what is too large.
struct Ladder {
  std::array<float, 128> values;
  std::array<uint8_t, 128> bits;
  int count = 0;
  bool is_even_at_half = true;
  uint8_t nan = 0;
};

Ladder MakeLadder(SmallFloat type) {
  Ladder out;
  std::array<std::pair<float, uint8_t>, 128> steps;
  for (uint32_t bits = 0; bits < 128; ++bits) {
    float value = Decode(type, bits);
    // As if the numbers went on: what is nearer to the next one is too large.
    if (type == SmallFloat::kFloat8E5M2 && bits == 0x7c) value = 65536;
    if (type == SmallFloat::kHiFloat8 && bits == 0x6f) value = 49152;
    if (std::isnan(value)) continue;
    steps[static_cast<size_t>(out.count++)] = {value, static_cast<uint8_t>(bits)};
  }
  std::sort(steps.begin(), steps.begin() + out.count);
  for (size_t i = 0; i < static_cast<size_t>(out.count); ++i) {
    out.values[i] = steps[i].first;
    out.bits[i] = steps[i].second;
  }
  out.is_even_at_half = type != SmallFloat::kHiFloat8;
  out.nan = type == SmallFloat::kHiFloat8 ? 0x80 : 0x7f;
  return out;
}

const Ladder& LadderOf(SmallFloat type) {
  static const Ladder kLadders[] = {MakeLadder(SmallFloat::kHiFloat8), MakeLadder(SmallFloat::kFloat8E5M2),
                                    MakeLadder(SmallFloat::kFloat8E4M3)};
  return kLadders[static_cast<int32_t>(type) - static_cast<int32_t>(SmallFloat::kHiFloat8)];
}

uint8_t ToPowerOfTwo(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffffU;
  uint32_t exponent = bits >> 23;
  constexpr uint32_t kHalf = 1U << 22;
  if (exponent == 0xff) return 0xff;
  if ((bits & kHalf) != 0 && (exponent != 0 || (bits & (kHalf - 1)) != 0)) ++exponent;
  return static_cast<uint8_t>(exponent);
}

}  // namespace

float FromSmall(SmallFloat type, uint8_t bits) {
  if (type == SmallFloat::kFloat8E8M0) return bits == 0xff ? kNan : std::ldexp(1.0F, bits - 127);
  if (type == SmallFloat::kHiFloat8 && bits == 0x80) return kNan;
  const float magnitude = Decode(type, bits & 0x7fU);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t ToSmall(SmallFloat type, float value) {
  if (type == SmallFloat::kFloat8E8M0) return ToPowerOfTwo(value);
  const Ladder& ladder = LadderOf(type);
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value)) return type == SmallFloat::kHiFloat8 ? ladder.nan : static_cast<uint8_t>(sign | ladder.nan);
  const float magnitude = std::fabs(value);
  const auto* const end = ladder.values.begin() + ladder.count;
  const auto* const above = std::lower_bound(ladder.values.begin(), end, magnitude);
  auto step = static_cast<size_t>(above - ladder.values.begin());
  if (above == end) {
    step = static_cast<size_t>(ladder.count - 1);
  } else if (*above != magnitude) {
    const float below = *(above - 1);
    const float middle = below + (*above - below) / 2;
    const bool is_down =
        magnitude < middle || (magnitude == middle && ladder.is_even_at_half && (ladder.bits[step - 1] & 1) == 0);
    if (is_down) --step;
  }
  const uint8_t bits = ladder.bits[step];
  return type == SmallFloat::kHiFloat8 && bits == 0 ? bits : static_cast<uint8_t>(sign | bits);  // has one zero
}

void ConvertSmall(const TensorRef& src, int32_t from, const TensorRef& dst, int32_t to, Range range) {
  const CastFn widen = IsSmallFloat(from) ? nullptr : FindCast(src.dtype, DType::kFloat);
  const CastFn narrow = IsSmallFloat(to) ? nullptr : FindCast(DType::kFloat, dst.dtype);
  const int64_t src_bytes = ItemSize(src.dtype);
  const int64_t dst_bytes = ItemSize(dst.dtype);
  for (int64_t i = range.begin; i < range.end; ++i) {
    int64_t rest = i;
    int64_t src_place = 0;
    int64_t dst_place = 0;
    for (int d = dst.rank - 1; d >= 0; --d) {
      const int64_t index = rest % dst.sizes[d];
      rest /= dst.sizes[d];
      dst_place += index * dst.strides[d];
      const int own = d - (dst.rank - src.rank);
      if (own >= 0 && src.sizes[own] != 1) src_place += index * src.strides[own];
    }
    const char* const read = static_cast<const char*>(src.data) + src_place * src_bytes;
    char* const write = static_cast<char*>(dst.data) + dst_place * dst_bytes;
    float value = 0;
    if (widen == nullptr) {
      value = FromSmall(static_cast<SmallFloat>(from), static_cast<uint8_t>(*read));
    } else {
      widen(read, 0, reinterpret_cast<char*>(&value), 0, 1);
    }
    if (narrow == nullptr) {
      *write = static_cast<char>(ToSmall(static_cast<SmallFloat>(to), value));
    } else {
      narrow(reinterpret_cast<const char*>(&value), 0, write, 0, 1);
    }
  }
}

}  // namespace reprise::kernels
