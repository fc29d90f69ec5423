// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cast.h"
#include "kernels/simd/matrix_unit.h"

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

// Types of 16 bits, whose products the matrix unit makes where there is one: as near to the sums as float32 ones, the
// same bits however they are cut.
class ShortTypes : public testing::TestWithParam<DType> {
 protected:
  struct Tensor {
    std::vector<float> numbers;  // as the type holds them
    std::vector<uint16_t> memory;
    TensorRef ref;
  };
  Tensor Make(int64_t heads, int64_t tokens, int64_t depth, float spread = 1) {
    Tensor t;
    t.numbers.resize(static_cast<size_t>(heads * tokens * depth));
    for (float& number : t.numbers) number = spread * std::normal_distribution<float>()(random_);
    t.memory.resize(t.numbers.size());
    t.ref = MakeContiguous(t.memory.data(), GetParam(), {1, heads, tokens, depth});
    Write(t);
    return t;
  }
  // Numbers into the memory, and back, rounded.
  static void Write(Tensor& t) {
    auto* const numbers = reinterpret_cast<char*>(t.numbers.data());
    auto* const memory = reinterpret_cast<char*>(t.memory.data());
    const auto count = static_cast<int64_t>(t.numbers.size());
    FindCast(DType::kFloat, t.ref.dtype)(numbers, 4, memory, 2, count);
    FindCast(t.ref.dtype, DType::kFloat)(memory, 2, numbers, 4, count);
  }

  std::vector<float> Run(AttentionSetup setup, const Tensor& query, const Tensor& key, const Tensor& value,
                         int64_t step, bool with_unit = true) {
    simd::SetMatrixUnitUse(with_unit ? simd::MatrixUnitUse::kShortTypes : simd::MatrixUnitUse::kNone);
    const int64_t queries = query.ref.sizes[2];
    std::vector<float> out(static_cast<size_t>(setup.heads * queries * setup.value_depth), 7.0F);
    AttentionOperands operands;
    operands.query = query.ref;
    operands.keys = {&key.ref, 1};
    operands.values = {&value.ref, 1};
    operands.out = MakeContiguous(out.data(), DType::kFloat, {1, setup.heads, queries, setup.value_depth});
    PrepareAttention(setup, key.ref.sizes[2]);
    std::vector<float> scratch(static_cast<size_t>(AttentionScratchBytes(setup)) / sizeof(float), NAN);
    for (int64_t u = 0; u < setup.units; u += step) {
      Attend(setup, operands, {u, std::min(setup.units, u + step)}, nullptr, scratch.data());
    }
    simd::SetMatrixUnitUse(simd::MatrixUnitUse::kShortTypes);
    return out;
  }

  static AttentionSetup SetupOf(int64_t queries, int64_t keys, int64_t depth, int64_t value_depth, bool is_causal) {
    AttentionSetup setup;
    setup.heads = 4;
    setup.kv_heads = 2;
    setup.depth = depth;
    setup.value_depth = value_depth;
    setup.scale = 1 / std::sqrt(static_cast<float>(depth));
    setup.sequences.resize(1);
    setup.sequences[0].queries = queries;
    setup.sequences[0].keys = keys;
    if (is_causal) setup.sequences[0].high = keys - queries;
    return setup;
  }

  std::mt19937 random_{2};
};

TEST_P(ShortTypes, AreAsNearAsFloat32) {
  struct Sizes {
    int64_t queries, keys, depth, value_depth;
  };
  for (const auto& [queries, keys, depth, value_depth] :
       {Sizes{150, 170, 64, 64}, {40, 300, 80, 33}, {33, 129, 17, 16}, {200, 200, 128, 128}, {9, 65, 256, 7}}) {
    for (bool is_causal : {false, true}) {
      const Tensor query = Make(4, queries, depth), key = Make(2, keys, depth), value = Make(2, keys, value_depth);
      const AttentionSetup setup = SetupOf(queries, keys, depth, value_depth, is_causal);
      const std::vector<float> out = Run(setup, query, key, value, 1000);
      EXPECT_EQ(Run(setup, query, key, value, 1), out) << "cut otherwise";
      const std::vector<float> without = Run(setup, query, key, value, 1000, false);
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          const auto row = [](const Tensor& t, int64_t head, int64_t token) {
            return t.numbers.data() + (head * t.ref.sizes[2] + token) * t.ref.sizes[3];
          };
          const int64_t end = is_causal ? i + keys - queries + 1 : keys;
          std::vector<double> scores(static_cast<size_t>(end));
          for (int64_t j = 0; j < end; ++j) {
            double& score = scores[static_cast<size_t>(j)];
            for (int64_t k = 0; k < depth; ++k) {
              score += static_cast<double>(row(query, h, i)[k]) * row(key, h / 2, j)[k];
            }
            score *= setup.scale;
          }
          const double most = *std::max_element(scores.begin(), scores.end());
          double total = 0;
          for (double& score : scores) total += score = std::exp(score - most);
          for (int64_t k = 0; k < value_depth; ++k) {
            double sum = 0, size = 0;
            for (int64_t j = 0; j < end; ++j) {
              const double weighed = scores[static_cast<size_t>(j)] / total * row(value, h / 2, j)[k];
              sum += weighed;
              size += std::abs(weighed);
            }
            const auto at = static_cast<size_t>((h * queries + i) * value_depth + k);
            ASSERT_NEAR(out[at], sum, 2e-5 * size)
                << queries << " x " << keys << " x " << depth << ": " << h << ", " << i;
            ASSERT_NEAR(without[at], sum, 2e-5 * size);
          }
        }
      }
    }
  }
}

TEST_P(ShortTypes, WhatAQueryDoesNotSeeMayBeAnything) {
  const Tensor query = Make(4, 70, 64), key = Make(2, 70, 64);
  Tensor value = Make(2, 70, 64);
  const AttentionSetup setup = SetupOf(70, 70, 64, 64, true);
  const std::vector<float> expected = Run(setup, query, key, value, 1000);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t k = 0; k < 64; ++k) value.numbers[static_cast<size_t>((h * 70 + 69) * 64 + k)] = INFINITY;
  }
  Write(value);
  const std::vector<float> out = Run(setup, query, key, value, 1000);
  for (int64_t h = 0; h < 4; ++h) {
    // Tiles of six rows are multiplied together in float32.
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t k = 0; k < 64; ++k) {
        const auto at = static_cast<size_t>((h * 70 + i) * 64 + k);
        ASSERT_NEAR(out[at], expected[at], 1e-5) << h << ", " << i;
      }
    }
    ASSERT_EQ(out[static_cast<size_t>((h * 70 + 69) * 64)], INFINITY);
  }
}

TEST_P(ShortTypes, LargeAndSmallScores) {
  const Tensor query = Make(4, 40, 64, 30), key = Make(2, 90, 64, 30), value = Make(2, 90, 64, 1e-3F);
  const AttentionSetup setup = SetupOf(40, 90, 64, 64, false);
  const std::vector<float> out = Run(setup, query, key, value, 1000);
  const std::vector<float> without = Run(setup, query, key, value, 1000, false);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], without[i], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Types, ShortTypes, testing::Values(DType::kBFloat16, DType::kFloat16),
                         [](const auto& instance) {
                           return instance.param == DType::kBFloat16 ? "BFloat16" : "Float16";
                         });

}  // namespace
}  // namespace reprise::kernels
