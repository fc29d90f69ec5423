// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/normalize.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/simd/loss.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels::simd {
namespace {

// Lengths around the vectors, the lanes of a sum and its blocks.
constexpr int64_t kLengths[] = {1, 7, 8, 31, 33, 100, 4095, 4099, 9000};

std::vector<float> Numbers(int64_t count, float scale, uint32_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    number = (static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f) * scale;
  }
  return numbers;
}

// Everything that two rows of n elements give, one after the other.
std::vector<float> AllResults(int64_t n) {
  const std::vector<float> x = Numbers(2 * n, 4.0f, 1), y = Numbers(2 * n, 1.0f, 2), w = Numbers(n, 1.0f, 3);
  std::vector<float> results;
  const auto add = [&](const std::vector<float>& part) { results.insert(results.end(), part.begin(), part.end()); };
  std::vector<float> out(x.size()), mean(2), rstd(2), dw(w.size()), db(w.size());
  SoftmaxRows(x.data(), out.data(), 2, n), add(out);
  LogSoftmaxRows(x.data(), out.data(), 2, n), add(out);
  SoftmaxGradRows(y.data(), x.data(), out.data(), 2, n), add(out);
  LogSoftmaxGradRows(y.data(), x.data(), out.data(), 2, n), add(out);
  LayerNormRows(x.data(), w.data(), w.data(), 1e-5f, out.data(), mean.data(), rstd.data(), 2, n);
  add(out), add(mean), add(rstd);
  LayerNormGradRows(y.data(), x.data(), mean.data(), rstd.data(), w.data(), out.data(), dw.data(), db.data(), 2, n);
  add(out), add(dw), add(db);
  RmsNormRows(x.data(), w.data(), 1e-5f, out.data(), rstd.data(), 2, n), add(out), add(rstd);
  RmsNormGradRows(y.data(), x.data(), rstd.data(), w.data(), out.data(), dw.data(), 2, n), add(out), add(dw);
  for (int op = 0; op <= static_cast<int>(LossOp::kKlLogGrad); ++op) {
    std::vector<float> t = Numbers(2 * n, 0.5f, 4), p = Numbers(2 * n, 0.5f, 5);
    for (float& number : t) number += 0.5f;
    for (float& number : p) number += 0.5f;
    const bool is_probability = op == static_cast<int>(LossOp::kBce);
    LossRow(static_cast<LossOp>(op), is_probability ? p.data() : x.data(), t.data(), p.data(), 0.7f, out.data(), 2 * n);
    add(out);
  }
  return results;
}

TEST(NormalizeSimd, EveryInstructionSetGivesTheSameBits) {
  std::vector<std::vector<float>> first_of[2];  // without and with fused multiply-add
  const int targets = testing::ForEachTarget([&](int64_t target) {
    std::vector<std::vector<float>>& first = first_of[testing::HasFusedMultiplyAdd(target)];
    for (size_t i = 0; i < std::size(kLengths); ++i) {
      const std::vector<float> results = AllResults(kLengths[i]);
      if (first.size() == i) first.push_back(results);
      ASSERT_EQ(first[i].size(), results.size());
      for (size_t k = 0; k < results.size(); ++k) {
        ASSERT_EQ(std::memcmp(&first[i][k], &results[k], sizeof(float)), 0)
            << hwy::TargetName(target) << ", length " << kLengths[i] << ", number " << k << ": " << first[i][k]
            << " and " << results[k];
      }
    }
  });
  EXPECT_GE(targets, 2) << "nothing was compared";
}

}  // namespace
}  // namespace reprise::kernels::simd
