// SPDX-License-Identifier: Apache-2.0
//
// Matmul, Mm, BatchMatMul against three loops.
#include <cmath>

#include "aclnnop/aclnn_batch_matmul.h"
#include "aclnnop/aclnn_matmul.h"
#include "aclnnop/aclnn_mm.h"
#include "harness.h"

namespace aclnn_test {
namespace {

struct Product {
  std::vector<Value> values;
  std::vector<long double> tolerance;
};

// [.., m, k] x [.., k, n]; batch dims broadcast to `batch`.
Product Multiply(const TestTensor& a, const TestTensor& b, const Shape& batch, int64_t m, int64_t k, int64_t n,
                 aclDataType compute, aclDataType out) {
  const auto batch_of = [](const Shape& shape) {
    return Shape(shape.begin(), shape.end() - (shape.size() > 1 ? 2 : 1));
  };
  const auto a_batch = BroadcastIndices(batch_of(a.shape()), batch);
  const auto b_batch = BroadcastIndices(batch_of(b.shape()), batch);
  const std::vector<Value> x = a.Read();
  const std::vector<Value> y = b.Read();
  const double epsilon = std::max(TypeOf(compute).epsilon, TypeOf(out).epsilon);
  Product product;
  for (size_t i = 0; i < a_batch.size(); ++i) {
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t col = 0; col < n; ++col) {
        Value sum;
        long double size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const Value p = x[static_cast<size_t>((a_batch[i] * m + row) * k + l)];
          const Value q = y[static_cast<size_t>((b_batch[i] * k + l) * n + col)];
          sum.re += p.re * q.re - p.im * q.im;
          sum.im += p.re * q.im + p.im * q.re;
          size += (std::fabs(p.re) + std::fabs(p.im)) * (std::fabs(q.re) + std::fabs(q.im));
        }
        if (TypeOf(compute).cls == Class::kInt) sum = Wrap(Wrap(sum, compute), out);
        product.values.push_back(sum);
        product.tolerance.push_back(epsilon == 0 ? 0 : 2 * size * epsilon);
      }
    }
  }
  return product;
}

class MatmulTest : public AclnnTest {
 protected:
  void Expect(const TestTensor& out, const Product& product) {
    ExpectValues(out.Read(), product.values, product.tolerance);
    EXPECT_TRUE(out.SurroundingsAreIntact());
  }
};

TEST_F(MatmulTest, MmOfEveryPairOfTypes) {
  for (const Type& x : AllTypes()) {
    for (const Type& y : AllTypes()) {
      SCOPED_TRACE(testing::Message() << x.name << " with " << y.name);
      TestTensor a({5, 7}, x.id, random);
      TestTensor b({7, 4}, y.id, random);
      a.FillSmall(random);
      b.FillSmall(random);
      const aclDataType compute = Meet(x.id, y.id);
      const aclDataType out_type = compute == ACL_DT_UNDEFINED ? ACL_FLOAT : compute;
      TestTensor out({5, 4}, out_type, random);
      const aclnnStatus status = RUN(aclnnMm, a.get(), b.get(), out.get(), 1);
      if (compute == ACL_DT_UNDEFINED || x.id == ACL_BOOL || y.id == ACL_BOOL) {
        EXPECT_EQ(status, 161002);
        continue;
      }
      ASSERT_EQ(status, 0) << RecentMessage();
      Expect(out, Multiply(a, b, {}, 5, 7, 4, compute, out_type));
    }
  }
}

