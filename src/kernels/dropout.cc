// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/simd/philox.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = 1024;  // elements

// For each byte of a mask what its elements' bits are combined with.
using ByteLanes = std::array<std::array<uint32_t, 8>, 256>;
constexpr ByteLanes MakeByteLanes() {
  ByteLanes lanes{};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t bit = 0; bit < 8; ++bit) lanes[byte][bit] = (byte >> bit & 1) != 0 ? 0xFFFFFFFFu : 0;
  }
  return lanes;
}
constexpr ByteLanes kByteLanes = MakeByteLanes();

void Apply(const float* x, const uint8_t* mask, float scale, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    const std::array<uint32_t, 8>& lanes = kByteLanes[mask[i / 8]];
    const int64_t count = std::min<int64_t>(8, n - i);
    uint32_t bits[8] = {};
    float values[8] = {};
    std::memcpy(values, x + i, static_cast<size_t>(count) * sizeof(float));
    for (int k = 0; k < 8; ++k) values[k] *= scale;
    std::memcpy(bits, values, sizeof bits);
    for (size_t k = 0; k < 8; ++k) bits[k] &= lanes[k];
    std::memcpy(out + i, bits, static_cast<size_t>(count) * sizeof(float));
  }
}

void Apply(const double* x, const uint8_t* mask, double scale, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = (mask[i / 8] >> (i % 8) & 1) != 0 ? x[i] * scale : 0.0;
}

template <class T>
void ApplyOf(const TensorRef& self, const TensorRef& mask, T scale, const TensorRef& out, Range range) {
  const Staged<T> x(self);
  const Staged<uint8_t> bits(mask);
  const Staged<T> result(out);
  alignas(64) T x_buffer[kChunk];
  alignas(64) T out_buffer[kChunk];
  uint8_t bit_buffer[kChunk / 8];
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    Apply(x.Read(begin, n, x_buffer), bits.Read(begin / 8, (n + 7) / 8, bit_buffer), scale,
          result.Target(begin, out_buffer), n);
    result.Write(begin, n, out_buffer);
  }
}

}  // namespace

void DropoutMask(double p, uint64_t seed, uint64_t position, int64_t count, const TensorRef& mask, Range range) {
  constexpr int64_t kGroupElements = 8 * kMaskGroup;
  constexpr int64_t kGroupBlocks = kGroupElements / 4;
  static_assert(kGroupBlocks % simd::kBlockStep == 0);
  const simd::PhiloxSource source{seed, position};
  const auto threshold = static_cast<uint64_t>(std::nearbyint(p * 0x1p32));
  const Staged<uint8_t> target(mask);
  alignas(64) uint32_t words[kGroupElements];
  uint8_t buffer[kMaskGroup];
  for (int64_t group = range.begin; group < range.end; ++group) {
    simd::PhiloxWords(source, static_cast<uint64_t>(group * kGroupBlocks), kGroupBlocks, words);
    uint8_t* bytes = target.Target(group * kMaskGroup, buffer);
    for (int64_t b = 0; b < kMaskGroup; ++b) {
      uint32_t byte = 0;
      for (int64_t k = 0; k < 8; ++k) byte |= uint32_t{words[8 * b + k] >= threshold} << k;
      const int64_t left = count - (group * kMaskGroup + b) * 8;
      if (left < 8) byte &= left <= 0 ? 0 : (1u << left) - 1;
      bytes[b] = static_cast<uint8_t>(byte);
    }
    target.Write(group * kMaskGroup, kMaskGroup, buffer);
  }
}

void ApplyDropout(const TensorRef& self, const TensorRef& mask, double scale, const TensorRef& out, Range range) {
  if (out.dtype == DType::kDouble || self.dtype == DType::kDouble) {
    ApplyOf<double>(self, mask, scale, out, range);
  } else {
    ApplyOf<float>(self, mask, static_cast<float>(scale), out, range);
  }
}

}  // namespace reprise::kernels
