// SPDX-License-Identifier: Apache-2.0
//
// Products by the matrix unit: the bits of their definition, and what it leaves to float32.
#include "kernels/simd/matrix_unit.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cast.h"
#include "kernels/matmul.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels::simd {
namespace {

using namespace reprise::kernels::testing;

class MatrixUnit : public ::testing::Test {
 protected:
  void SetUp() override {
    SetMatrixUnitUse(MatrixUnitUse::kAll);
    if (!HasMatrixUnit()) GTEST_SKIP() << "the processor has none, or this process may not use it";
  }
  void TearDown() override { SetMatrixUnitUse(MatrixUnitUse::kShortTypes); }
};

enum class Order : uint8_t { kRows, kColumns, kScattered };

// A matrix whose memory ends where its elements do, so that reading on is seen.
struct Matrix {
  std::vector<float> values;  // [rows, cols], as the type holds them
  std::vector<char> memory;
  TensorRef ref;

  Matrix(DType type, int64_t rows, int64_t cols, Order order, std::vector<float> numbers) : values(std::move(numbers)) {
    const int64_t row = order == Order::kColumns ? 1 : order == Order::kRows ? cols + 3 : 2 * cols;
    const int64_t col = order == Order::kColumns ? rows + 5 : order == Order::kRows ? 1 : 2;
    const int64_t item = ItemSize(type);
    memory.assign(static_cast<size_t>(((rows - 1) * row + (cols - 1) * col + 1) * item), '\xff');  // NaN
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        float& value = values[static_cast<size_t>(i * cols + j)];
        char* const at = memory.data() + (i * row + j * col) * item;
        FindCast(DType::kFloat, type)(reinterpret_cast<char*>(&value), 4, at, item, 1);
        FindCast(type, DType::kFloat)(at, item, reinterpret_cast<char*>(&value), 4, 1);
      }
    }
    ref = MakeContiguous(memory.data(), type, {rows, cols});
    ref.strides[0] = row;
    ref.strides[1] = col;
  }
  float at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * ref.sizes[1] + j)]; }
};

// Of all digits, and of sizes from 2^least to 2^(least + spread); some are 0.
std::vector<float> Numbers(Rng& rng, int64_t count, int least, int spread) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) {
    if (Pick(rng, 0, 9) == 0) continue;
    const float digits = 1 + static_cast<float>(Pick(rng, 0, (1 << 23) - 1)) / (1 << 23);
    number = std::ldexp(Pick(rng, 0, 1) == 0 ? digits : -digits, least + static_cast<int>(Pick(rng, 0, spread)));
  }
  return numbers;
}

Matrix Random(Rng& rng, DType type, int64_t rows, int64_t cols, Order order, int least = -3, int spread = 6) {
  return {type, rows, cols, order, Numbers(rng, rows * cols, least, spread)};
}

std::unique_ptr<void, decltype(&std::free)> Allocate(int64_t bytes) {
  std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)), &std::free);
  std::memset(memory.get(), 0xFF, static_cast<size_t>(bytes));
  return memory;
}

// Into a matrix of float32 whose rows are three elements apart from each other.
std::vector<float> Multiply(Rng& rng, const Matrix& a, const Matrix& b, bool is_prepared) {
  const DType type = a.ref.dtype;
  const int64_t m = a.ref.sizes[0];
  const int64_t n = b.ref.sizes[1];
  std::vector<float> out(static_cast<size_t>(m * (n + 3)), -7);
  TensorRef c = MakeContiguous(out.data(), DType::kFloat, {m, n});
  c.strides[0] = n + 3;
  std::unique_ptr<void, decltype(&std::free)> form(nullptr, &std::free);
  TensorRef right = b.ref;
  if (is_prepared) {
    const PreparedRight prepared = FindPreparedRight(a.ref, b.ref, type);
    form = Allocate(prepared.bytes);
    prepared.write(b.ref, form.get());
    right.data = nullptr;
  }
  const auto scratch = Allocate(MatMulScratchBytes(a.ref, right, type, c, is_prepared));
  RunInPieces(rng, MatMulUnitCount(a.ref, right, type, c, is_prepared),
              [&](Range range) { MatMul(a.ref, right, type, c, range, scratch.get(), nullptr, form.get()); });
  std::vector<float> compact;
  for (int64_t i = 0; i < m; ++i) {
    const float* const row = out.data() + i * (n + 3);
    compact.insert(compact.end(), row, row + n);
    for (int64_t j = n; j < n + 3; ++j) EXPECT_EQ(row[j], -7) << "behind row " << i;
  }
  return compact;
}

