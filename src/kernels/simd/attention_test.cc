// SPDX-License-Identifier: Apache-2.0
//
// Rows of attention on every instruction set that the machine has. Small whole numbers: exact in any order.
#include "kernels/simd/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/simd/test_targets.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

// Rows that are further apart than they are long.
template <class T>
struct Rows {
  int64_t stride;
  std::vector<T> values;

  Rows(int64_t rows, int64_t size, int64_t step) : stride(size + 3), values(static_cast<size_t>(rows * stride)) {
    int64_t value = step;
    for (T& each : values) {
      value = (value * 31 + step) % 17;
      each = static_cast<T>(static_cast<float>(value - 8));
    }
  }
  float At(int64_t i, int64_t j) const { return static_cast<float>(values[static_cast<size_t>(i * stride + j)]); }
};

template <class T>
void CheckRows(int64_t rows, int64_t count, int64_t depth) {
  const Rows<float> queries(rows, depth, 3);
  const Rows<float> weights(rows, count, 5);
  const Rows<T> tokens(count, depth, 7);
  Rows<float> scores(rows, count, 1);
  Rows<float> out(rows, depth, 11);
  const Rows<float> before = out;
  const Rows<float> untouched = scores;
  DotKeys(queries.values.data(), queries.stride, rows, tokens.values.data(), tokens.stride, count, depth,
          scores.values.data(), scores.stride);
  AddValues(weights.values.data(), weights.stride, rows, tokens.values.data(), tokens.stride, count, depth,
            out.values.data(), out.stride);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < scores.stride; ++j) {
      float expected = untouched.At(r, j);
      if (j < count) {
        expected = 0;
        for (int64_t k = 0; k < depth; ++k) expected += queries.At(r, k) * tokens.At(j, k);
      }
      ASSERT_EQ(scores.At(r, j), expected) << "score " << r << ", " << j << " of " << rows << " x " << count;
    }
    for (int64_t k = 0; k < out.stride; ++k) {
      float expected = before.At(r, k);
      for (int64_t j = 0; j < count && k < depth; ++j) expected += weights.At(r, j) * tokens.At(j, k);
      ASSERT_EQ(out.At(r, k), expected) << "sum " << r << ", " << k << " of " << rows << " x " << depth;
    }
  }
}

TEST(AttentionSimd, EveryInstructionSetMultipliesRows) {
  const int targets = ForEachTarget([](int64_t target) {
    for (int64_t rows : {1, 2, 3, 4, 7}) {
      for (int64_t count : {1, 4, 7, 17}) {
        for (int64_t depth : {1, 16, 63, 130}) {
          CheckRows<float>(rows, count, depth);
          CheckRows<Half>(rows, count, depth);
          CheckRows<BFloat16>(rows, count, depth);
          if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
        }
      }
    }
  });
  EXPECT_GE(targets, 1);
}

// Whatever the type that tokens are stored in, and however many rows there are: the bits of float32 tokens.
TEST(AttentionSimd, WidenedRowsGiveTheBitsOfFloatRows) {
  constexpr int64_t kRows = 5, kCount = 13, kDepth = 71;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> queries(kRows * kDepth), wide(kCount * kDepth), expected(kRows * kCount), scores(kCount);
  std::vector<Half> narrow(wide.size());
  for (float& value : queries) value = normal(random);
  for (size_t i = 0; i < wide.size(); ++i) {
    narrow[i] = Half(normal(random));
    wide[i] = static_cast<float>(narrow[i]);
  }
  DotKeys(queries.data(), kDepth, kRows, wide.data(), kDepth, kCount, kDepth, expected.data(), kCount);
  for (int64_t r = 0; r < kRows; ++r) {
    DotKeys(queries.data() + r * kDepth, kDepth, 1, narrow.data(), kDepth, kCount, kDepth, scores.data(), kCount);
    EXPECT_EQ(std::memcmp(scores.data(), expected.data() + r * kCount, kCount * sizeof(float)), 0) << "row " << r;
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
