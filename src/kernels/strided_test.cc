// SPDX-License-Identifier: Apache-2.0
#include "kernels/strided.h"

#include <map>

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

// Visits range and returns (address of a, address of b) keyed by address of out.
std::map<char*, std::pair<char*, char*>> Visit(const Loop& loop, Range range, int64_t* visits) {
  std::map<char*, std::pair<char*, char*>> seen;
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    EXPECT_GT(n, 0);
    for (int64_t i = 0; i < n; ++i) {
      seen[ptrs[0] + i * strides[0]] = {ptrs[1] + i * strides[1], ptrs[2] + i * strides[2]};
      ++*visits;
    }
  });
  return seen;
}

TEST(StridedTest, EveryElementIsVisitedOnceWithItsBroadcastPartners) {
  Rng rng(2);
  for (int round = 0; round < 500; ++round) {
    const auto sizes = RandomSizes(rng);
    const auto out = MakeTensor(rng, DType::kFloat, sizes, PickLayout(rng, false));
    const auto a = MakeTensor(rng, DType::kInt8, BroadcastSource(rng, sizes), PickLayout(rng, true));
    const auto b = MakeTensor(rng, DType::kComplex128, sizes, PickLayout(rng, true));
    const LoopOrder order = round % 2 == 0 ? LoopOrder::kFree : LoopOrder::kRowMajor;
    const Loop loop = MakeLoop({&out.ref, &a.ref, &b.ref}, order);
    const int64_t count = ElementCount(out.ref);
    ASSERT_EQ(loop.count, count);
    int64_t visits = 0;
    auto seen = Visit(loop, {0, count}, &visits);
    ASSERT_EQ(visits, count);
    ASSERT_EQ(static_cast<int64_t>(seen.size()), count);
    for (int64_t i = 0; i < count; ++i) {
      const auto [at_a, at_b] = seen.at(AddressOf(out.ref, i));
      EXPECT_EQ(at_b, AddressOf(b.ref, i));
      int64_t rest = i;
      int64_t offset = 0;
      for (int back = 1; back <= out.ref.rank; ++back) {
        const int64_t size = out.ref.sizes[out.ref.rank - back];
        const int d = a.ref.rank - back;
        if (d >= 0 && a.ref.sizes[d] != 1) offset += rest % size * a.ref.strides[d];
        rest /= size;
      }
      EXPECT_EQ(at_a, static_cast<char*>(a.ref.data) + offset);
    }
    int64_t piece_visits = 0;
    std::map<char*, std::pair<char*, char*>> pieces;
    RunInPieces(rng, count, [&](Range r) { pieces.merge(Visit(loop, r, &piece_visits)); });
    EXPECT_EQ(piece_visits, count);
    EXPECT_EQ(pieces, seen);
  }
}

TEST(StridedTest, ContiguousOperandsBecomeOneRow) {
  char memory[4096];
  const TensorRef out = MakeContiguous(memory, DType::kFloat, {2, 3, 1, 4, 5});
  const TensorRef in = MakeContiguous(memory, DType::kDouble, {2, 3, 1, 4, 5});
  const Loop loop = MakeLoop({&out, &in});
  EXPECT_EQ(loop.rank, 1);
  EXPECT_EQ(loop.sizes[0], 120);
  EXPECT_EQ(loop.strides[0][0], 4);
  EXPECT_EQ(loop.strides[0][1], 8);
  EXPECT_TRUE(IsContiguous(out));
}

TEST(StridedTest, APermutedPairIsJoinedInMemoryOrder) {
  char memory[4096];
  TensorRef out = MakeContiguous(memory, DType::kFloat, {4, 3, 2});
  std::swap(out.sizes[0], out.sizes[2]);
  std::swap(out.strides[0], out.strides[2]);
  EXPECT_FALSE(IsContiguous(out));
  EXPECT_EQ(MakeLoop({&out, &out}).rank, 1);
  EXPECT_EQ(MakeLoop({&out, &out}, LoopOrder::kRowMajor).rank, 3);
}

TEST(StridedTest, RowMajorOrderIsKept) {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    const auto t = MakeTensor(rng, DType::kInt32, RandomSizes(rng), PickLayout(rng, true));
    const Loop loop = MakeLoop({&t.ref}, LoopOrder::kRowMajor);
    int64_t next = 0;
    ForEachRow(loop, {0, loop.count}, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ptrs[0] + i * strides[0], AddressOf(t.ref, next++));
    });
    EXPECT_EQ(next, ElementCount(t.ref));
  }
}

TEST(StridedTest, RankZeroIsOneElementAndEmptyTensorsHaveNoRows) {
  float value = 1;
  TensorRef scalar = MakeContiguous(&value, DType::kFloat, {});
  EXPECT_EQ(ElementCount(scalar), 1);
  int rows = 0;
  ForEachRow(MakeLoop({&scalar}), FullRange(scalar), [&](char* const* ptrs, const int64_t*, int64_t n) {
    EXPECT_EQ(ptrs[0], reinterpret_cast<char*>(&value));
    EXPECT_EQ(n, 1);
    ++rows;
  });
  EXPECT_EQ(rows, 1);
  TensorRef empty = MakeContiguous(nullptr, DType::kFloat, {3, 0, 2});
  EXPECT_TRUE(IsContiguous(empty));
  ForEachRow(MakeLoop({&empty}), FullRange(empty), [&](char* const*, const int64_t*, int64_t) { ++rows; });
  EXPECT_EQ(rows, 1);
}

}  // namespace
}  // namespace reprise::kernels
