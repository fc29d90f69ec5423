// SPDX-License-Identifier: Apache-2.0
//
// Cast, InplaceCopy, InplaceFillScalar, InplaceZero, InplaceOne, Cat, Permute.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "aclnnop/aclnn_cast.h"
#include "aclnnop/aclnn_cat.h"
#include "aclnnop/aclnn_copy.h"
#include "aclnnop/aclnn_fill_scalar.h"
#include "aclnnop/aclnn_ones.h"
#include "aclnnop/aclnn_permute.h"
#include "aclnnop/aclnn_zero.h"
#include "harness.h"

namespace aclnn_test {
namespace {

// A conversion of a small value: fractions are cut, negative numbers wrap or, from a float to an unsigned type, become
// 0.
Value Convert(Value value, aclDataType from, aclDataType to) {
  const Type& target = TypeOf(to);
  if (target.cls != Class::kComplex) {
    if (target.cls == Class::kBool) return {value.re != 0 || value.im != 0 ? 1.0L : 0.0L};
    value.im = 0;
  }
  if (target.cls == Class::kInt) {
    value.re = std::trunc(value.re);
    if (!target.is_signed && value.re < 0 && TypeOf(from).cls >= Class::kFloat) value.re = 0;
  }
  return Wrap(value, to);
}

std::vector<Value> ConvertAll(std::vector<Value> values, aclDataType from, aclDataType to) {
  for (Value& value : values) value = Convert(value, from, to);
  return values;
}

using MovementTest = AclnnTest;

TEST_F(MovementTest, CastConvertsEveryTypeToEveryOther) {
  for (const Type& from : AllTypes()) {
    for (const Type& to : AllTypes()) {
      SCOPED_TRACE(testing::Message() << from.name << " to " << to.name);
      TestTensor self({3, 5}, from.id, random);
      self.FillSmall(random);
      TestTensor out({3, 5}, to.id, random);
      ASSERT_EQ(RUN(aclnnCast, self.get(), to.id, out.get()), 0) << RecentMessage();
      ExpectValues(out.Read(), ConvertAll(self.Read(), from.id, to.id));
      EXPECT_TRUE(out.SurroundingsAreIntact());
    }
  }
}

TEST_F(MovementTest, CastToAnotherTypeThanTheOutputIsRefused) {
  TestTensor self({2}, ACL_FLOAT);
  TestTensor out({2}, ACL_INT32);
  EXPECT_EQ(RUN(aclnnCast, self.get(), ACL_INT64, out.get()), 161002);
  EXPECT_NE(RecentMessage().find("aclnnCast: dtype is int64, but out has int32"), std::string::npos);
}

TEST_F(MovementTest, CopyBroadcastsConvertsAndFollowsStrides) {
  for (const Type& from : AllTypes()) {
    for (const Type& to : AllTypes()) {
      SCOPED_TRACE(testing::Message() << from.name << " to " << to.name);
      TestTensor self({2, 3, 4}, to.id, random);
      TestTensor src({3, 1}, from.id, random);
      src.FillSmall(random);
      ASSERT_EQ(RUN(aclnnInplaceCopy, self.get(), src.get()), 0) << RecentMessage();
      const std::vector<Value> values = ConvertAll(src.Read(), from.id, to.id);
      std::vector<Value> expected;
      for (int64_t index : BroadcastIndices({3, 1}, {2, 3, 4})) expected.push_back(values[static_cast<size_t>(index)]);
      ExpectValues(self.Read(), expected);
      EXPECT_TRUE(self.SurroundingsAreIntact());
    }
  }
}

TEST_F(MovementTest, CopyNeverGrowsItsTarget) {
  TestTensor self({3, 1}, ACL_FLOAT);
  TestTensor src({3, 2}, ACL_FLOAT);
  EXPECT_EQ(RUN(aclnnInplaceCopy, self.get(), src.get()), 161002);
}

TEST_F(MovementTest, FillsOfEveryType) {
  for (const Type& type : AllTypes()) {
    for (const Type& from : AllTypes()) {
      SCOPED_TRACE(testing::Message() << type.name << " with " << from.name);
      TestTensor self({2, 3}, type.id, random);
      const Value value = Wrap({3, from.cls == Class::kComplex ? 2.0L : 0.0L}, from.id);
      const TestScalar scalar(from.id, value);
      const aclnnStatus status = RUN(aclnnInplaceFillScalar, self.get(), scalar.get());
      if (from.cls == Class::kComplex && type.cls != Class::kComplex) {
        EXPECT_EQ(status, 161002);
        continue;
      }
      ASSERT_EQ(status, 0) << RecentMessage();
      ExpectValues(self.Read(), std::vector<Value>(6, Convert(value, from.id, type.id)));
      EXPECT_TRUE(self.SurroundingsAreIntact());
    }
    TestTensor self({2, 3}, type.id, random);
    ASSERT_EQ(RUN(aclnnInplaceOne, self.get()), 0) << RecentMessage();
    ExpectValues(self.Read(), std::vector<Value>(6, Value{1}));
    EXPECT_TRUE(self.SurroundingsAreIntact());
    ASSERT_EQ(RUN(aclnnInplaceZero, self.get()), 0) << RecentMessage();
    ExpectValues(self.Read(), std::vector<Value>(6));
    EXPECT_TRUE(self.SurroundingsAreIntact());
  }
}

TEST_F(MovementTest, PermuteOfRandomDims) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const size_t rank = random() % 9;
    const Type& type = AllTypes()[random() % AllTypes().size()];
    Shape shape(rank);
    for (int64_t& size : shape) size = rank > 5 ? 1 + random() % 2 : random() % 6;
    std::vector<int64_t> dims(rank);
    std::iota(dims.begin(), dims.end(), int64_t{0});
    std::shuffle(dims.begin(), dims.end(), random);
    Shape out_shape(rank);
    for (size_t d = 0; d < rank; ++d) out_shape[d] = shape[static_cast<size_t>(dims[d])];
    TestTensor self(shape, type.id, random);
    self.FillSmall(random);
    TestTensor out(out_shape, type.id, random);
    std::vector<int64_t> given = dims;
    for (int64_t& dim : given) {
      if (random() % 2 == 0) dim -= static_cast<int64_t>(rank);
    }
    aclIntArray* array = aclCreateIntArray(given.data(), rank);
    ASSERT_EQ(RUN(aclnnPermute, self.get(), array, out.get()), 0) << RecentMessage();
    EXPECT_EQ(aclDestroyIntArray(array), 0);
    const std::vector<Value> values = self.Read();
    std::vector<Value> expected(values.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      auto rest = static_cast<int64_t>(i);
      std::vector<int64_t> index(rank);
      for (size_t d = rank; d-- > 0;) {
        index[static_cast<size_t>(dims[d])] = rest % out_shape[d];
        rest /= out_shape[d];
      }
      int64_t from = 0;
      for (size_t d = 0; d < rank; ++d) from = from * shape[d] + index[d];
      expected[i] = values[static_cast<size_t>(from)];
    }
    ExpectValues(out.Read(), expected);
    EXPECT_TRUE(out.SurroundingsAreIntact());
  }
}

