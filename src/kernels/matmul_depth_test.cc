// SPDX-License-Identifier: Apache-2.0
//
// Products of few rows whose depth takes several blocks. The numbers are small integers, so that every order of
// addition gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/antiquant_matmul.h"
#include "kernels/matmul.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

template <class T>
void CheckProduct(Rng& rng, int64_t m, int64_t n, int64_t k, bool by_columns) {
  std::vector<T> left(static_cast<size_t>(m * k)), right(static_cast<size_t>(n * k)), out(static_cast<size_t>(m * n));
  for (T& value : left) value = static_cast<T>(Pick(rng, -3, 3));
  for (T& value : right) value = static_cast<T>(Pick(rng, -3, 3));
  const DType dtype = DTypeOf<T>();
  const TensorRef a = MakeContiguous(left.data(), dtype, {m, k});
  TensorRef b = MakeContiguous(right.data(), dtype, {k, n});
  if (by_columns) b.strides[0] = 1, b.strides[1] = k;
  const TensorRef c = MakeContiguous(out.data(), dtype, {m, n});
  const int64_t bytes = MatMulScratchBytes(a, b, dtype, c);
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)), &std::free);
  RunInPieces(rng, MatMulUnitCount(a, b, dtype, c), [&](Range range) { MatMul(a, b, dtype, c, range, scratch.get()); });
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t expected = 0;
      for (int64_t l = 0; l < k; ++l) {
        expected += static_cast<int64_t>(left[static_cast<size_t>(i * k + l)]) *
                    static_cast<int64_t>(right[static_cast<size_t>(by_columns ? j * k + l : l * n + j)]);
      }
      ASSERT_EQ(static_cast<int64_t>(out[static_cast<size_t>(i * n + j)]), expected)
          << Name(dtype) << " m" << m << " n" << n << " k" << k << (by_columns ? " by columns" : " by rows");
    }
  }
}

TEST(MatMulDepthTest, EveryBlockOfTheDepthCounts) {
  Rng rng(51);
  for (int64_t k : {255, 256, 257, 4095, 4096, 4097, 8200}) {
    for (int64_t m : {1, 2, 5, 16}) {
      for (int64_t n : {1, 4, 7, 70}) {
        for (bool by_columns : {true, false}) {
          CheckProduct<float>(rng, m, n, k, by_columns);
          CheckProduct<double>(rng, m, n, k, by_columns);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Weights of int8 in groups, by rows and by columns, for as many rows as are multiplied without widening the weight and
// for more. Small integers, scales that are powers of two: exact.
TEST(AntiquantDepthTest, FewRowsAndManyGiveTheSame) {
  Rng rng(52);
  constexpr int64_t kCols = 300;
  for (int64_t k : {1, 40, 300, 520}) {
    for (int64_t group : {int64_t{32}, int64_t{260}, k}) {
      for (bool by_columns : {true, false}) {
        for (bool has_offset : {true, false}) {
          constexpr int64_t kRows = 18;
          const int64_t groups = (k + group - 1) / group;
          std::vector<float> x(kRows * k), out(kRows * kCols), few(16 * kCols), scale(groups * kCols),
              offset(scale.size());
          std::vector<int8_t> w(k * kCols);
          for (float& value : x) value = static_cast<float>(Pick(rng, -3, 3));
          for (int8_t& value : w) value = static_cast<int8_t>(Pick(rng, -3, 3));
          for (float& value : scale) value = Pick(rng, 0, 1) == 0 ? 0.5f : 2.0f;
          for (float& value : offset) value = static_cast<float>(Pick(rng, -3, 3));
          AntiquantWeight weight;
          weight.weight = MakeContiguous(w.data(), DType::kInt8, {k, kCols});
          if (by_columns) weight.weight.strides[0] = 1, weight.weight.strides[1] = k;
          weight.group = group;
          weight.scale = MakeContiguous(scale.data(), DType::kFloat, {groups, kCols});
          if (has_offset) weight.offset = MakeContiguous(offset.data(), DType::kFloat, {groups, kCols});
          const std::unique_ptr<void, decltype(&std::free)> scratch(
              std::aligned_alloc(64, static_cast<size_t>(AntiquantScratchBytes())), &std::free);
          const auto run = [&](int64_t rows, std::vector<float>& to) {
            const TensorRef left = MakeContiguous(x.data(), DType::kFloat, {rows, k});
            const TensorRef result = MakeContiguous(to.data(), DType::kFloat, {rows, kCols});
            RunInPieces(rng, AntiquantUnitCount(kCols),
                        [&](Range range) { AntiquantMatMul(left, weight, {}, result, range, scratch.get()); });
          };
          run(kRows, out);
          run(16, few);
          for (size_t i = 0; i < few.size(); ++i) {
            ASSERT_EQ(few[i], out[i]) << "k" << k << " group " << group << (by_columns ? " by columns" : " by rows");
          }
          // An infinity is not lost in the sums of a weight with offsets.
          x[0] = INFINITY;
          run(kRows, out);
          run(16, few);
          for (size_t i = 0; has_offset && i < few.size(); ++i) {
            ASSERT_TRUE(few[i] == out[i] || (std::isnan(few[i]) && std::isnan(out[i])))
                << "k" << k << " group " << group;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