float Part(float value, int number) {
  float part = 0;
  for (; number >= 0; --number) {
    part = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000U);
    value -= part;
  }
  return part;
}

// The definition: for each 32 of the depth and pair of parts, the sum of two chains; blocks of 256 are added in order.
float ByDefinition(const Matrix& a, const Matrix& b, int64_t i, int64_t j) {
  using Pairs = std::vector<std::pair<int, int>>;
  const DType type = a.ref.dtype;
  const Pairs pairs = type == DType::kBFloat16  ? Pairs{{0, 0}}
                      : type == DType::kFloat16 ? Pairs{{0, 0}, {0, 1}, {1, 1}, {1, 0}}
                                                : Pairs{{0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 2}};
  const int64_t depth = a.ref.sizes[1];
  float total = 0;
  for (int64_t block = 0; block < depth; block += 256) {
    float sum = 0;
    for (int64_t begin = block; begin < std::min(depth, block + 256); begin += 32) {
      const int64_t end = std::min(begin + 32, depth);
      for (const auto& [left, right] : pairs) {
        float places[2] = {};
        for (int64_t k = begin; k < end; ++k) {
          float& chain = places[k % 2];
          chain = std::fma(Part(a.at(i, k), left), Part(b.at(k, j), right), chain);
        }
        sum += places[0] + places[1];
      }
    }
    total = block == 0 ? sum : total + sum;
  }
  return total;
}

// Within the bound of sums in float32.
void CheckBound(const Matrix& a, const Matrix& b, const std::vector<float>& out) {
  const int64_t m = a.ref.sizes[0], n = b.ref.sizes[1], depth = a.ref.sizes[1];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double product = static_cast<double>(a.at(i, k)) * b.at(k, j);
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(out[static_cast<size_t>(i * n + j)], sum, 0x1p-24 * static_cast<double>(depth + 2) * size + 0x1p-140)
          << "m" << m << " n" << n << " k" << depth << " at " << i << ", " << j;
    }
  }
}