TEST_F(MovementTest, PermuteRefusesWhatIsNoPermutation) {
  TestTensor self({2, 3}, ACL_FLOAT);
  TestTensor out({2, 3}, ACL_FLOAT);
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0, 0}, {0}, {0, 2}, {-3, 1}, {0, 1, 2}}) {
    aclIntArray* array = aclCreateIntArray(dims.data(), dims.size());
    EXPECT_EQ(RUN(aclnnPermute, self.get(), array, out.get()), 161002);
    EXPECT_NE(RecentMessage().find("dims"), std::string::npos) << RecentMessage();
    EXPECT_EQ(aclDestroyIntArray(array), 0);
  }
}

// Lists own their tensors: wraps views of test tensors, which outlive the list.
aclTensorList* ListOf(const std::vector<std::unique_ptr<TestTensor>>& tensors) {
  std::vector<const aclTensor*> views;
  for (const auto& tensor : tensors) {
    views.push_back(aclCreateTensor(tensor->shape().data(), tensor->shape().size(), tensor->type(),
                                    tensor->strides().data(), tensor->offset(), ACL_FORMAT_ND, nullptr, 0,
                                    tensor->storage()));
  }
  return aclCreateTensorList(views.data(), views.size());
}

TEST_F(MovementTest, CatOfRandomTensors) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const size_t rank = 1 + random() % 4;
    const size_t dim = random() % rank;
    const size_t count = 1 + random() % 6;
    Shape shape(rank);
    for (int64_t& size : shape) size = 1 + random() % 5;
    aclDataType type = AllTypes()[random() % AllTypes().size()].id;
    const bool mixed = round % 3 == 0;
    if (mixed) type = ACL_DOUBLE;
    std::vector<std::unique_ptr<TestTensor>> parts;
    Shape out_shape = shape;
    out_shape[dim] = 0;
    for (size_t i = 0; i < count; ++i) {
      if (random() % 5 == 0) {
        parts.push_back(std::make_unique<TestTensor>(Shape{0}, type));
        if (rank != 1) continue;
      } else {
        shape[dim] = random() % 4;
        const aclDataType own = mixed && i % 2 == 0 ? ACL_INT32 : type;
        parts.push_back(std::make_unique<TestTensor>(shape, own, random));
        parts.back()->FillSmall(random);
        out_shape[dim] += shape[dim];
      }
    }
    if (std::all_of(parts.begin(), parts.end(),
                    [](const auto& t) { return t->shape().size() == 1 && t->count() == 0; })) {
      continue;
    }
    TestTensor out(out_shape, type, random);
    aclTensorList* list = ListOf(parts);
    ASSERT_EQ(RUN(aclnnCat, list,
                  round % 2 == 0 ? static_cast<int64_t>(dim) : static_cast<int64_t>(dim) - static_cast<int64_t>(rank),
                  out.get()),
              0)
        << RecentMessage();
    EXPECT_EQ(aclDestroyTensorList(list), 0);
    // outer x (sum of dim) x inner
    const int64_t inner = Count(Shape(out_shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, out_shape.end()));
    const int64_t outer = Count(Shape(out_shape.begin(), out_shape.begin() + static_cast<std::ptrdiff_t>(dim)));
    std::vector<Value> expected;
    for (int64_t o = 0; o < outer; ++o) {
      for (const auto& part : parts) {
        if (part->count() == 0) continue;
        const std::vector<Value> values = part->Read();
        const int64_t row = part->shape()[dim] * inner;
        expected.insert(expected.end(), values.begin() + o * row, values.begin() + (o + 1) * row);
      }
    }
    ExpectValues(out.Read(), expected);
    EXPECT_TRUE(out.SurroundingsAreIntact());
  }
}

TEST_F(MovementTest, CatNamesTheTensorThatDoesNotFit) {
  std::vector<std::unique_ptr<TestTensor>> parts;
  parts.push_back(std::make_unique<TestTensor>(Shape{2, 3}, ACL_FLOAT));
  parts.push_back(std::make_unique<TestTensor>(Shape{2, 4}, ACL_FLOAT));
  TestTensor out({4, 3}, ACL_FLOAT);
  aclTensorList* list = ListOf(parts);
  EXPECT_EQ(RUN(aclnnCat, list, 0, out.get()), 161002);
  EXPECT_NE(RecentMessage().find("tensors[1] has shape [2, 4]"), std::string::npos) << RecentMessage();
  EXPECT_EQ(RUN(aclnnCat, list, 2, out.get()), 161002);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  aclTensorList* empty = aclCreateTensorList(nullptr, 0);
  EXPECT_EQ(RUN(aclnnCat, empty, 0, out.get()), 161002);
  EXPECT_EQ(aclDestroyTensorList(empty), 0);
}

}  // namespace
}  // namespace aclnn_test
