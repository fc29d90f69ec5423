// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include <array>

#include "kernels/sum_tree.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

std::vector<int64_t> KeptSizes(const TensorRef& self, uint32_t mask) {
  std::vector<int64_t> kept;
  for (int d = 0; d < self.rank; ++d) {
    if ((mask >> d & 1u) == 0) kept.push_back(self.sizes[d]);
  }
  return kept;
}

// Row-major element of the kept dims to which element `flat` of self is added.
int64_t TargetOf(const TensorRef& self, uint32_t mask, int64_t flat) {
  int64_t target = 0;
  int64_t scale = 1;
  for (int d = self.rank - 1; d >= 0; --d) {
    if ((mask >> d & 1u) == 0) {
      target += flat % self.sizes[d] * scale;
      scale *= self.sizes[d];
    }
    flat /= self.sizes[d];
  }
  return target;
}

void Check(const TensorRef& self, uint32_t mask, DType compute, const TensorRef& out) {
  const auto outputs = static_cast<size_t>(ElementCount(out));
  struct Total {
    long double re = 0, im = 0, size = 0;
    unsigned __int128 bits = 0;
    int64_t count = 0;
  };
  std::vector<Total> totals(outputs);
  for (int64_t i = 0; i < ElementCount(self); ++i) {
    Total& t = totals[static_cast<size_t>(TargetOf(self, mask, i))];
    const Num x = RefCast(At(self, i), self.dtype, compute);
    ++t.count;
    if (CategoryOf(compute) <= Category::kInteger) {
      t.bits += ToBits(x.re);
      continue;
    }
    t.re += x.re;
    t.im += x.im;
    t.size += std::fabs(x.re) + std::fabs(x.im);
  }
  for (size_t i = 0; i < outputs; ++i) {
    const Total& t = totals[i];
    const Num got = At(out, static_cast<int64_t>(i));
    if (CategoryOf(compute) <= Category::kInteger) {
      const Num expected = RefCast({Wrap(t.bits, DType::kInt64), 0}, DType::kInt64, out.dtype);
      ASSERT_TRUE(Same(got, expected)) << Name(compute);
      continue;
    }
    const bool is_double = compute == DType::kDouble || compute == DType::kComplex128;
    const long double eps = is_double ? 0x1p-53L : 0x1p-24L;
    const long double store = out.dtype == DType::kFloat16 ? 0x1p-11L : out.dtype == DType::kBFloat16 ? 0x1p-8L : eps;
    if (std::isinf(RoundFloating(t.re, out.dtype))) {  // 16-bit results overflow
      ASSERT_EQ(got.re, RoundFloating(t.re, out.dtype));
      continue;
    }
    // 32 additions per lane, 4 to fold them, one per doubling of the blocks.
    const auto depth = static_cast<long double>(std::min<int64_t>(t.count, 37) + 30);
    ASSERT_LE(std::fabs(got.re - t.re), depth * eps * t.size + store * std::fabs(t.re)) << Name(compute);
    ASSERT_LE(std::fabs(got.im - t.im), depth * eps * t.size + store * std::fabs(t.im)) << Name(compute);
  }
}

TEST(ReduceTest, AnyDimsTypesAndLayoutsMatchTheReference) {
  Rng rng(31);
  for (int round = 0; round < 1500; ++round) {
    const DType dtype = PickDType(rng);
    const DType compute = round % 3 == 0 ? PickDType(rng) : dtype;
    const bool edges = CategoryOf(dtype) <= Category::kInteger && CategoryOf(compute) <= Category::kInteger;
    const auto self = RandomTensor(rng, dtype, RandomSizes(rng), PickLayout(rng, true), edges);
    const auto mask = static_cast<uint32_t>(Pick(rng, 0, 255));
    const DType type_out = compute == DType::kBool ? DType::kInt64 : compute;
    const auto out = RandomTensor(rng, type_out, KeptSizes(self.ref, mask), PickLayout(rng, false));
    RunInPieces(rng, ElementCount(out.ref), [&](Range r) { ReduceSum(self.ref, mask, compute, out.ref, r); });
    Check(self.ref, mask, compute, out.ref);
    if (HasFatalFailure()) return;
  }
}

