// SPDX-License-Identifier: Apache-2.0
#include "ops/launch.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

TensorRef View(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  TensorRef ref;
  ref.dtype = DType::kFloat;
  ref.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), ref.sizes);
  std::copy(strides.begin(), strides.end(), ref.strides);
  return ref;
}

// Offsets of the elements of every operand, walked together over the shape of the first.
std::multiset<std::vector<int64_t>> Walk(const Refs& refs) {
  std::multiset<std::vector<int64_t>> visited;
  const TensorRef& shape = refs[0];
  for (int64_t i = 0; i < kernels::ElementCount(shape); ++i) {
    std::vector<int64_t> offsets(refs.size());
    int64_t rest = i;
    for (int back = 1; back <= shape.rank; ++back) {
      const int64_t size = shape.sizes[shape.rank - back];
      for (size_t k = 0; k < refs.size(); ++k) {
        const int d = refs[k].rank - back;
        if (d >= 0 && refs[k].sizes[d] != 1) offsets[k] += rest % size * refs[k].strides[d];
      }
      rest /= size;
    }
    visited.insert(offsets);
  }
  return visited;
}

TEST(CoalesceTest, ContiguousOperandsBecomeOneDim) {
  Refs refs;
  for (int i = 0; i < 3; ++i) refs.push_back(View({2, 1, 3, 4}, {12, 12, 4, 1}));
  Coalesce(refs);
  for (const TensorRef& ref : refs) {
    ASSERT_EQ(ref.rank, 1);
    EXPECT_EQ(ref.sizes[0], 24);
    EXPECT_EQ(ref.strides[0], 1);
  }
}

TEST(CoalesceTest, ScalarsAndOnesLeaveNoDim) {
  Refs refs;
  refs.push_back(View({1, 1}, {7, 7}));
  refs.push_back(View({}, {}));
  Coalesce(refs);
  EXPECT_EQ(refs[0].rank, 0);
  EXPECT_EQ(refs[1].rank, 0);
}

TEST(CoalesceTest, VisitsTheSameElementsAsBefore) {
  const std::vector<std::vector<TensorRef>> cases = {
      {View({2, 3, 4}, {12, 4, 1}), View({2, 3, 4}, {12, 4, 1}), View({4}, {1})},
      {View({2, 3, 4}, {12, 4, 1}), View({3, 1}, {1, 1}), View({}, {})},
      {View({2, 3, 4}, {24, 8, 2}), View({2, 1, 4}, {4, 4, 1}), View({3, 4}, {1, 3})},
      {View({5, 1, 2, 3}, {6, 9, 3, 1}), View({5, 1, 1, 1}, {1, 1, 1, 1})},
      {View({2, 2, 2, 2, 2, 2, 2, 2}, {128, 64, 32, 16, 8, 4, 2, 1}), View({2, 2, 1, 2}, {4, 2, 2, 1})},
  };
  for (const auto& operands : cases) {
    Refs refs;
    for (const TensorRef& ref : operands) refs.push_back(ref);
    const auto before = Walk(refs);
    Coalesce(refs);
    EXPECT_EQ(Walk(refs), before);
    for (const TensorRef& ref : refs) EXPECT_EQ(ref.rank, refs[0].rank);
  }
}

TEST(ExtentTest, ReachesFromTheFirstToTheEndOfTheLastElement) {
  EXPECT_EQ(ExtentBytes(View({}, {})), 4u);
  EXPECT_EQ(ExtentBytes(View({3, 4}, {4, 1})), 48u);
  EXPECT_EQ(ExtentBytes(View({3, 4}, {100, 2})), (200 + 6 + 1) * 4u);
  EXPECT_EQ(ExtentBytes(View({3, 4}, {0, 0})), 4u);
  EXPECT_EQ(ExtentBytes(View({3, 0}, {100, 2})), 0u);
}

}  // namespace
}  // namespace reprise::ops
