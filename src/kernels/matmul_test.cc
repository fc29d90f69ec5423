// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <cstdlib>

#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

// Runs the product in random pieces, each with scratch of exactly the asked size.
void RunMatMul(Rng& rng, const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
               bool split = true) {
  const int64_t bytes = MatMulScratchBytes(a, b, compute, out);
  EXPECT_LE(bytes, 4 << 20);
  const auto run = [&](Range r) {
    std::unique_ptr<void, decltype(&std::free)> scratch(
        std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)), &std::free);
    std::memset(scratch.get(), 0xff, static_cast<size_t>(bytes));  // NaNs, should any leak
    MatMul(a, b, compute, out, r, scratch.get());
  };
  const int64_t units = MatMulUnitCount(a, b, compute, out);
  if (split)
    RunInPieces(rng, units, run);
  else if (units > 0)
    run({0, units});
}

struct Shapes {
  std::vector<int64_t> a, b, out;
};

Shapes RandomShapes(Rng& rng, int64_t m, int64_t n, int64_t k) {
  Shapes s;
  for (int64_t d = Pick(rng, 0, 3); d > 0; --d) s.out.push_back(Pick(rng, 1, 3));
  s.a = BroadcastSource(rng, s.out);
  s.b = BroadcastSource(rng, s.out);
  s.a.insert(s.a.end(), {m, k});
  s.b.insert(s.b.end(), {k, n});
  s.out.insert(s.out.end(), {m, n});
  return s;
}

// Address of element (i, j) of the matrix that broadcasting gives to `batch`.
Num MatrixAt(const TensorRef& ref, const TensorRef& out, int64_t batch, int64_t i, int64_t j) {
  int64_t offset = i * ref.strides[ref.rank - 2] + j * ref.strides[ref.rank - 1];
  for (int back = 3; back <= out.rank; ++back) {
    const int64_t size = out.sizes[out.rank - back];
    const int d = ref.rank - back;
    if (d >= 0 && ref.sizes[d] != 1) offset += batch % size * ref.strides[d];
    batch /= size;
  }
  return Read(ref.dtype, static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype));
}

void Check(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  const int64_t m = out.sizes[out.rank - 2];
  const int64_t n = out.sizes[out.rank - 1];
  const int64_t k = a.sizes[a.rank - 1];
  for (int64_t flat = 0; flat < ElementCount(out); ++flat) {
    const int64_t batch = flat / (m * n);
    const int64_t i = flat / n % m;
    const int64_t j = flat % n;
    const Num got = At(out, flat);
    long double re = 0;
    long double im = 0;
    long double size = 0;
    unsigned __int128 bits = 0;
    for (int64_t l = 0; l < k; ++l) {
      const Num x = MatrixAt(a, out, batch, i, l);
      const Num y = MatrixAt(b, out, batch, l, j);
      if (CategoryOf(compute) <= Category::kInteger) {
        bits += ToBits(x.re) * ToBits(y.re);
        continue;
      }
      re += x.re * y.re - x.im * y.im;
      im += x.re * y.im + x.im * y.re;
      size += (std::fabs(x.re) + std::fabs(x.im)) * (std::fabs(y.re) + std::fabs(y.im));
    }
    const std::string where = std::string(Name(compute)) + " m" + std::to_string(m) + " n" + std::to_string(n) + " k" +
                              std::to_string(k) + " at " + std::to_string(flat);
    if (compute == DType::kBool) {
      ASSERT_EQ(got.re, bits != 0 ? 1 : 0) << where;
    } else if (IsInteger(compute)) {
      ASSERT_EQ(got.re, RefCast({Wrap(bits, compute), 0}, compute, out.dtype).re) << where;
    } else {
      const bool is_double = compute == DType::kDouble || compute == DType::kComplex128;
      const long double eps = is_double ? 0x1p-53L : 0x1p-24L;
      const auto terms = static_cast<long double>(std::min<int64_t>(k, 256) + k / 256 + 2);
      const long double store = out.dtype == DType::kFloat16 ? 0x1p-11L : out.dtype == DType::kBFloat16 ? 0x1p-8L : eps;
      const long double bound = terms * eps * size;
      ASSERT_LE(std::fabs(got.re - re), bound + store * std::fabs(re) + 0x1p-24L * (store > eps)) << where;
      ASSERT_LE(std::fabs(got.im - im), bound + store * std::fabs(im)) << where;
    }
  }
}

TEST(MatMulTest, SmallProductsOfEveryTypeMatchTheReference) {
  Rng rng(21);
  for (int round = 0; round < 600; ++round) {
    const DType dtype = kAllDTypes[static_cast<size_t>(round) % kAllDTypes.size()];
    const bool edges = CategoryOf(dtype) <= Category::kInteger;
    const Shapes s = RandomShapes(rng, Pick(rng, 0, 20), Pick(rng, 0, 40), Pick(rng, 0, 30));
    const auto a = RandomTensor(rng, dtype, s.a, PickLayout(rng, true), edges);
    const auto b = RandomTensor(rng, dtype, s.b, PickLayout(rng, true), edges);
    const auto out = RandomTensor(rng, dtype, s.out, PickLayout(rng, false));
    RunMatMul(rng, a.ref, b.ref, dtype, out.ref);
    Check(a.ref, b.ref, dtype, out.ref);
    if (HasFatalFailure()) return;
  }
}