TEST(ReduceTest, LayoutAndSplitDoNotChangeABit) {
  Rng rng(32);
  for (DType dtype : {DType::kFloat, DType::kFloat16, DType::kBFloat16, DType::kDouble, DType::kComplex64}) {
    for (uint32_t mask : {1u, 2u, 4u, 3u, 5u, 6u, 7u}) {
      const std::vector<int64_t> sizes = {37, 41, 30};
      const auto self = RandomTensor(rng, dtype, sizes, TestLayout::kContiguous, false);
      const auto kept = KeptSizes(self.ref, mask);
      const auto whole = MakeTensor(rng, dtype, kept);
      ReduceSum(self.ref, mask, dtype, whole.ref, FullRange(whole.ref));
      for (int round = 0; round < 4; ++round) {
        const auto other = MakeTensor(rng, dtype, sizes, TestLayout::kStrided);
        for (int64_t i = 0; i < ElementCount(self.ref); ++i) {
          std::memcpy(AddressOf(other.ref, i), AddressOf(self.ref, i), static_cast<size_t>(ItemSize(dtype)));
        }
        const auto pieces = MakeTensor(rng, dtype, kept, PickLayout(rng, false));
        RunInPieces(rng, ElementCount(pieces.ref), [&](Range r) { ReduceSum(other.ref, mask, dtype, pieces.ref, r); });
        ASSERT_EQ(BytesOf(pieces.ref), BytesOf(whole.ref)) << Name(dtype) << " mask " << mask;
      }
    }
  }
}

TEST(ReduceTest, PartsGiveTheBitsOfTheWhole) {
  Rng rng(34);
  const int64_t parts = 3;
  for (const auto& [rows, columns, mask] : {std::array<int64_t, 3>{70'001, 5, 1}, {3, 70'001, 2}}) {
    for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kDouble, DType::kInt32}) {
      const auto self = RandomTensor(rng, dtype, {rows, columns}, TestLayout::kContiguous, false);
      const int64_t outputs = mask == 1 ? columns : rows;
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProd, ReduceOp::kNormTwo, ReduceOp::kVar,
                          ReduceOp::kLogSumExp}) {
        if (dtype == DType::kInt32 && op > ReduceOp::kMax) continue;
        const ReduceSpec spec{op, dtype, 1};
        const DType type_out = dtype == DType::kInt32 && op == ReduceOp::kSum ? DType::kInt64 : dtype;
        const auto whole = MakeTensor(rng, type_out, {outputs});
        const auto split = MakeTensor(rng, type_out, {outputs});
        Reduce(spec, self.ref, static_cast<uint32_t>(mask), whole.ref, nullptr, {0, outputs});
        const DType stage = ReduceStage(spec);
        const auto partials = MakeTensor(rng, stage, {parts, outputs});
        const auto shift = MakeTensor(rng, stage, {outputs});
        const int passes = ReducePasses(op);
        for (int pass = 0; pass < passes; ++pass) {
          const TensorRef* shifts = pass == 1 ? &shift.ref : nullptr;
          RunInPieces(rng, parts * outputs, [&](Range r) {
            ReduceParts(spec, pass, self.ref, static_cast<uint32_t>(mask), shifts, partials.ref, r);
          });
          const TensorRef& out = pass + 1 == passes ? split.ref : shift.ref;
          RunInPieces(rng, outputs,
                      [&](Range r) { ReducePartials(spec, pass, partials.ref, shifts, 70'001, out, nullptr, r); });
        }
        ASSERT_EQ(BytesOf(split.ref), BytesOf(whole.ref)) << Name(dtype) << " op " << static_cast<int>(op);
      }
    }
  }
}

TEST(ReduceTest, ALongFloatSumStaysAccurate) {
  Rng rng(33);
  const int64_t n = 3'000'001;
  auto self = MakeTensor(rng, DType::kFloat, {n});
  auto* x = static_cast<float*>(self.ref.data);
  long double exact = 0;
  for (int64_t i = 0; i < n; ++i) exact += x[i] = std::uniform_real_distribution<float>(0, 1)(rng);
  float sum = 0;
  ReduceSum(self.ref, 1, DType::kFloat, MakeContiguous(&sum, DType::kFloat, {}), {0, 1});
  EXPECT_LE(std::fabs(sum - exact) / exact, 4e-7L);
}

TEST(ReduceTest, SummingNothingGivesZero) {
  float out[3] = {7, 7, 7};
  const TensorRef self = MakeContiguous(nullptr, DType::kFloat, {3, 0});
  ReduceSum(self, 2, DType::kFloat, MakeContiguous(out, DType::kFloat, {3}), {0, 3});
  for (float value : out) EXPECT_EQ(value, 0.0f);
}

TEST(SumTreeTest, BlockSumsCombineInPairs) {
  SumTree<double, 1> tree;
  double total = -1;
  tree.Finish(&total);
  EXPECT_EQ(total, 0);
  for (int i = 1; i <= 1000; ++i) {
    tree.Push(static_cast<double>(i));
    tree.Finish(&total);
    ASSERT_EQ(total, i * (i + 1) / 2);
  }
}

}  // namespace
}  // namespace reprise::kernels
