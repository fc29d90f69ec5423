// SPDX-License-Identifier: Apache-2.0
#include "kernels/scale_add.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace reprise::kernels {
namespace {

template <class T>
TensorRef One(T& value) {
  return MakeContiguous(&value, DTypeOf<T>(), {});
}

TEST(ScaleAdd, StridedRowsLongerThanABlock) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kColumns = 700;
  std::vector<float> product(kRows * kColumns);
  std::vector<Half> out(kRows * kColumns * 2);
  for (size_t i = 0; i < product.size(); ++i) product[i] = static_cast<float>(i % 50);
  for (size_t i = 0; i < out.size(); ++i) out[i] = Half(static_cast<float>(i % 7));
  const std::vector<Half> before = out;
  TensorRef to = MakeContiguous(out.data(), DType::kFloat16, {kRows, kColumns});
  to.strides[0] = 2 * kColumns;
  to.strides[1] = 2;  // every other element is a gap
  Half alpha(2.0f);
  Half beta(3.0f);
  const TensorRef from = MakeContiguous(product.data(), DType::kFloat, {kRows, kColumns});
  // In two parts that cut a row.
  ScaleAdd(from, One(alpha), One(beta), to, {0, 1000});
  ScaleAdd(from, One(alpha), One(beta), to, {1000, kRows * kColumns});
  for (size_t i = 0; i < out.size(); ++i) {
    const float old = static_cast<float>(before[i]);
    EXPECT_EQ(i % 2 == 0 ? 2 * product[i / 2] + 3 * old : old, static_cast<float>(out[i])) << i;
  }
}

TEST(ScaleAdd, BetaOfZeroDoesNotRead) {
  std::vector<double> product = {1, 2};
  std::vector<double> out(2, std::numeric_limits<double>::quiet_NaN());
  double alpha = 4;
  double beta = 0;
  const TensorRef to = MakeContiguous(out.data(), DType::kDouble, {2});
  ScaleAdd(MakeContiguous(product.data(), DType::kDouble, {2}), One(alpha), One(beta), to, FullRange(to));
  EXPECT_EQ((std::vector<double>{4, 8}), out);
  beta = 1;
  out[0] = std::numeric_limits<double>::quiet_NaN();
  ScaleAdd(MakeContiguous(product.data(), DType::kDouble, {2}), One(alpha), One(beta), to, FullRange(to));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(16, out[1]);
}

TEST(ScaleAdd, IntegersWrap) {
  std::vector<int32_t> product = {INT32_MAX, 5};
  std::vector<int32_t> out = {1, INT32_MIN};
  int32_t alpha = 2;
  int32_t beta = -1;
  const TensorRef to = MakeContiguous(out.data(), DType::kInt32, {2});
  ScaleAdd(MakeContiguous(product.data(), DType::kInt32, {2}), One(alpha), One(beta), to, FullRange(to));
  EXPECT_EQ(-3, out[0]);              // 2 * (2^31 - 1) - 1 modulo 2^32
  EXPECT_EQ(INT32_MIN + 10, out[1]);  // 10 + 2^31 modulo 2^32
}

}  // namespace
}  // namespace reprise::kernels
