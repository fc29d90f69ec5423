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
// Unknown to the compiler: it would leave out a sum that it sees to stay as it is. -x + 1.5 never settles.
volatile float factor_of_all = -1.0f;
volatile float addend_of_all = 1.5f;
volatile float kept;

}  // namespace

int64_t MultiplyAddsInRegisters(int64_t rounds) {
  Vector sums[kSums];
  const Vector factor = Vector{} + factor_of_all;
  const Vector addend = Vector{} + addend_of_all;
  for (int j = 0; j < kSums; ++j) sums[j] = addend + static_cast<float>(j);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = factor * sums[j] + addend;
  }
  for (int j = 1; j < kSums; ++j) sums[0] += sums[j];
  kept = sums[0][0];
  return rounds * kSums * static_cast<int64_t>(kBytes / sizeof(float));
}

}  // namespace bench
