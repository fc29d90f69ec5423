// SPDX-License-Identifier: Apache-2.0
//
// Products of bfloat16 on every instruction set that the machine has.
#include "kernels/simd/bfloat16_tile.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/simd/bfloat16_pairs.h"
#include "kernels/simd/matrix_unit.h"
#include "kernels/simd/test_targets.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels::simd {
namespace {

using namespace reprise::kernels::testing;
using testing::ForEachTarget;

// Pairs are multiplied by the instruction, also where something else would be faster.
class BFloat16Tile : public ::testing::Test {
 protected:
  void SetUp() override {
    SetFastBFloat16PairsForTest(true);
    SetMatrixUnitUse(MatrixUnitUse::kNone);
  }
  void TearDown() override {
    SetFastBFloat16PairsForTest(false);
    SetMatrixUnitUse(MatrixUnitUse::kShortTypes);
  }
};

// A matrix whose memory ends where its elements do, so that reading on is seen.
struct Matrix {
  std::vector<float> values;  // [rows, cols]
  std::unique_ptr<BFloat16[]> memory;
  TensorRef ref;

  float at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * ref.sizes[1] + j)]; }
};

enum class Order : uint8_t { kRows, kColumns, kScattered };

// Elements are 1 to 2 times a power of two from 2^least to 2^(least + 3), or 0.
Matrix MakeMatrix(Rng& rng, int64_t rows, int64_t cols, Order order, int least) {
  Matrix m;
  const int64_t row = order == Order::kColumns ? 1 : order == Order::kRows ? cols + 3 : 2 * cols;
  const int64_t col = order == Order::kColumns ? rows + 5 : order == Order::kRows ? 1 : 2;
  const auto size = static_cast<size_t>((rows - 1) * row + (cols - 1) * col + 1);
  m.memory = std::make_unique<BFloat16[]>(size);
  for (size_t i = 0; i < size; ++i) m.memory[i] = BFloat16(NAN);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const float digits = static_cast<float>(Pick(rng, 0, 9) == 0 ? 0 : Pick(rng, 128, 255)) / 128;
      const float value =
          std::ldexp(Pick(rng, 0, 1) == 0 ? digits : -digits, least + static_cast<int>(Pick(rng, 0, 3)));
      BFloat16& to = m.memory[static_cast<size_t>(i * row + j * col)];
      to = BFloat16(value);
      m.values.push_back(static_cast<float>(to));
    }
  }
  m.ref = MakeContiguous(m.memory.get(), DType::kBFloat16, {rows, cols});
  m.ref.strides[0] = row;
  m.ref.strides[1] = col;
  return m;
}

std::unique_ptr<void, decltype(&std::free)> Allocate(int64_t bytes) {
  std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)), &std::free);
  std::memset(memory.get(), 0xFF, static_cast<size_t>(bytes));
  return memory;
}

std::vector<float> Multiply(Rng& rng, const Matrix& a, const Matrix& b, bool is_prepared) {
  const int64_t m = a.ref.sizes[0];
  const int64_t n = b.ref.sizes[1];
  std::vector<float> out(static_cast<size_t>(m * n), NAN);
  const TensorRef c = MakeContiguous(out.data(), DType::kFloat, {m, n});
  std::unique_ptr<void, decltype(&std::free)> form(nullptr, &std::free);
  TensorRef right = b.ref;
  if (is_prepared) {
    const PreparedRight prepared = FindPreparedRight(a.ref, b.ref, DType::kBFloat16);
    form = Allocate(prepared.bytes);
    prepared.write(b.ref, form.get());
    right.data = nullptr;
  }
  const auto scratch = Allocate(MatMulScratchBytes(a.ref, right, DType::kBFloat16, c, is_prepared));
  RunInPieces(rng, MatMulUnitCount(a.ref, right, DType::kBFloat16, c, is_prepared), [&](Range range) {
    MatMul(a.ref, right, DType::kBFloat16, c, range, scratch.get(), nullptr, form.get());
  });
  return out;
}

