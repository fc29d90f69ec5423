// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/rows.h"

#include <span>

#include "kernels/simd/activation_rows.h"
#include "kernels/simd/arithmetic_rows.h"
#include "kernels/simd/math_rows.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/panels.h"
#include "kernels/simd/power_rows.h"
#include "kernels/simd/test_targets.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

using namespace kernels::testing;

constexpr DType kTypes[] = {DType::kFloat, DType::kFloat16, DType::kBFloat16};

// Quiet NaNs become one NaN: with two NaN operands the payload is either one's.
std::string Normalised(const TensorRef& ref) {
  std::string text;
  for (int64_t i = 0; i < ElementCount(ref); ++i) {
    if (std::isnan(At(ref, i).re))
      text += "nan.";
    else
      text.append(AddressOf(ref, i), static_cast<size_t>(ItemSize(ref.dtype)));
  }
  return text;
}

// Every row function of the enumerators [0, last] that `find` knows. `fuses`: they may use fused multiply-add.
template <class Find>
void ExpectTheSameBits(int last, std::span<const DType> types, bool fuses, Find&& find) {
  Rng rng(51);
  constexpr int64_t kCount = 2003;
  const float numbers[kMaxNumbers] = {0.3f, 0.7f, 1.5f, -0.2f};
  for (DType dtype : types) {
    const TestTensor in[] = {RandomTensor(rng, dtype, {kCount}, TestLayout::kContiguous),
                             RandomTensor(rng, dtype, {kCount}, TestLayout::kContiguous),
                             RandomTensor(rng, dtype, {kCount}, TestLayout::kContiguous)};
    for (int op = 0; op <= last; ++op) {
      const auto run = [&](RowFn function, int64_t begin, int64_t end, const TestTensor& out) {
        const RowArgs args{out.ref.data, {in[0].ref.data, in[1].ref.data, in[2].ref.data}, numbers};
        function(&args, begin, end);
      };
      std::string expected_of[2];
      ForEachTarget([&](int64_t target) {
        std::string& expected = expected_of[fuses && testing::HasFusedMultiplyAdd(target)];
        const RowFn function = find(op, dtype);
        ASSERT_NE(function, nullptr);
        const auto whole = MakeTensor(rng, dtype, {kCount});
        run(function, 0, kCount, whole);
        if (expected.empty()) expected = Normalised(whole.ref);
        ASSERT_TRUE(Normalised(whole.ref) == expected) << Name(dtype) << " op " << op << " target " << target;
        const auto pieces = MakeTensor(rng, dtype, {kCount});
        for (int64_t begin = 0, n = 1; begin < kCount; begin += n, n = n % 23 + 1) {
          run(function, begin, std::min(begin + n, kCount), pieces);
        }
        ASSERT_TRUE(Normalised(pieces.ref) == Normalised(whole.ref))
            << Name(dtype) << " op " << op << " target " << target;
      });
    }
  }
}

TEST(RowsTest, EveryInstructionSetAndTailGivesTheSameBits) {
  ExpectTheSameBits(static_cast<int>(ArithmeticRow::kAddcdiv), kTypes, false, [](int op, DType type) {
    return FindArithmeticRow(static_cast<ArithmeticRow>(op), type).function;
  });
  ExpectTheSameBits(static_cast<int>(MathRow::kTrunc), kTypes, true,
                    [](int op, DType type) { return FindMathRow(static_cast<MathRow>(op), type).function; });
  ExpectTheSameBits(static_cast<int>(ActivationRow::kThresholdBackward), kTypes, true, [](int op, DType type) {
    return FindActivationRow(static_cast<ActivationRow>(op), type).function;
  });
  ExpectTheSameBits(static_cast<int>(PowerRow::kLogAddExp), {kTypes, 1}, true,
                    [](int op, DType) { return FindPowerRow(static_cast<PowerRow>(op)).function; });
}

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

TEST(RowsTest, ConversionsEqualTheValueTypesOnEveryInstructionSet) {
  std::vector<uint16_t> words(65536);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(600000);
  Rng rng(52);
  for (size_t i = 0; i < floats.size(); ++i) {
    auto bits = static_cast<uint32_t>(rng());
    if (i % 2 == 0) bits = (bits & 0x8fffffffu) | 0x30000000u;
    if (i % 4 == 0) bits &= 0xfffff000u;
    floats[i] = std::bit_cast<float>(bits);
  }
  ForEachTarget([&](int64_t target) {
    std::vector<float> wide(words.size());
    const auto count = static_cast<int64_t>(words.size());
    ConvertRow(DType::kFloat16, DType::kFloat, words.data(), wide.data(), count);
    for (size_t i = 0; i < words.size(); ++i) {
      ASSERT_EQ(BitsOf(wide[i]), BitsOf(HalfBitsToFloat(words[i]))) << target << " " << i;
    }
    ConvertRow(DType::kBFloat16, DType::kFloat, words.data(), wide.data(), count);
    for (size_t i = 0; i < words.size(); ++i) {
      ASSERT_EQ(BitsOf(wide[i]), BitsOf(BFloat16BitsToFloat(words[i]))) << target << " " << i;
    }
    std::vector<uint16_t> narrow(floats.size());
    const auto n = static_cast<int64_t>(floats.size());
    ConvertRow(DType::kFloat, DType::kFloat16, floats.data(), narrow.data(), n);
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(narrow[i], FloatToHalfBits(floats[i])) << target << " " << floats[i];
    }
    ConvertRow(DType::kFloat, DType::kBFloat16, floats.data(), narrow.data(), n);
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(narrow[i], FloatToBFloat16Bits(floats[i])) << target << " " << floats[i];
    }
  });
}

