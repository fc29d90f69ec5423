// SPDX-License-Identifier: Apache-2.0
//
// Built for the machine that it runs on.
#include "multiply_adds.h"

namespace bench {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
using Vector = float __attribute__((vector_size(kBytes)));
constexpr int kSums = 12;
volatile float kept;

}  // namespace

int64_t MultiplyAddsInRegisters(int64_t rounds) {
  Vector sums[kSums];
  for (int j = 0; j < kSums; ++j) sums[j] = Vector{} + static_cast<float>(j);
  const Vector factor = Vector{} + 0.5f;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = factor * sums[j] + factor;
  }
  for (int j = 1; j < kSums; ++j) sums[0] += sums[j];
  kept = sums[0][0];
  return rounds * kSums * static_cast<int64_t>(kBytes / sizeof(float));
}

}  // namespace bench
