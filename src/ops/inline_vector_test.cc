// SPDX-License-Identifier: Apache-2.0
#include "ops/inline_vector.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace reprise::ops {
namespace {

using Small = InlineVector<int64_t, 4>;

Small Counting(size_t count) {
  Small v;
  for (size_t i = 0; i < count; ++i) v.push_back(static_cast<int64_t>(i));
  return v;
}

TEST(InlineVectorTest, KeepsItsValuesWhenItOutgrowsItself) {
  for (size_t count : {0, 1, 4, 5, 100}) {
    const Small v = Counting(count);
    std::vector<int64_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(std::vector<int64_t>(v.begin(), v.end()), expected);
  }
}

TEST(InlineVectorTest, CopiesAndMovesKeepTheValues) {
  for (size_t count : {3, 9}) {
    Small original = Counting(count);
    Small copy = original;
    EXPECT_EQ(copy, original);
    const Small moved = std::move(original);
    EXPECT_EQ(moved, copy);
    EXPECT_EQ(original.size(), 0u);  // NOLINT(bugprone-use-after-move): the state is defined
    original = moved;
    EXPECT_EQ(original, copy);
    copy = Counting(2);
    EXPECT_EQ(copy.size(), 2u);
    EXPECT_EQ(copy[1], 1);
    original = std::move(copy);
    EXPECT_EQ(original, Counting(2));
  }
}

TEST(InlineVectorTest, PushingAnElementOfItselfIsSafeWhileItGrows) {
  Small v = Counting(4);
  v.push_back(v[3]);
  EXPECT_EQ(v[4], 3);
}

TEST(InlineVectorTest, NewElementsOfResizeAreZero) {
  Small v = Counting(2);
  v.resize(6);
  EXPECT_EQ(v[1], 1);
  EXPECT_EQ(v[5], 0);
}

}  // namespace
}  // namespace reprise::ops
