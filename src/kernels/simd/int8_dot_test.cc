// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 matrices on every instruction set that the machine has: exact, whatever the layout.
#include "kernels/simd/int8_dot.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/int8_matmul.h"
#include "kernels/simd/test_targets.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

using namespace reprise::kernels::testing;

// [batch, rows, cols] of int8 whose rows or columns lie back to back, or neither. The memory ends with the numbers.
struct Matrix {
  std::unique_ptr<int8_t[]> numbers;
  TensorRef ref;

  Matrix(Rng& rng, int64_t batch, int64_t rows, int64_t cols, int form, bool extreme) {
    const int64_t spread = form == 2 ? 2 : 1;
    const auto size = static_cast<size_t>(batch * rows * cols * spread);
    numbers = std::make_unique<int8_t[]>(size);
    // The ends of the range, where sums of pairs leave 16 bits.
    for (size_t i = 0; i < size; ++i)
      numbers[i] = static_cast<int8_t>(extreme ? -128 + 255 * Pick(rng, 0, 1) : Pick(rng, -128, 127));
    ref = MakeContiguous(numbers.get(), DType::kInt8, {batch, rows, cols});
    ref.strides[0] = rows * cols * spread;
    ref.strides[1] = form == 1 ? 1 : cols * spread;
    ref.strides[2] = form == 1 ? rows : spread;
  }
  int64_t At(int64_t b, int64_t i, int64_t j) const {
    return numbers[static_cast<size_t>(b * ref.strides[0] + i * ref.strides[1] + j * ref.strides[2])];
  }
};

struct Scratch {
  std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};

  Scratch(const TensorRef& out, int64_t depth) {
    const auto bytes = static_cast<size_t>((Int8MatMulScratchBytes(out, depth) + 63) / 64 * 64);
    memory.reset(std::aligned_alloc(64, bytes));
    std::memset(memory.get(), 0x5A, bytes);
  }
};

void Check(Rng& rng, int64_t m, int64_t k, int64_t n, int form, bool extreme) {
  const Matrix a(rng, 2, m, k, form == 1 ? 0 : form, extreme);
  const Matrix b(rng, 2, k, n, form, extreme);
  std::vector<int32_t> out(static_cast<size_t>(2 * m * n), -7);
  const TensorRef result = MakeContiguous(out.data(), DType::kInt32, {2, m, n});
  const Scratch scratch(result, k);
  RunInPieces(rng, Int8MatMulUnitCount(result, k),
              [&](Range range) { Int8MatMul(a.ref, b.ref, result, range, scratch.memory.get()); });
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        int64_t expected = 0;
        for (int64_t l = 0; l < k; ++l) expected += a.At(batch, i, l) * b.At(batch, l, j);
        ASSERT_EQ(out[static_cast<size_t>((batch * m + i) * n + j)], expected)
            << "m" << m << " k" << k << " n" << n << " form " << form << " at " << batch << ", " << i << ", " << j;
      }
    }
  }
}

TEST(Int8Dot, EveryInstructionSetIsExact) {
  Rng rng(61);
  const int targets = ForEachTarget([&](int64_t target) {
    for (int form : {0, 1, 2}) {
      constexpr std::array<int64_t, 3> kSizes[] = {{1, 64, 4},   {1, 63, 67},  {2, 1, 3},
                                                   {3, 129, 33}, {7, 96, 130}, {17, 65, 70}};
      for (const auto& [m, k, n] : kSizes) {
        for (bool extreme : {false, true}) Check(rng, m, k, n, form, extreme);
        if (::testing::Test::HasFatalFailure()) FAIL() << "on " << hwy::TargetName(target);
      }
    }
  });
  EXPECT_GE(targets, 1);
}

