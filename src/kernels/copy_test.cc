// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy.h"

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

TEST(CopyTest, AnyLayoutTypeAndSplitMatchesTheReference) {
  Rng rng(6);
  for (int round = 0; round < 600; ++round) {
    const auto sizes = RandomSizes(rng);
    const DType from = PickDType(rng);
    const DType to = round % 2 == 0 ? from : PickDType(rng);
    const auto src = RandomTensor(rng, from, BroadcastSource(rng, sizes), PickLayout(rng, true));
    const auto dst = MakeTensor(rng, to, sizes, PickLayout(rng, false));
    if (round % 3 == 0) {
      Copy(src.ref, dst.ref, FullRange(dst.ref));
    } else {
      RunInPieces(rng, ElementCount(dst.ref), [&](Range r) { Copy(src.ref, dst.ref, r); });
    }
    for (int64_t i = 0; i < ElementCount(dst.ref); ++i) {
      const Num value = AtBroadcast(src.ref, dst.ref, i);
      ASSERT_TRUE(Same(At(dst.ref, i), RefCast(value, from, to))) << Name(from) << Name(to);
    }
  }
}

TEST(CopyTest, ATransposeMovesEveryElementOfEverySize) {
  Rng rng(7);
  for (DType dtype : kAllDTypes) {
    for (auto [rows, cols] : {std::pair{67, 131},
                              {1, 50},
                              {50, 1},
                              {2, 45},
                              {45, 2},
                              {3, 37},
                              {37, 3},
                              {5, 21},
                              {22, 7},
                              {24, 40},
                              {128, 64},
                              {150, 300},
                              {530, 70}}) {
      const auto src = RandomTensor(rng, dtype, {3, rows, cols}, TestLayout::kContiguous);
      const auto dst = MakeTensor(rng, dtype, {3, cols, rows});
      TensorRef view = src.ref;
      std::swap(view.sizes[1], view.sizes[2]);
      std::swap(view.strides[1], view.strides[2]);
      RunInPieces(rng, ElementCount(view), [&](Range r) { Copy(view, dst.ref, r); });
      ASSERT_EQ(BytesOf(dst.ref), BytesOf(view)) << Name(dtype);
    }
  }
}

TEST(CopyTest, CopyOntoItselfChangesNothing) {
  Rng rng(8);
  for (auto layout : {TestLayout::kContiguous, TestLayout::kStrided}) {
    const auto t = RandomTensor(rng, DType::kFloat, {5, 6, 7}, layout);
    const std::string before = BytesOf(t.ref);
    Copy(t.ref, t.ref, FullRange(t.ref));
    EXPECT_EQ(BytesOf(t.ref), before);
  }
}

TEST(CopyTest, FillAndZeroTouchTheViewOnly) {
  Rng rng(9);
  for (DType dtype : kAllDTypes) {
    for (const Scalar& value :
         {Scalar::Of(3.75), Scalar::Of(int64_t{-1}), Scalar::Of(1e30f), Scalar::Of(std::complex<float>(2, -3))}) {
      const auto whole = RandomTensor(rng, dtype, {6, 10}, TestLayout::kContiguous);
      const std::string before = BytesOf(whole.ref);
      TensorRef view = whole.ref;  // columns 1, 4 and 7
      view.data = static_cast<char*>(view.data) + ItemSize(dtype);
      view.sizes[1] = 3;
      view.strides[1] = 3;
      const Num number = Read(value.dtype, reinterpret_cast<const char*>(value.bytes));
      for (bool zero : {false, true}) {
        RunInPieces(rng, 18, [&](Range r) { zero ? Zero(view, r) : Fill(view, value, r); });
        const Num expected = zero ? Num{} : RefCast(number, value.dtype, dtype);
        for (int64_t i = 0; i < 18; ++i) ASSERT_TRUE(Same(At(view, i), expected)) << Name(dtype);
        const std::string after = BytesOf(whole.ref);
        const auto item = static_cast<size_t>(ItemSize(dtype));
        for (size_t i = 0; i < 60; ++i) {
          const size_t col = i % 10;
          if (col == 1 || col == 4 || col == 7) continue;
          ASSERT_EQ(after.substr(i * item, item), before.substr(i * item, item));
        }
      }
    }
  }
}

TEST(CopyTest, ConcatPlacesTheSourcesOneAfterTheOther) {
  Rng rng(10);
  for (int round = 0; round < 300; ++round) {
    auto sizes = RandomSizes(rng, 5);
    if (sizes.empty()) sizes = {3};
    const int dim = static_cast<int>(Pick(rng, 0, std::ssize(sizes) - 1));
    const DType to = PickDType(rng);
    std::vector<TestTensor> owners;
    std::vector<TensorRef> sources;
    int64_t total = 0;
    for (int64_t k = Pick(rng, 1, 4); k > 0; --k) {
      auto part = sizes;
      part[static_cast<size_t>(dim)] = Pick(rng, 0, 4);
      total += part[static_cast<size_t>(dim)];
      owners.push_back(RandomTensor(rng, PickDType(rng), part, PickLayout(rng, true)));
      sources.push_back(owners.back().ref);
      if (Pick(rng, 0, 3) == 0) {  // the legacy empty source
        owners.push_back(MakeTensor(rng, to, {0}));
        sources.push_back(owners.back().ref);
      }
    }
    sizes[static_cast<size_t>(dim)] = total;
    const auto dst = MakeTensor(rng, to, sizes, PickLayout(rng, false));
    RunInPieces(rng, ElementCount(dst.ref), [&](Range r) { Concat(sources, dim, dst.ref, r); });
    int64_t position = 0;
    for (const TensorRef& src : sources) {
      if (ElementCount(src) == 0) continue;
      TensorRef part = dst.ref;
      part.sizes[dim] = src.sizes[dim];
      part.data = static_cast<char*>(part.data) + position * part.strides[dim] * ItemSize(to);
      for (int64_t i = 0; i < ElementCount(src); ++i) {
        ASSERT_TRUE(Same(At(part, i), RefCast(At(src, i), src.dtype, to)));
      }
      position += src.sizes[dim];
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
