// SPDX-License-Identifier: Apache-2.0
//
// Products of few rows whose depth takes several blocks. The numbers are small integers, so that every order of
// addition gives the same bits.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

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

}  // namespace
}  // namespace reprise::kernels
