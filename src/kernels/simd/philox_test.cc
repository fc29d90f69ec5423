// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/philox.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/philox.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

constexpr PhiloxSource kSource{0x0123456789ABCDEF, 0xFEDCBA9876543210};
// Also where the number of the block leaves 32 bits.
constexpr uint64_t kFirsts[] = {0, 16, (uint64_t{1} << 32) - 32, uint64_t{1} << 40};

TEST(PhiloxSimd, WordsAreThoseOfTheScalarFunction) {
  const int targets = ForEachTarget([](int64_t target) {
    for (const uint64_t first : kFirsts) {
      std::vector<uint32_t> words(64 * 4);
      PhiloxWords(kSource, first, 64, words.data());
      for (uint64_t b = 0; b < 64; ++b) {
        const uint64_t block = first + b;
        const PhiloxCounter expected =
            Philox4x32({static_cast<uint32_t>(kSource.counter), static_cast<uint32_t>(kSource.counter >> 32),
                        static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)},
                       {static_cast<uint32_t>(kSource.seed), static_cast<uint32_t>(kSource.seed >> 32)});
        for (size_t j = 0; j < 4; ++j) {
          ASSERT_EQ(words[b * 4 + j], expected[j]) << hwy::TargetName(target) << ", block " << block;
        }
      }
    }
  });
  EXPECT_GE(targets, 2) << "nothing was compared";
}

TEST(PhiloxSimd, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kBlocks = 4096;
  std::vector<float> first;
  ForEachTarget([&](int64_t target) {
    std::vector<float> numbers(kBlocks * 4 * 3);
    UniformRow(kSource, 32, kBlocks, -0.3f, 1.1f, 0.79f, numbers.data());
    NormalRow(kSource, 32, kBlocks, 0.1f, 2.3f, numbers.data() + kBlocks * 4);
    ExponentialRow(kSource, 32, kBlocks, 0.7f, numbers.data() + kBlocks * 8);
    if (first.empty()) first = numbers;
    EXPECT_EQ(std::memcmp(first.data(), numbers.data(), numbers.size() * sizeof(float)), 0) << hwy::TargetName(target);
  });
}

// Against the same formulas in float64.
TEST(PhiloxSimd, NumbersAreThoseOfTheFormulas) {
  constexpr int64_t kBlocks = 1 << 14;
  std::vector<uint32_t> words(kBlocks * 4);
  std::vector<float> normal(kBlocks * 4), exponential(kBlocks * 4), uniform(kBlocks * 4);
  PhiloxWords(kSource, 0, kBlocks, words.data());
  NormalRow(kSource, 0, kBlocks, 0.0f, 1.0f, normal.data());
  ExponentialRow(kSource, 0, kBlocks, 1.0f, exponential.data());
  UniformRow(kSource, 0, kBlocks, 0.0f, 1.0f, 1.0f, uniform.data());
  const auto open = [](uint32_t w) { return (w + 0.5) * 0x1p-32; };
  for (size_t i = 0; i < words.size(); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(open(words[i])));
    const double angle = 2.0 * std::acos(-1.0) * words[i + 1] * 0x1p-32;
    ASSERT_NEAR(normal[i], radius * std::cos(angle), 1e-6 * radius);
    ASSERT_NEAR(normal[i + 1], radius * std::sin(angle), 1e-6 * radius);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_NEAR(exponential[i], -std::log(open(words[i])), 3e-7 * exponential[i]);
    ASSERT_GT(exponential[i], 0.0f);
    ASSERT_EQ(uniform[i], static_cast<float>(words[i] >> 8) * 0x1p-24f);
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
