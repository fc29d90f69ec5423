// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace reprise::kernels {
namespace {

// Buffers of one attention problem, whose units run in the ranges that the test says.
class AttentionRanges : public testing::Test {
 protected:
  void Make(int64_t queries, int64_t keys) {
    const auto make = [&](std::vector<float>& values, int64_t heads, int64_t tokens) {
      values.resize(static_cast<size_t>(heads * tokens * kDepth));
      for (float& value : values) value = std::normal_distribution<float>()(random_);
      return MakeContiguous(values.data(), DType::kFloat, {1, heads, tokens, kDepth});
    };
    operands_.query = make(query_, kHeads, queries);
    keys_ref_ = make(keys_, kKeyHeads, keys);
    values_ref_ = make(values_, kKeyHeads, keys);
    operands_.keys = {&keys_ref_, 1};
    operands_.values = {&values_ref_, 1};
    operands_.out = make(out_, kHeads, queries);
    setup_.heads = kHeads;
    setup_.kv_heads = kKeyHeads;
    setup_.depth = setup_.value_depth = kDepth;
    setup_.scale = 0.25f;
    setup_.sequences.resize(1);
    setup_.sequences[0].queries = queries;
    setup_.sequences[0].keys = keys;
    setup_.sequences[0].high = keys - queries;
    PrepareAttention(setup_, keys);
    partial_.resize(static_cast<size_t>(AttentionPartialCount(setup_)));
    scratch_.resize(static_cast<size_t>(AttentionScratchBytes(setup_)) / sizeof(float));
  }

  std::vector<float> Run(int64_t step) {
    std::fill(out_.begin(), out_.end(), 7.0f);
    std::fill(partial_.begin(), partial_.end(), 7.0f);
    std::fill(scratch_.begin(), scratch_.end(), 7.0f);
    for (int64_t u = 0; u < setup_.units; u += step) {
      Attend(setup_, operands_, {u, std::min(setup_.units, u + step)}, partial_.data(), scratch_.data());
    }
    for (int64_t u = 0; u < setup_.merge_units; u += step) {
      MergeAttention(setup_, operands_, {u, std::min(setup_.merge_units, u + step)}, partial_.data(), scratch_.data());
    }
    return out_;
  }

  void ExpectTheSameBitsHoweverItIsCut() {
    const std::vector<float> whole = Run(setup_.units);
    for (int64_t step : {1, 3}) {
      const std::vector<float> parts = Run(step);
      EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0) << "in steps of " << step;
    }
    EXPECT_EQ(std::count(whole.begin(), whole.end(), 7.0f), 0);
  }

  static constexpr int64_t kHeads = 4;
  static constexpr int64_t kKeyHeads = 2;
  static constexpr int64_t kDepth = 20;

  AttentionSetup setup_;
  AttentionOperands operands_;
  TensorRef keys_ref_, values_ref_;
  std::vector<float> query_, keys_, values_, out_, partial_, scratch_;
  std::mt19937 random_{1};
};

TEST_F(AttentionRanges, ManyQueries) {
  Make(150, 170);
  EXPECT_FALSE(setup_.is_split);
  EXPECT_GT(setup_.units, 6);
  ExpectTheSameBitsHoweverItIsCut();
}

TEST_F(AttentionRanges, OneQueryOverPiecesOfTheKeys) {
  Make(1, 1700);
  EXPECT_TRUE(setup_.is_split);
  EXPECT_EQ(setup_.units, 2 * 4);
  ExpectTheSameBitsHoweverItIsCut();
}

TEST_F(AttentionRanges, Gradients) {
  Make(110, 130);
  PrepareAttention(setup_, 0);
  Run(setup_.units);
  std::vector<float> gradient(out_.size(), 0.5f), statistics(static_cast<size_t>(kHeads * 110), 1.0f);
  operands_.maximum = operands_.sum = MakeContiguous(statistics.data(), DType::kFloat, {1, kHeads, 110, 1});
  const auto run = [&](int64_t step) {
    std::vector<float> made(query_.size() + keys_.size() + values_.size(), 7.0f);
    const AttentionGradients gradients = {
        .gradient = MakeContiguous(gradient.data(), DType::kFloat, {1, kHeads, 110, kDepth}),
        .query = MakeContiguous(made.data(), DType::kFloat, {1, kHeads, 110, kDepth}),
        .key = MakeContiguous(made.data() + query_.size(), DType::kFloat, {1, kKeyHeads, 130, kDepth}),
        .value = MakeContiguous(made.data() + query_.size() + keys_.size(), DType::kFloat, {1, kKeyHeads, 130, kDepth}),
        .query_rope = {},
        .key_rope = {}};
    for (int64_t u = 0; u < kKeyHeads; u += step) {
      std::vector<float> scratch(static_cast<size_t>(AttentionBackwardScratchBytes(setup_)) / sizeof(float), 7.0f);
      AttendBackward(setup_, operands_, gradients, {u, u + step}, scratch.data());
    }
    return made;
  };
  const std::vector<float> whole = run(kKeyHeads);
  const std::vector<float> parts = run(1);
  EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), 7.0f), 0);
}

}  // namespace
}  // namespace reprise::kernels
