// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

// All rows are in blocks of nearly the same size, and scratch memory is enough for shorter sequences.
TEST_F(AttentionRanges, BlocksOfRowsAreAlike) {
  int64_t last = 0;
  for (int64_t queries = 1; queries < 700; queries += queries < 120 ? 1 : 7) {
    AttentionSetup setup;
    setup.heads = 4;
    setup.kv_heads = 2;
    setup.depth = setup.value_depth = 8;
    setup.sequences.resize(1);
    setup.sequences[0].queries = queries;
    setup.sequences[0].keys = 10;
    PrepareAttention(setup, 10);
    const AttentionSequence& s = setup.sequences[0];
    const int64_t rows = 2 * queries;
    EXPECT_LE(s.block_rows, setup.most_rows) << queries;
    EXPECT_GE(s.block_rows * s.blocks, rows) << queries;
    EXPECT_LT(s.block_rows * (s.blocks - 1), rows) << queries << ": an empty block";
    EXPECT_LT(s.block_rows, rows / s.blocks + 7) << queries;
    EXPECT_GE(AttentionScratchBytes(setup), last) << queries;
    last = AttentionScratchBytes(setup);
    EXPECT_EQ(setup.units, 2 * s.blocks);
  }
}

TEST_F(AttentionRanges, OneQueryOverPiecesOfTheKeys) {
  Make(1, 1700);
  EXPECT_TRUE(setup_.is_split);
  EXPECT_EQ(setup_.units, 2 * 4);
  ExpectTheSameBitsHoweverItIsCut();
}

// Bytes hide keys as the bounds of a sequence do: the same bits, whichever tiles are left out for it. What is hidden
// may be anything; a query that sees nothing gets zeros.
TEST_F(AttentionRanges, AMaskHidesAsBoundsDo) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{150, 170}, {300, 300}, {2, 700}}) {
    Make(queries, keys);
    const std::vector<float> expected = Run(setup_.units);
    std::vector<uint8_t> mask(static_cast<size_t>(queries * keys));
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) mask[static_cast<size_t>(i * keys + j)] = j - i > keys - queries ? 1 : 0;
    }
    setup_.sequences[0].high = INT64_MAX / 4;
    operands_.mask = MakeContiguous(mask.data(), DType::kUInt8, {1, 1, queries, keys});
    operands_.mask.strides[0] = operands_.mask.strides[1] = 0;
    const std::vector<float> masked = Run(setup_.units);
    EXPECT_EQ(std::memcmp(masked.data(), expected.data(), expected.size() * sizeof(float)), 0) << queries;
    ExpectTheSameBitsHoweverItIsCut();
    // The last query sees nothing, and others only every third key, up to one of a block in the middle.
    for (int64_t j = 0; j < keys; ++j) {
      mask[static_cast<size_t>((queries - 1) * keys + j)] = 1;
      mask[static_cast<size_t>(j)] = j % 3 != 0 || j > 140 ? 1 : 0;
    }
    const std::vector<float> some = Run(setup_.units);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t k = 0; k < kDepth; ++k) {
        EXPECT_EQ(some[static_cast<size_t>(((h + 1) * queries - 1) * kDepth + k)], 0);
      }
      // The first query, by hand.
      const auto at = [&](const std::vector<float>& from, int64_t head, int64_t tokens, int64_t token, int64_t k) {
        return static_cast<double>(from[static_cast<size_t>((head * tokens + token) * kDepth + k)]);
      };
      double sum = 0;
      double first = 0;
      for (int64_t j = 0; j <= std::min<int64_t>(140, keys - 1); j += 3) {
        double score = 0;
        for (int64_t k = 0; k < kDepth; ++k) score += at(query_, h, queries, 0, k) * at(keys_, h / 2, keys, j, k);
        sum += std::exp(0.25 * score);
        first += std::exp(0.25 * score) * at(values_, h / 2, keys, j, 0);
      }
      EXPECT_NEAR(at(some, h, queries, 0, 0), first / sum, 1e-5);
    }
    operands_.mask = {};
  }
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