TEST_F(MatmulTest, MatmulTakesVectorsMatricesAndBroadcastBatches) {
  struct Case {
    Shape a, b, out, batch;
    int64_t m, k, n;
  };
  const Case cases[] = {
      {{4}, {4}, {}, {}, 1, 4, 1},
      {{4}, {4, 3}, {3}, {}, 1, 4, 3},
      {{5, 4}, {4}, {5}, {}, 5, 4, 1},
      {{2, 3, 5, 4}, {4}, {2, 3, 5}, {2, 3}, 5, 4, 1},
      {{4}, {2, 4, 3}, {2, 3}, {2}, 1, 4, 3},
      {{3, 5, 4}, {4, 6}, {3, 5, 6}, {3}, 5, 4, 6},
      {{2, 1, 5, 4}, {3, 4, 6}, {2, 3, 5, 6}, {2, 3}, 5, 4, 6},
      {{2, 2, 2, 2, 2, 2, 3, 4}, {2, 1, 2, 4, 2}, {2, 2, 2, 2, 2, 2, 3, 2}, {2, 2, 2, 2, 2, 2}, 3, 4, 2},
      {{3, 0}, {0, 2}, {3, 2}, {}, 3, 0, 2},
      {{0, 4}, {4, 2}, {0, 2}, {}, 0, 4, 2},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(c.a) << " x " << testing::PrintToString(c.b));
    for (int round = 0; round < 4; ++round) {
      TestTensor a(c.a, ACL_FLOAT, random);
      TestTensor b(c.b, ACL_FLOAT, random);
      a.FillSmall(random);
      b.FillSmall(random);
      TestTensor out(c.out, ACL_FLOAT, random);
      ASSERT_EQ(RUN(aclnnMatmul, a.get(), b.get(), out.get(), 0), 0) << RecentMessage();
      Expect(out, Multiply(a, b, c.batch, c.m, c.k, c.n, ACL_FLOAT, ACL_FLOAT));
    }
  }
}

TEST_F(MatmulTest, LargeProductsUseTheWholeWorkspace) {
  TestTensor a({3, 301, 257}, ACL_FLOAT);
  TestTensor b({3, 257, 190}, ACL_FLOAT);
  a.FillSmall(random);
  b.FillSmall(random);
  TestTensor out({3, 301, 190}, ACL_FLOAT);
  ASSERT_EQ(RUN(aclnnBatchMatMul, a.get(), b.get(), out.get(), 0), 0) << RecentMessage();
  Expect(out, Multiply(a, b, {3}, 301, 257, 190, ACL_FLOAT, ACL_FLOAT));
}

TEST_F(MatmulTest, AWorkspaceAtAnyAddressWillDo) {
  TestTensor a({150, 300}, ACL_FLOAT16);
  TestTensor b({300, 150}, ACL_FLOAT16);
  a.FillSmall(random);
  b.FillSmall(random);
  TestTensor out({150, 150}, ACL_FLOAT);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnMmGetWorkspaceSize(a.get(), b.get(), out.get(), 0, &bytes, &executor), 0) << RecentMessage();
  ASSERT_GT(bytes, 0u);
  const Memory workspace(bytes + 3);
  ASSERT_EQ(aclnnMm(workspace.data() + 3, bytes, executor, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  Expect(out, Multiply(a, b, {}, 150, 300, 150, ACL_FLOAT, ACL_FLOAT));
}

TEST_F(MatmulTest, WrongShapesAreNamed) {
  TestTensor a({2, 3}, ACL_FLOAT);
  TestTensor b({4, 2}, ACL_FLOAT);
  TestTensor cube({2, 3, 4}, ACL_FLOAT);
  TestTensor scalar({}, ACL_FLOAT);
  TestTensor out({2, 2}, ACL_FLOAT);
  EXPECT_EQ(RUN(aclnnMm, a.get(), b.get(), out.get(), 0), 161002);
  EXPECT_NE(RecentMessage().find("aclnnMm: self [2, 3] and mat2 [4, 2] cannot be multiplied"), std::string::npos)
      << RecentMessage();
  EXPECT_EQ(RUN(aclnnMm, cube.get(), b.get(), out.get(), 0), 161002);
  EXPECT_EQ(RUN(aclnnBatchMatMul, a.get(), b.get(), out.get(), 0), 161002);
  EXPECT_EQ(RUN(aclnnMatmul, scalar.get(), b.get(), out.get(), 0), 161002);
  EXPECT_EQ(RUN(aclnnMatmul, b.get(), a.get(), out.get(), 0), 161002);  // [4, 3], not [2, 2]
  TestTensor square({2, 2}, ACL_FLOAT);
  EXPECT_EQ(RUN(aclnnMatmul, square.get(), square.get(), out.get(), 5), 161002);
  EXPECT_EQ(RUN(aclnnMatmul, square.get(), square.get(), square.get(), 0), 161002) << "the output overlaps an input";
}

}  // namespace
}  // namespace aclnn_test