// More rows than share a piece of the weight, and depths that are taken in parts.
TEST(Int8Dot, EveryPartCounts) {
  Rng rng(62);
  for (int form : {0, 1}) {
    Check(rng, 131, 70, 9, form, false);
    Check(rng, 1, 4100, 5, form, true);
    Check(rng, 9, 1030, 5, form, true);
    Check(rng, 40, 1100, 66, form, true);
    Check(rng, 16, 64, 17, form, true);
    if (HasFatalFailure()) return;
  }
}

// alpha * sums + beta * addend, as MatMul promises, modulo 2^32.
TEST(Int8Dot, EpilogueIsThatOfMatMul) {
  Rng rng(63);
  const Matrix a(rng, 1, 3, 40, 0, false);
  const Matrix b(rng, 1, 40, 70, 1, false);
  std::vector<int32_t> out(3 * 70);
  std::vector<int32_t> addend(70, 5);
  addend[3] = INT32_MAX;
  const TensorRef result = MakeContiguous(out.data(), DType::kInt32, {1, 3, 70});
  MatMulEpilogue epilogue;
  epilogue.alpha = Scalar::Of<int64_t>(3);
  epilogue.beta = Scalar::Of<int64_t>(-2);
  epilogue.addend = MakeContiguous(addend.data(), DType::kInt32, {1, 1, 70});
  ASSERT_TRUE(IsInt8Product(a.ref, b.ref, DType::kInt32, result));
  const Scratch scratch(result, 40);
  MatMul(a.ref, b.ref, DType::kInt32, result, {0, MatMulUnitCount(a.ref, b.ref, DType::kInt32, result)},
         scratch.memory.get(), &epilogue);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 70; ++j) {
      int64_t sum = 0;
      for (int64_t l = 0; l < 40; ++l) sum += a.At(0, i, l) * b.At(0, l, j);
      ASSERT_EQ(out[static_cast<size_t>(i * 70 + j)],
                static_cast<int32_t>(3 * sum - 2 * int64_t{addend[static_cast<size_t>(j)]}));
    }
  }
}

// Scales of columns and rows, biases of batches: a window of the result takes those that belong to it.
TEST(Int8Dot, SumsBecomeNumbers) {
  Rng rng(64);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1100}, {5, 70}, {140, 66}}) {
    constexpr int64_t kDepth = 33;
    const Matrix a(rng, 2, m, kDepth, 0, false);
    const Matrix b(rng, 2, kDepth, n, 1, false);
    std::vector<float> scale(static_cast<size_t>(n)), rows(static_cast<size_t>(m)), bias(static_cast<size_t>(2 * n));
    for (float& value : scale) value = static_cast<float>(Pick(rng, 1, 4));
    for (float& value : rows) value = static_cast<float>(Pick(rng, 1, 4));
    for (float& value : bias) value = static_cast<float>(Pick(rng, -9, 9));
    std::vector<float> out(static_cast<size_t>(2 * m * n));
    const TensorRef result = MakeContiguous(out.data(), DType::kFloat, {2, m, n});
    DequantizeOperands factors = {};
    factors.scale = MakeContiguous(scale.data(), DType::kFloat, {n});
    factors.row_scale = MakeContiguous(rows.data(), DType::kFloat, {m});
    factors.bias = MakeContiguous(bias.data(), DType::kFloat, {2, 1, n});
    const Scratch scratch(result, kDepth);
    RunInPieces(rng, Int8MatMulUnitCount(result, kDepth),
                [&](Range range) { Int8MatMul(a.ref, b.ref, factors, result, range, scratch.memory.get()); });
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          int64_t sum = 0;
          for (int64_t l = 0; l < kDepth; ++l) sum += a.At(batch, i, l) * b.At(batch, l, j);
          const float expected =
              static_cast<float>(sum) * scale[static_cast<size_t>(j)] * rows[static_cast<size_t>(i)] +
              bias[static_cast<size_t>(batch * n + j)];
          ASSERT_EQ(out[static_cast<size_t>((batch * m + i) * n + j)], expected) << "m" << m << " n" << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