TEST(RowsTest, ExpShiftedIsExpOfTheDifference) {
  Rng rng(53);
  const auto x = RandomTensor(rng, DType::kFloat, {1001}, TestLayout::kContiguous);
  const auto difference = MakeTensor(rng, DType::kFloat, {1001});
  const auto expected = MakeTensor(rng, DType::kFloat, {1001});
  for (int64_t i = 0; i < 1001; ++i) {
    static_cast<float*>(difference.ref.data)[i] = static_cast<float*>(x.ref.data)[i] - 1.5f;
  }
  const RowArgs args{expected.ref.data, {difference.ref.data}, nullptr};
  FindMathRow(MathRow::kExp, DType::kFloat).function(&args, 0, 1001);
  ExpShiftedRow(static_cast<float*>(x.ref.data), 1.5f, 1001);
  EXPECT_EQ(BytesOf(x.ref), BytesOf(expected.ref));
}

template <class B>
void CheckTiles(int64_t target) {
  const int64_t width = PanelWidth(float());
  constexpr int64_t kDepth = 11;
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25, 31}) {
    const int64_t cols = 5 * width;
    std::vector<float> left(static_cast<size_t>(rows * kDepth));
    std::vector<B> right(static_cast<size_t>(cols * kDepth));
    std::vector<float> c(static_cast<size_t>(rows * cols), 100.0f);
    const auto a = [](int64_t i, int64_t k) { return static_cast<float>(i * 3 + k); };
    const auto b = [](int64_t k, int64_t j) { return static_cast<float>(k * 7 - j); };
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < kDepth; ++k) left[static_cast<size_t>(i * kDepth + k)] = a(i, k);
    }
    for (bool packed : {true, false}) {
      for (int64_t k = 0; k < kDepth; ++k) {
        for (int64_t j = 0; j < cols; ++j) {
          const int64_t in_panel = j / width * width * kDepth + k * width + j % width;
          right[static_cast<size_t>(packed ? in_panel : k * cols + j)] = B(b(k, j));
        }
      }
      const RightPanels<B> view =
          packed ? RightPanels<B>{right.data(), width * kDepth, width} : RightPanels<B>{right.data(), width, cols};
      const auto* const bytes = reinterpret_cast<const char*>(right.data());
      const auto row_bytes = static_cast<int64_t>(cols * sizeof(B));
      const NextRead nexts[] = {{},
                                {.is_behind_panels = true},
                                {bytes, 1, 0, row_bytes * kDepth},
                                {bytes, 1, 0, row_bytes, true},
                                {bytes, kDepth, row_bytes, row_bytes},
                                {bytes, 2, row_bytes, 2 * row_bytes}};
      for (const NextRead& next : nexts) {
        for (bool accumulates : {false, true}) {
          MultiplyBlock({left.data(), kDepth}, view, c.data(), cols, rows, cols, kDepth, accumulates, &next);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
              float sum = 0;
              for (int64_t k = 0; k < kDepth; ++k) sum += a(i, k) * b(k, j);
              ASSERT_EQ(c[static_cast<size_t>(i * cols + j)], accumulates ? 2 * sum : sum) << target;
            }
          }
        }
      }
    }
  }
}

TEST(MatMulTileTest, EveryInstructionSetMultipliesIntegersExactly) {
  ForEachTarget([&](int64_t target) {
    EXPECT_EQ(32 % PanelWidth(float()), 0);
    EXPECT_EQ(32 % PanelWidth(double()), 0);
    CheckTiles<float>(target);
    CheckTiles<Half>(target);
    CheckTiles<BFloat16>(target);
  });
}