// One chain of each block of 256, of which a pair adds its odd product first.
float ByPairs(const Matrix& a, const Matrix& b, int64_t i, int64_t j) {
  const int64_t depth = a.ref.sizes[1];
  float total = 0;
  for (int64_t begin = 0; begin < depth; begin += 256) {
    float sum = 0;
    for (int64_t k = begin; k < std::min(depth, begin + 256); k += 2) {
      if (k + 1 < depth) sum = std::fma(a.at(i, k + 1), b.at(k + 1, j), sum);
      sum = std::fma(a.at(i, k), b.at(k, j), sum);
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

void CheckProduct(Rng& rng, const Matrix& a, const Matrix& b, bool is_prepared) {
  const int64_t m = a.ref.sizes[0];
  const int64_t n = b.ref.sizes[1];
  const int64_t depth = a.ref.sizes[1];
  const std::vector<float> out = Multiply(rng, a, b, is_prepared);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float got = out[static_cast<size_t>(i * n + j)];
      if (HasBFloat16Pairs()) {
        ASSERT_EQ(got, ByPairs(a, b, i, j)) << "m" << m << " n" << n << " k" << depth << " at " << i << ", " << j;
        continue;
      }
      double sum = 0;
      double size = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double product = static_cast<double>(a.at(i, k)) * b.at(k, j);
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(got, sum, 0x1p-24 * static_cast<double>(depth + 2) * size + 0x1p-140) << i << ", " << j;
    }
  }
}

TEST_F(BFloat16Tile, EveryLayoutAndSizeHasTheBitsOfFusedMultiplyAdds) {
  Rng rng(71);
  ForEachTarget([&](int64_t target) {
    constexpr std::array<int64_t, 3> kSizes[] = {{11, 1, 17},    {12, 257, 31}, {13, 512, 64}, {25, 64, 33},
                                                 {140, 300, 40}, {17, 33, 150}, {40, 2, 300}};
    int number = 0;
    for (const auto& [m, k, n] : kSizes) {
      for (Order left : {Order::kRows, Order::kColumns, Order::kScattered}) {
        for (Order right : {Order::kRows, Order::kColumns, Order::kScattered}) {
          if (m > 100 && left != right) continue;
          CheckProduct(rng, MakeMatrix(rng, m, k, left, -3), MakeMatrix(rng, k, n, right, -3), ++number % 3 == 0);
          if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
        }
      }
    }
  });
}

// Prepared operands are multiplied so by fewer rows, too, and several panels at a time.
TEST_F(BFloat16Tile, FewRowsTimesAPreparedOperand) {
  if (!HasBFloat16Pairs()) GTEST_SKIP() << "the processor has no such instruction";
  Rng rng(72);
  for (int64_t m = 1; m <= 12; ++m) {
    CheckProduct(rng, MakeMatrix(rng, m, 259, Order::kRows, -3), MakeMatrix(rng, 259, 300, Order::kColumns, -3), true);
    if (HasFatalFailure()) return;
  }
}

// Subnormal numbers, products and sums, in one operand or in both; some blocks of the depth have none.
TEST_F(BFloat16Tile, SmallNumbersCount) {
  Rng rng(73);
  ForEachTarget([&](int64_t target) {
    for (const auto& [left, right] : {std::pair{-133, 0}, {0, -133}, {-63, -63}, {-55, -57}, {-70, -70}, {-16, -110}}) {
      for (bool is_prepared : {false, true}) {
        Matrix a = MakeMatrix(rng, 14, 512, Order::kRows, left);
        const Matrix b = MakeMatrix(rng, 512, 40, Order::kRows, right);
        for (int64_t i = 0; i < 14; ++i) {
          for (int64_t k = 256; k < 512; ++k) {
            if (left < right) a.values[static_cast<size_t>(i * 512 + k)] = 0;
            if (left < right) a.memory[static_cast<size_t>(i * 515 + k)] = BFloat16();
          }
        }
        CheckProduct(rng, a, b, is_prepared);
        if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
      }
    }
  });
}

TEST_F(BFloat16Tile, NumbersThatAreNotFiniteStayInTheirRows) {
  Rng rng(74);
  ForEachTarget([&](int64_t target) {
    Matrix a = MakeMatrix(rng, 20, 37, Order::kRows, -3);
    Matrix b = MakeMatrix(rng, 37, 40, Order::kRows, -3);
    for (int64_t k = 0; k < 37; ++k) {
      for (int64_t j = 0; j < 40; ++j) b.memory[static_cast<size_t>(k * 43 + j)] = BFloat16(1);
    }
    a.memory[3 * 40 + 36] = BFloat16(INFINITY);
    a.memory[5 * 40 + 7] = BFloat16(NAN);
    b.memory[8 * 43 + 9] = BFloat16(INFINITY);
    a.memory[1 * 40 + 8] = BFloat16(0);
    const std::vector<float> out = Multiply(rng, a, b, false);
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t j = 0; j < 40; ++j) {
        const float got = out[static_cast<size_t>(i * 40 + j)];
        if (i == 5 || (i == 1 && j == 9)) {
          ASSERT_TRUE(std::isnan(got)) << i << ", " << j << " on " << hwy::TargetName(target);
        } else if (j != 9) {
          ASSERT_EQ(std::isinf(got), i == 3) << i << ", " << j << " on " << hwy::TargetName(target);
        }
      }
    }
  });
}

TEST_F(BFloat16Tile, TheLeastExponentIsThatOfTheSmallestNumber) {
  if (!HasBFloat16Pairs()) GTEST_SKIP() << "the processor has no such instruction";
  for (int64_t n : {1, 31, 32, 33, 70}) {
    std::vector<BFloat16> numbers(static_cast<size_t>(2 * n + 3));
    const LeftRows<BFloat16> rows = {numbers.data(), n + 3};
    EXPECT_EQ(LeastExponent(rows, 2, n), 255) << "zeros";
    numbers[0] = BFloat16(-INFINITY);
    EXPECT_EQ(LeastExponent(rows, 2, n), 255);
    numbers.back() = BFloat16(-0x1.8p-20F);
    EXPECT_EQ(LeastExponent(rows, 2, n), 127 - 20);
    EXPECT_EQ(LeastExponent(rows, 1, n), 255);
    numbers[static_cast<size_t>(n - 1)] = BFloat16::FromBits(1);
    EXPECT_EQ(LeastExponent(rows, 2, n), 0);
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