TEST(MatMulTest, ProductsAcrossEveryBlockBoundaryMatchTheReference) {
  Rng rng(22);
  struct Case {
    int64_t m, n, k;
  };
  const Case kCases[] = {{1, 300, 600},  {2, 256, 256},  {12, 70, 257}, {13, 33, 40}, {132, 16, 256},
                         {133, 17, 255}, {140, 260, 20}, {600, 5, 3},   {5, 600, 3},  {300, 1, 30},
                         {1, 1, 2000},   {67, 129, 0},   {0, 4, 5},     {4, 0, 5}};
  const DType kBoundaryTypes[] = {DType::kFloat, DType::kFloat16, DType::kBFloat16, DType::kDouble,
                                  DType::kInt8,  DType::kInt64,   DType::kComplex64};
  for (const Case& c : kCases) {
    for (DType dtype : kBoundaryTypes) {
      for (int layout = 0; layout < 4; ++layout) {
        const auto a_sizes = layout & 1 ? std::vector{c.k, c.m} : std::vector{c.m, c.k};
        const auto b_sizes = layout & 2 ? std::vector{c.n, c.k} : std::vector{c.k, c.n};
        auto a = RandomTensor(rng, dtype, a_sizes, TestLayout::kContiguous, false);
        auto b = RandomTensor(rng, dtype, b_sizes, TestLayout::kContiguous, false);
        for (TensorRef* t : {layout & 1 ? &a.ref : nullptr, layout & 2 ? &b.ref : nullptr}) {
          if (t == nullptr) continue;
          std::swap(t->sizes[0], t->sizes[1]);
          std::swap(t->strides[0], t->strides[1]);
        }
        const auto out = RandomTensor(rng, dtype, {c.m, c.n}, TestLayout::kContiguous);
        RunMatMul(rng, a.ref, b.ref, dtype, out.ref);
        Check(a.ref, b.ref, dtype, out.ref);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatMulTest, SplitAndLayoutDoNotChangeABit) {
  Rng rng(23);
  for (DType dtype : {DType::kFloat, DType::kFloat16, DType::kDouble, DType::kComplex64}) {
    for (int64_t m : {1, 9, 700}) {
      const auto a = RandomTensor(rng, dtype, {m, 520}, TestLayout::kContiguous, false);
      const auto b = RandomTensor(rng, dtype, {520, 300}, TestLayout::kContiguous, false);
      const auto whole = MakeTensor(rng, dtype, {m, 300});
      RunMatMul(rng, a.ref, b.ref, dtype, whole.ref, /*split=*/false);
      const auto transposed = MakeTensor(rng, dtype, {300, 520});
      TensorRef b2 = transposed.ref;
      std::swap(b2.sizes[0], b2.sizes[1]);
      std::swap(b2.strides[0], b2.strides[1]);
      for (int64_t i = 0; i < ElementCount(b2); ++i) {
        std::memcpy(AddressOf(b2, i), AddressOf(b.ref, i), static_cast<size_t>(ItemSize(dtype)));
      }
      for (int round = 0; round < 4; ++round) {
        const auto pieces = MakeTensor(rng, dtype, {m, 300}, PickLayout(rng, false));
        RunMatMul(rng, a.ref, round % 2 == 0 ? b.ref : b2, dtype, pieces.ref);
        ASSERT_EQ(BytesOf(pieces.ref), BytesOf(whole.ref)) << Name(dtype) << " m " << m;
      }
      // One row alone gives the bits it has within the whole.
      TensorRef row = a.ref;
      row.sizes[0] = 1;
      const auto alone = MakeTensor(rng, dtype, {1, 300});
      RunMatMul(rng, row, b.ref, dtype, alone.ref);
      ASSERT_EQ(BytesOf(alone.ref), BytesOf(whole.ref).substr(0, BytesOf(alone.ref).size()));
    }
  }
}

TEST(MatMulTest, TheOutputTypeMayDifferFromTheComputeType) {
  Rng rng(24);
  const auto a = RandomTensor(rng, DType::kInt8, {7, 50}, TestLayout::kContiguous);
  const auto b = RandomTensor(rng, DType::kInt8, {50, 9}, TestLayout::kContiguous);
  const auto wide = MakeTensor(rng, DType::kInt32, {7, 9});
  RunMatMul(rng, a.ref, b.ref, DType::kInt32, wide.ref);
  Check(a.ref, b.ref, DType::kInt32, wide.ref);
  RunMatMul(rng, a.ref, b.ref, DType::kInt8, wide.ref);  // wraps at int8, then widens
  Check(a.ref, b.ref, DType::kInt8, wide.ref);
  const auto h = RandomTensor(rng, DType::kFloat16, {7, 50}, TestLayout::kContiguous, false);
  const auto g = RandomTensor(rng, DType::kFloat16, {50, 9}, TestLayout::kContiguous, false);
  const auto f = MakeTensor(rng, DType::kFloat, {7, 9});
  RunMatMul(rng, h.ref, g.ref, DType::kFloat16, f.ref);
  Check(h.ref, g.ref, DType::kFloat16, f.ref);
}

TEST(MatMulTest, NanAndInfinityAreNotSkipped) {
  float a[2] = {0, 1};
  float b[2] = {INFINITY, 1};
  float out[1] = {};
  Rng rng(25);
  RunMatMul(rng, MakeContiguous(a, DType::kFloat, {1, 2}), MakeContiguous(b, DType::kFloat, {2, 1}), DType::kFloat,
            MakeContiguous(out, DType::kFloat, {1, 1}));
  EXPECT_TRUE(std::isnan(out[0]));
}

}  // namespace
}  // namespace reprise::kernels