template <class B>
void CheckStreams(int64_t target) {
  constexpr int64_t kDepth = 37;
  constexpr int64_t kCols = 43;
  const auto a = [](int64_t i, int64_t k) { return static_cast<float>((i * 3 + k) % 5); };
  const auto b = [](int64_t k, int64_t j) { return static_cast<float>((k * 7 - j) % 6); };
  for (int64_t rows : {1, 2, 3, 4, 5, 7}) {
    std::vector<float> left(static_cast<size_t>(rows * kDepth));
    for (int64_t i = 0; i < rows * kDepth; ++i) left[static_cast<size_t>(i)] = a(i / kDepth, i % kDepth);
    for (bool by_rows : {true, false}) {
      std::vector<B> right(static_cast<size_t>(kCols * kDepth));
      for (int64_t k = 0; k < kDepth; ++k) {
        for (int64_t j = 0; j < kCols; ++j) {
          right[static_cast<size_t>(by_rows ? k * kCols + j : j * kDepth + k)] = B(b(k, j));
        }
      }
      std::vector<float> c(static_cast<size_t>(rows * kCols), 100.0f);
      StreamBlock<float, B> block = {
          {left.data(), kDepth}, right.data(), by_rows ? kCols : kDepth, c.data(), kCols, rows, kCols, kDepth, false};
      by_rows ? MultiplyByRows(block) : MultiplyByColumns(block);
      block.accumulates = !by_rows;
      if (!by_rows) MultiplyByColumns(block);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < kCols; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < kDepth; ++k) sum += a(i, k) * b(k, j);
          ASSERT_EQ(c[static_cast<size_t>(i * kCols + j)], by_rows ? sum : 2 * sum) << target;
        }
      }
    }
  }
}

TEST(MatMulTileTest, EveryInstructionSetStreamsIntegersExactly) {
  ForEachTarget([&](int64_t target) {
    CheckStreams<float>(target);
    CheckStreams<Half>(target);
    CheckStreams<BFloat16>(target);
    CheckStreams<int8_t>(target);
  });
}

// Panels of columns and of rows hold the same numbers, and zeros behind the last lane.
template <class B>
void CheckPanels(int64_t target) {
  const int64_t width = PanelWidth(float());
  const auto b = [](int64_t k, int64_t j) { return static_cast<float>((k * 7 - j) % 60); };
  for (int64_t depth : {1, 7, 8, 21}) {
    for (int64_t lanes : {int64_t{1}, width - 1, width, 2 * width + 9}) {
      const int64_t panels = (lanes + width - 1) / width;
      std::vector<B> columns(static_cast<size_t>(lanes * depth));
      std::vector<B> rows(columns.size());
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t j = 0; j < lanes; ++j) {
          columns[static_cast<size_t>(j * depth + k)] = B(b(k, j));
          rows[static_cast<size_t>(k * lanes + j)] = B(b(k, j));
        }
      }
      std::vector<float> from_columns(static_cast<size_t>(panels * width * depth), 100.0f);
      std::vector<float> from_rows = from_columns;
      for (int64_t p = 0; p < panels; ++p) {
        PanelOfColumns(columns.data() + p * width * depth, depth, std::min(width, lanes - p * width), depth,
                       from_columns.data() + p * width * depth);
      }
      PanelsOfRows(rows.data(), lanes, lanes, depth, from_rows.data());
      for (int64_t j = 0; j < panels * width; ++j) {
        for (int64_t k = 0; k < depth; ++k) {
          const auto at = static_cast<size_t>(j / width * width * depth + k * width + j % width);
          ASSERT_EQ(from_columns[at], j < lanes ? b(k, j) : 0) << target << " column " << j << " of " << lanes;
          ASSERT_EQ(from_rows[at], from_columns[at]) << target << " column " << j << " of " << lanes;
        }
      }
    }
  }
}

TEST(PanelsTest, EveryInstructionSetPacksColumnsAndRowsAlike) {
  ForEachTarget([&](int64_t target) {
    CheckPanels<float>(target);
    CheckPanels<Half>(target);
    CheckPanels<BFloat16>(target);
  });
}

TEST(PanelsTest, ScaleAddRoundsEachProduct) {
  ForEachTarget([&](int64_t target) {
    std::vector<float> row(37), addend(37), expected(37);
    for (size_t j = 0; j < row.size(); ++j) {
      row[j] = 0.1f * static_cast<float>(j);
      addend[j] = 0.7f - static_cast<float>(j);
      const volatile float left = 1.3f * row[j];
      const volatile float right = 0.9f * addend[j];
      expected[j] = left + right;
    }
    ScaleAddRow(row.data(), 1.3f, addend.data(), 0.9f, 37);
    EXPECT_EQ(row, expected) << target;
  });
}

TEST(MatMulTileTest, EveryInstructionSetExchangesRowsAndColumns) {
  ForEachTarget([&](int64_t target) {
    constexpr int64_t kRows = 9;
    constexpr int64_t kCols = 14;
    std::vector<float> src(static_cast<size_t>(kRows * kCols));
    std::vector<float> dst(src.size());
    for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
    Transpose(src.data(), kCols, kRows, kCols, dst.data(), kRows);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kCols; ++j) {
        ASSERT_EQ(dst[static_cast<size_t>(j * kRows + i)], src[static_cast<size_t>(i * kCols + j)]) << target;
      }
    }
  });
}

}  // namespace
}  // namespace reprise::kernels::simd
