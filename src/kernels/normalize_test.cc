// SPDX-License-Identifier: Apache-2.0
#include "kernels/normalize.h"

#include <vector>

#include "kernels/staged.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

int64_t SoftmaxRowCount(const TensorRef& out, int dim) {
  if (out.rank == 0) return 1;
  return out.sizes[dim] == 0 ? 0 : ElementCount(out) / out.sizes[dim];
}

// The softmax along any dim, with the scratch that it asks for.
void Softmax(const TensorRef& self, int dim, DType compute, const TensorRef& out, Range rows) {
  const RowWork work = {out.rank == 0 ? 1 : out.sizes[dim], 3};
  const TensorRef x = WithDimLast(self, dim);
  const TensorRef y = WithDimLast(out, dim);
  const int64_t elements = work.length * work.batch;
  const int64_t bytes = StagingBytes(x, compute, elements) + StagingBytes(y, compute, elements);
  std::vector<double> scratch(static_cast<size_t>(bytes) / sizeof(double));
  MapRows(RowOp::kSoftmax, y, x, nullptr, compute, work, scratch.data(), rows);
}

// Offset, in elements, of row-major row `row` of ref without `dim`.
int64_t RowOffset(const TensorRef& ref, int dim, int64_t row) {
  int64_t offset = 0;
  for (int d = ref.rank - 1; d >= 0; --d) {
    if (d == dim) continue;
    offset += row % ref.sizes[d] * ref.strides[d];
    row /= ref.sizes[d];
  }
  return offset;
}

Num RowAt(const TensorRef& ref, int dim, int64_t row, int64_t i) {
  const int64_t step = ref.rank == 0 ? 0 : ref.strides[dim];
  return Read(ref.dtype, static_cast<char*>(ref.data) + (RowOffset(ref, dim, row) + i * step) * ItemSize(ref.dtype));
}

void Check(const TensorRef& self, int dim, DType compute, const TensorRef& out) {
  const int64_t n = out.rank == 0 ? 1 : out.sizes[dim];
  const long double eps = compute == DType::kDouble ? 0x1p-50L : 0x1p-21L;
  for (int64_t row = 0; row < SoftmaxRowCount(out, dim); ++row) {
    std::vector<long double> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(RefCast(RowAt(self, dim, row, i), self.dtype, compute).re);
    long double max = -INFINITY;
    bool is_nan = false;
    for (long double v : x) {
      is_nan |= std::isnan(v) || v == INFINITY;
      max = std::max(max, v);
    }
    is_nan |= max == -INFINITY;
    long double sum = 0;
    for (long double v : x) sum += std::exp(v - max);
    for (int64_t i = 0; i < n; ++i) {
      const long double got = RowAt(out, dim, row, i).re;
      if (is_nan) {
        ASSERT_TRUE(std::isnan(got));
        continue;
      }
      const long double exact = std::exp(x[static_cast<size_t>(i)] - max) / sum;
      // Rounding x - max costs the exponential as many ulps as the difference is long.
      const long double distance = std::min(max - x[static_cast<size_t>(i)], 1000.0L);
      const long double store = out.dtype == DType::kFloat16 ? 0x1p-11L : out.dtype == DType::kBFloat16 ? 0x1p-8L : eps;
      const long double tiny = out.dtype == DType::kFloat16 ? 0x1p-24L : 1e-37L;
      ASSERT_LE(std::fabs(got - exact), (eps * (1 + distance) + store) * exact + tiny)
          << Name(self.dtype) << " in " << Name(compute) << " to " << Name(out.dtype);
    }
  }
}

TEST(SoftmaxTest, AnyDimTypeAndLayoutMatchesTheReference) {
  Rng rng(41);
  const DType kFloats[] = {DType::kFloat, DType::kFloat16, DType::kBFloat16, DType::kDouble};
  for (int round = 0; round < 800; ++round) {
    const DType compute = kFloats[Pick(rng, 0, 3)];
    const auto sizes = RandomSizes(rng);
    const int dim = sizes.empty() ? 0 : static_cast<int>(Pick(rng, 0, std::ssize(sizes) - 1));
    const auto self = RandomTensor(rng, compute, sizes, PickLayout(rng, true), round % 5 == 0);
    const auto out = RandomTensor(rng, compute, sizes, PickLayout(rng, false));
    RunInPieces(rng, SoftmaxRowCount(out.ref, dim), [&](Range r) { Softmax(self.ref, dim, compute, out.ref, r); });
    Check(self.ref, dim, compute, out.ref);
    if (HasFatalFailure()) return;
  }
}

TEST(SoftmaxTest, LongRowsAgreeWithTheReferenceAndAcrossLayouts) {
  Rng rng(42);
  for (DType dtype : {DType::kFloat, DType::kFloat16, DType::kDouble}) {
    for (int64_t n : {4095, 4096, 4097, 9001}) {
      const auto self = RandomTensor(rng, dtype, {2, n}, TestLayout::kContiguous, false);
      const auto out = MakeTensor(rng, dtype, {2, n});
      Softmax(self.ref, 1, dtype, out.ref, {0, 2});
      Check(self.ref, 1, dtype, out.ref);
      const auto other = MakeTensor(rng, dtype, {2, n}, TestLayout::kStrided);
      for (int64_t i = 0; i < 2 * n; ++i) {
        std::memcpy(AddressOf(other.ref, i), AddressOf(self.ref, i), static_cast<size_t>(ItemSize(dtype)));
      }
      Softmax(other.ref, 1, dtype, other.ref, {1, 2});  // in place, row by row
      Softmax(other.ref, 1, dtype, other.ref, {0, 1});
      EXPECT_EQ(BytesOf(other.ref), BytesOf(out.ref)) << Name(dtype) << " " << n;
    }
  }
}

TEST(SoftmaxTest, LongColumnsMatchTheReference) {
  Rng rng(43);
  for (int64_t columns : {8, 37, 70}) {
    const auto self = RandomTensor(rng, DType::kFloat, {700, columns}, TestLayout::kContiguous, false);
    const auto out = MakeTensor(rng, DType::kFloat, {700, columns});
    RunInPieces(rng, columns, [&](Range r) { Softmax(self.ref, 0, DType::kFloat, out.ref, r); });
    Check(self.ref, 0, DType::kFloat, out.ref);
  }
}

TEST(SoftmaxTest, SpecialRowsBehaveAsDocumented) {
  const float inf = INFINITY;
  struct Case {
    float x[3];
    float expected[3];
  };
  const Case kCases[] = {{{-inf, -inf, -inf}, {NAN, NAN, NAN}},
                         {{0, inf, 0}, {NAN, NAN, NAN}},
                         {{0, NAN, 0}, {NAN, NAN, NAN}},
                         {{-inf, 3, -inf}, {0, 1, 0}},
                         {{1e38f, 1e38f, -1e38f}, {0.5f, 0.5f, 0}}};
  for (Case c : kCases) {
    float out[3];
    Softmax(MakeContiguous(c.x, DType::kFloat, {3}), 0, DType::kFloat, MakeContiguous(out, DType::kFloat, {3}), {0, 1});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(SamePart(out[i], c.expected[i])) << out[i];
  }
  float value = 5;
  Softmax(MakeContiguous(&value, DType::kFloat, {}), 0, DType::kFloat, MakeContiguous(&value, DType::kFloat, {}),
          {0, 1});
  EXPECT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace reprise::kernels
