// SPDX-License-Identifier: Apache-2.0
//
// ReduceSum, Softmax.
#include <algorithm>
#include <cmath>

#include "aclnnop/aclnn_reduce_sum.h"
#include "aclnnop/aclnn_softmax.h"
#include "harness.h"

namespace aclnn_test {
namespace {

class ReductionTest : public AclnnTest {
 protected:
  aclnnStatus Sum(const TestTensor& self, const std::vector<int64_t>& dims, bool keep, aclDataType type,
                  const TestTensor& out) {
    aclIntArray* array = aclCreateIntArray(dims.data(), dims.size());
    const aclnnStatus status = RUN(aclnnReduceSum, self.get(), array, keep, type, out.get());
    EXPECT_EQ(aclDestroyIntArray(array), 0);
    return status;
  }

  // Row-major sums over the dims in `reduced`.
  static std::vector<Value> SumOf(const TestTensor& self, const std::vector<bool>& reduced) {
    Shape kept;
    for (size_t d = 0; d < reduced.size(); ++d) kept.push_back(reduced[d] ? 1 : self.shape()[d]);
    std::vector<Value> sums(static_cast<size_t>(Count(kept)));
    const std::vector<Value> values = self.Read();
    const std::vector<int64_t> target = BroadcastIndices(kept, self.shape());
    for (size_t i = 0; i < values.size(); ++i) {
      sums[static_cast<size_t>(target[i])].re += values[i].re;
      sums[static_cast<size_t>(target[i])].im += values[i].im;
    }
    return sums;
  }
};

TEST_F(ReductionTest, SumOfRandomShapesAndDims) {
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const size_t rank = random() % 9;
    Shape shape(rank);
    for (int64_t& size : shape) size = rank > 5 ? 1 + random() % 3 : random() % 15 == 0 ? 0 : 1 + random() % 9;
    const Type& type = AllTypes()[random() % AllTypes().size()];
    TestTensor self(shape, type.id, random);
    self.FillSmall(random);
    std::vector<bool> reduced(rank, false);
    std::vector<int64_t> dims;
    for (size_t d = 0; d < rank; ++d) {
      if (random() % 2 == 0) continue;
      reduced[d] = true;
      dims.push_back(static_cast<int64_t>(d) - (random() % 2 == 0 ? static_cast<int64_t>(rank) : 0));
    }
    if (dims.empty()) reduced.assign(rank, true);
    const bool keep = random() % 2 == 0;
    Shape out_shape;
    for (size_t d = 0; d < rank; ++d) {
      if (!reduced[d])
        out_shape.push_back(shape[d]);
      else if (keep)
        out_shape.push_back(1);
    }
    const aclDataType out_type = type.cls == Class::kComplex ? ACL_COMPLEX128
                                 : type.cls == Class::kFloat ? (round % 2 == 0 ? type.id : ACL_DOUBLE)
                                                             : ACL_INT64;
    TestTensor out(out_shape, out_type, random);
    ASSERT_EQ(Sum(self, dims, keep, out_type, out), 0) << RecentMessage();
    const std::vector<Value> expected = SumOf(self, reduced);
    // Halves up to 8: float32 sums of these sizes are exact, so only the last rounding may differ.
    std::vector<long double> tolerance;
    for (const Value& value : expected) tolerance.push_back(std::fabs(value.re) * TypeOf(out_type).epsilon);
    ExpectValues(out.Read(), expected, tolerance);
    EXPECT_TRUE(out.SurroundingsAreIntact());
  }
}

TEST_F(ReductionTest, ElementsAreConvertedBeforeTheyAreAdded) {
  TestTensor self({4}, ACL_FLOAT);
  self.Write({{0.5L}, {0.5L}, {0.5L}, {2.5L}});
  TestTensor out({}, ACL_INT32);
  ASSERT_EQ(Sum(self, {0}, false, ACL_INT32, out), 0) << RecentMessage();
  ExpectValues(out.Read(), {{2}});
}

TEST_F(ReductionTest, SumOfNothingIsZero) {
  TestTensor self({3, 0}, ACL_FLOAT);
  TestTensor out({3}, ACL_FLOAT);
  ASSERT_EQ(Sum(self, {1}, false, ACL_FLOAT, out), 0) << RecentMessage();
  ExpectValues(out.Read(), {{0}, {0}, {0}});
}

TEST_F(ReductionTest, WrongDimsTypesAndShapesAreRefused) {
  TestTensor self({2, 3}, ACL_FLOAT);
  TestTensor out({2}, ACL_FLOAT);
  EXPECT_EQ(Sum(self, {2}, false, ACL_FLOAT, out), 161002);
  EXPECT_EQ(Sum(self, {1, -1}, false, ACL_FLOAT, out), 161002);
  EXPECT_EQ(Sum(self, {0}, true, ACL_FLOAT, out), 161002);
  EXPECT_EQ(Sum(self, {0}, false, ACL_FLOAT, out), 161002);
  EXPECT_NE(RecentMessage().find("out has shape [2], expected the reduced shape [3] of self [2, 3]"), std::string::npos)
      << RecentMessage();
  EXPECT_EQ(Sum(self, {1}, false, ACL_DOUBLE, out), 161002);
  TestTensor complex({2, 3}, ACL_COMPLEX64);
  EXPECT_EQ(Sum(complex, {1}, false, ACL_FLOAT, out), 161002);
}

TEST_F(ReductionTest, SoftmaxOfEveryFloatingTypeAndDim) {
  for (const Type& type : AllTypes()) {
    SCOPED_TRACE(type.name);
    const Shape shape = {3, 5, 4};
    for (int64_t dim = -3; dim < 3; ++dim) {
      TestTensor self(shape, type.id, random);
      self.FillSmall(random);
      TestTensor out(shape, type.id, random);
      const aclnnStatus status = RUN(aclnnSoftmax, self.get(), dim, out.get());
      if (type.cls != Class::kFloat) {
        EXPECT_EQ(status, 161002);
        continue;
      }
      ASSERT_EQ(status, 0) << RecentMessage();
      std::vector<bool> reduced(3, false);
      reduced[static_cast<size_t>(dim < 0 ? dim + 3 : dim)] = true;
      std::vector<Value> values = self.Read();
      for (Value& value : values) value.re = std::exp(value.re);
      Shape kept = shape;
      kept[static_cast<size_t>(dim < 0 ? dim + 3 : dim)] = 1;
      const auto target = BroadcastIndices(kept, shape);
      std::vector<long double> sums(static_cast<size_t>(Count(kept)));
      for (size_t i = 0; i < values.size(); ++i) sums[static_cast<size_t>(target[i])] += values[i].re;
      std::vector<long double> tolerance;
      for (size_t i = 0; i < values.size(); ++i) {
        values[i].re /= sums[static_cast<size_t>(target[i])];
        // float16 has a smallest step, too.
        tolerance.push_back(16 * values[i].re * std::max(type.epsilon, std::ldexp(1, -52)) +
                            (type.id == ACL_FLOAT16 ? std::ldexp(1.0L, -24) : 0));
      }
      ExpectValues(out.Read(), values, tolerance);
      EXPECT_TRUE(out.SurroundingsAreIntact());
    }
  }
}

TEST_F(ReductionTest, SoftmaxOfRankZeroIsOneAndOfNothingIsNothing) {
  TestTensor scalar({}, ACL_FLOAT);
  scalar.Write({{5}});
  TestTensor out({}, ACL_FLOAT);
  ASSERT_EQ(RUN(aclnnSoftmax, scalar.get(), -1, out.get()), 0) << RecentMessage();
  ExpectValues(out.Read(), {{1}});
  EXPECT_EQ(RUN(aclnnSoftmax, scalar.get(), 1, out.get()), 161002);
  TestTensor empty({0, 3}, ACL_FLOAT);
  TestTensor empty_out({0, 3}, ACL_FLOAT);
  EXPECT_EQ(RUN(aclnnSoftmax, empty.get(), 0, empty_out.get()), 0) << RecentMessage();
  EXPECT_EQ(RUN(aclnnSoftmax, empty.get(), 2, empty_out.get()), 161002)
      << "attributes are checked without elements, too";
}

}  // namespace
}  // namespace aclnn_test
