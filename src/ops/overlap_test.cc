// SPDX-License-Identifier: Apache-2.0
#include "ops/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

// The view at a byte that is no address of anything.
TensorRef ViewAt(int64_t at, DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  TensorRef ref;
  ref.data = reinterpret_cast<void*>((uintptr_t{1} << 40) + static_cast<uintptr_t>(at));
  ref.dtype = dtype;
  ref.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), ref.sizes);
  std::copy(strides.begin(), strides.end(), ref.strides);
  return ref;
}

// Every byte of the view, as often as an element has it.
std::multiset<int64_t> BytesOf(const TensorRef& ref) {
  std::multiset<int64_t> bytes;
  for (int64_t i = 0; i < kernels::ElementCount(ref); ++i) {
    int64_t offset = 0;
    int64_t rest = i;
    for (int d = ref.rank - 1; d >= 0; --d) {
      offset += rest % ref.sizes[d] * ref.strides[d];
      rest /= ref.sizes[d];
    }
    for (int64_t b = 0; b < kernels::ItemSize(ref.dtype); ++b) {
      bytes.insert(static_cast<int64_t>(reinterpret_cast<uintptr_t>(ref.data)) + offset * kernels::ItemSize(ref.dtype) +
                   b);
    }
  }
  return bytes;
}

TEST(OverlapTest, RandomViewsAgainstTheirBytes) {
  std::mt19937 random(20261122);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  const DType types[] = {DType::kInt8, DType::kFloat16, DType::kFloat, DType::kDouble};
  const auto make = [&] {
    std::vector<int64_t> sizes(static_cast<size_t>(draw(4)));
    std::vector<int64_t> strides(sizes.size());
    for (int64_t& size : sizes) size = 1 + draw(4);
    for (int64_t& stride : strides) stride = draw(1) == 0 ? draw(24) : draw(4) * 6;
    return ViewAt(draw(160), types[draw(3)], sizes, strides);
  };
  int met = 0;
  int within = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const TensorRef a = make();
    const TensorRef b = make();
    const std::multiset<int64_t> of_a = BytesOf(a);
    const std::multiset<int64_t> of_b = BytesOf(b);
    const bool meet = std::any_of(of_a.begin(), of_a.end(), [&](int64_t byte) { return of_b.contains(byte); });
    const bool twice = std::set<int64_t>(of_a.begin(), of_a.end()).size() != of_a.size();
    ASSERT_EQ(OverlapOf(a, b), meet ? Overlap::kSome : Overlap::kNone) << "trial " << trial;
    ASSERT_EQ(OverlapOf(b, a), meet ? Overlap::kSome : Overlap::kNone) << "trial " << trial;
    ASSERT_EQ(OverlapWithin(a), twice ? Overlap::kSome : Overlap::kNone) << "trial " << trial;
    met += meet;
    within += twice;
  }
  EXPECT_GT(met, kTrials / 10);
  EXPECT_LT(met, kTrials * 9 / 10);
  EXPECT_GT(within, kTrials / 10);
  EXPECT_LT(within, kTrials * 9 / 10);
}

TEST(OverlapTest, LargeViewsOfOneLayoutAreExact) {
  // Columns of a matrix, every second element, the halves of pairs.
  constexpr int64_t kMany = int64_t{1} << 20;
  const auto columns = [](int64_t first, int64_t count) {
    return ViewAt(4 * first, DType::kFloat, {kMany, count}, {1000, 1});
  };
  EXPECT_EQ(OverlapOf(columns(0, 500), columns(500, 500)), Overlap::kNone);
  EXPECT_EQ(OverlapOf(columns(0, 501), columns(500, 500)), Overlap::kSome);
  EXPECT_EQ(OverlapOf(columns(0, 1000), columns(999, 1)), Overlap::kSome);
  const TensorRef even = ViewAt(0, DType::kFloat, {kMany}, {2});
  EXPECT_EQ(OverlapOf(even, ViewAt(4, DType::kFloat, {kMany}, {2})), Overlap::kNone);
  EXPECT_EQ(OverlapOf(even, ViewAt(8, DType::kFloat, {kMany}, {2})), Overlap::kSome);
  EXPECT_EQ(OverlapOf(even, ViewAt(4, DType::kFloat, {kMany / 2}, {4})), Overlap::kNone);
  // One element, read for all of a dense tensor.
  EXPECT_EQ(OverlapOf(ViewAt(0, DType::kFloat, {kMany}, {1}), ViewAt(64, DType::kFloat, {kMany}, {0})), Overlap::kSome);
  EXPECT_EQ(OverlapWithin(ViewAt(0, DType::kFloat, {kMany, 4, 8}, {1, 8 * kMany, kMany})), Overlap::kNone);
  EXPECT_EQ(OverlapWithin(ViewAt(0, DType::kFloat, {kMany, 2}, {1, 1})), Overlap::kSome);
}

TEST(OverlapTest, GivesUpWhereOnlyCountingWouldHelp) {
  const TensorRef a = ViewAt(0, DType::kInt8, {1 << 14, 1 << 14}, {3 * 65537, 3 * 65539});
  const TensorRef b = ViewAt(1, DType::kInt8, {1 << 14, 1 << 14}, {3 * 65543, 3 * 65551});
  EXPECT_NE(OverlapOf(a, b), Overlap::kSome) << "they differ by 1 modulo 3";
  const TensorRef c = ViewAt(3 * 65537, DType::kInt8, {1 << 14, 1 << 14}, {3 * 65543, 3 * 65551});
  EXPECT_NE(OverlapOf(a, c), Overlap::kNone) << "the first element of c is the second of a";
}

}  // namespace
}  // namespace reprise::ops