TEST_F(MatrixUnit, EveryTypeLayoutAndSizeHasTheBitsOfTheDefinition) {
  Rng rng(81);
  constexpr std::array<int64_t, 3> kSizes[] = {{33, 17, 17},  {40, 257, 31}, {35, 512, 33}, {48, 64, 33},
                                               {64, 33, 150}, {33, 16, 32},  {140, 70, 34}, {130, 96, 18}};
  int number = 0;
  for (DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat}) {
    for (const auto& [m, k, n] : kSizes) {
      for (Order left : {Order::kRows, Order::kColumns, Order::kScattered}) {
        for (Order right : {Order::kRows, Order::kColumns, Order::kScattered}) {
          if (m > 100 && left != right) continue;
          const Matrix a = Random(rng, type, m, k, left);
          const Matrix b = Random(rng, type, k, n, right);
          const std::vector<float> out = Multiply(rng, a, b, ++number % 3 == 0);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              ASSERT_EQ(out[static_cast<size_t>(i * n + j)], ByDefinition(a, b, i, j))
                  << Name(type) << " m" << m << " n" << n << " k" << k << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

TEST_F(MatrixUnit, FewRowsOfBFloat16TimesAPreparedOperand) {
  Rng rng(82);
  for (int64_t m : {1, 3, 15, 16, 17, 18}) {
    const Matrix a = Random(rng, DType::kBFloat16, m, 259, Order::kRows);
    const Matrix b = Random(rng, DType::kBFloat16, 259, 130, Order::kColumns);
    const std::vector<float> out = Multiply(rng, a, b, true);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < 130; ++j) ASSERT_EQ(out[static_cast<size_t>(i * 130 + j)], ByDefinition(a, b, i, j));
    }
  }
}

// Numbers whose parts, products or sums could be subnormal: all of an operand, or a few.
TEST_F(MatrixUnit, SmallNumbersCount) {
  Rng rng(83);
  for (DType type : {DType::kBFloat16, DType::kFloat}) {
    for (const auto& [left, right] : {std::pair{-133, 0},
                                      {0, -133},
                                      {-63, -63},
                                      {-55, -57},
                                      {-70, -70},
                                      {-16, -110},
                                      {-126, 100},
                                      {100, -126},
                                      {-40, -45},
                                      {-149, 120}}) {
      for (bool is_prepared : {false, true}) {
        const Matrix a = Random(rng, type, 50, 300, Order::kRows, left);
        const Matrix b = Random(rng, type, 300, 70, Order::kRows, right);
        CheckBound(a, b, Multiply(rng, a, b, is_prepared));
        if (HasFatalFailure()) FAIL() << Name(type) << " of " << left << " and " << right;
      }
    }
  }
  for (bool is_prepared : {false, true}) {
    std::vector<float> numbers = Numbers(rng, 50 * 300, 0, 3);
    for (int64_t k = 0; k < 300; ++k) numbers[static_cast<size_t>(20 * 300 + k)] *= 0x1p-140F;
    const Matrix a(DType::kFloat, 50, 300, Order::kRows, std::move(numbers));
    const Matrix b = Random(rng, DType::kFloat, 300, 70, Order::kColumns, 100);
    CheckBound(a, b, Multiply(rng, a, b, is_prepared));
    if (HasFatalFailure()) FAIL() << "one row";
  }
}

TEST_F(MatrixUnit, LargeNumbersDoNotOverflowInParts) {
  Rng rng(84);
  const Matrix a = Random(rng, DType::kFloat, 40, 64, Order::kRows, 120, 7);
  const Matrix b = Random(rng, DType::kFloat, 64, 40, Order::kRows, -12, 6);
  const std::vector<float> out = Multiply(rng, a, b, false);
  for (float value : out) ASSERT_TRUE(std::isfinite(value));
  CheckBound(a, b, out);
}

TEST_F(MatrixUnit, NumbersThatAreNotFiniteStayInTheirRowsAndColumns) {
  Rng rng(85);
  for (DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat}) {
    for (bool is_prepared : {false, true}) {
      std::vector<float> left = Numbers(rng, 50 * 37, 0, 2);
      std::vector<float> right(37 * 40, 1.0F);
      left[3 * 37 + 36] = INFINITY;
      left[5 * 37 + 7] = NAN;
      left[1 * 37 + 8] = 0;
      right[8 * 40 + 9] = -INFINITY;
      const Matrix a(type, 50, 37, Order::kRows, std::move(left));
      const Matrix b(type, 37, 40, Order::kRows, std::move(right));
      const std::vector<float> out = Multiply(rng, a, b, is_prepared);
      for (int64_t i = 0; i < 50; ++i) {
        for (int64_t j = 0; j < 40; ++j) {
          const float got = out[static_cast<size_t>(i * 40 + j)];
          if (i == 5 || (i == 1 && j == 9)) {
            ASSERT_TRUE(std::isnan(got)) << Name(type) << " " << i << ", " << j;
          } else if (j != 9) {
            ASSERT_EQ(std::isinf(got), i == 3) << Name(type) << " " << i << ", " << j;
          }
        }
      }
    }
  }
}

// A form belongs to the function that wrote it: that of few rows of float32 is another one.
TEST_F(MatrixUnit, FormsOfFewAndManyRowsDiffer) {
  Rng rng(86);
  const Matrix b = Random(rng, DType::kFloat, 300, 70, Order::kRows);
  const Matrix few = Random(rng, DType::kFloat, 12, 300, Order::kRows);
  const Matrix many = Random(rng, DType::kFloat, 48, 300, Order::kRows);
  const PreparedRight one = FindPreparedRight(few.ref, b.ref, DType::kFloat);
  const PreparedRight other = FindPreparedRight(many.ref, b.ref, DType::kFloat);
  EXPECT_NE(one.write, other.write);
  EXPECT_NE(one.bytes, other.bytes);
}

TEST_F(MatrixUnit, PartsAddUpToTheirNumber) {
  Rng rng(87);
  const std::vector<float> numbers = Numbers(rng, 37, -20, 40);
  std::vector<BFloat16> parts(3 * 50);
  EXPECT_GT(SplitParts(numbers.data(), 37, 3, parts.data(), 50), 0);
  for (size_t i = 0; i < 37; ++i) {
    EXPECT_EQ(static_cast<float>(parts[i]) + (static_cast<float>(parts[50 + i]) + static_cast<float>(parts[100 + i])),
              numbers[i]);
  }
  const float tiny[] = {1, 0x1p-120F};
  EXPECT_EQ(SplitParts(tiny, 2, 3, parts.data(), 50), 0) << "its last digits are too small for a part";
  const float infinite[] = {1, -INFINITY};
  EXPECT_EQ(SplitParts(infinite, 2, 3, parts.data(), 50), 0);
  const float zeros[] = {0, -0.0F};
  EXPECT_EQ(SplitParts(zeros, 2, 3, parts.data(), 50), 255);
}

}  // namespace
}  // namespace reprise::kernels::simd
