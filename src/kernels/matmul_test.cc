// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "../../tests/unit/scale.h"
#include "kernels/simd/bfloat16_pairs.h"
#include "kernels/simd/first_cache.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/matrix_unit.h"
#include "kernels/simd/test_targets.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;
using reprise::testing::Loops;

// Runs the product in random pieces, each with scratch of exactly the asked size.
void RunMatMul(Rng& rng, const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
               bool split = true) {
  const int64_t bytes = MatMulScratchBytes(a, b, compute, out);
  EXPECT_LE(bytes, kMostMatMulScratchBytes);
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

struct Element {
  Num num;
  unsigned __int128 bits = 0;  // of integers
};

// The matrix that broadcasting gives to `batch`, row by row or column by column. Each element is read once: finding and
// widening it anew for every product of the reference took most of the test.
std::vector<Element> MatrixOf(TensorRef ref, const TensorRef& out, int64_t batch, bool by_columns) {
  int64_t base = 0;
  for (int back = 3; back <= out.rank; ++back) {
    const int64_t size = out.sizes[out.rank - back];
    const int d = ref.rank - back;
    if (d >= 0 && ref.sizes[d] != 1) base += batch % size * ref.strides[d];
    batch /= size;
  }
  if (by_columns) {
    std::swap(ref.sizes[ref.rank - 2], ref.sizes[ref.rank - 1]);
    std::swap(ref.strides[ref.rank - 2], ref.strides[ref.rank - 1]);
  }
  const bool has_bits = CategoryOf(ref.dtype) <= Category::kInteger;
  std::vector<Element> matrix;
  for (int64_t i = 0; i < ref.sizes[ref.rank - 2]; ++i) {
    for (int64_t j = 0; j < ref.sizes[ref.rank - 1]; ++j) {
      const int64_t offset = base + i * ref.strides[ref.rank - 2] + j * ref.strides[ref.rank - 1];
      Element element;
      element.num = Read(ref.dtype, static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype));
      if (has_bits) element.bits = ToBits(element.num.re);
      matrix.push_back(element);
    }
  }
  return matrix;
}

void Check(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  const int64_t m = out.sizes[out.rank - 2];
  const int64_t n = out.sizes[out.rank - 1];
  const int64_t k = a.sizes[a.rank - 1];
  const bool is_exact = CategoryOf(compute) <= Category::kInteger;
  std::vector<Element> left;
  std::vector<Element> right;
  for (int64_t flat = 0; flat < ElementCount(out); ++flat) {
    if (flat % (m * n) == 0) {
      left = MatrixOf(a, out, flat / (m * n), false);
      right = MatrixOf(b, out, flat / (m * n), true);
    }
    const int64_t i = flat / n % m;
    const int64_t j = flat % n;
    const Num got = At(out, flat);
    long double re = 0;
    long double im = 0;
    long double size = 0;
    unsigned __int128 bits = 0;
    const Element* const row = left.data() + i * k;
    const Element* const column = right.data() + j * k;
    if (is_exact) {
      for (int64_t l = 0; l < k; ++l) bits += row[l].bits * column[l].bits;
    } else if (CategoryOf(compute) == Category::kFloating) {
      for (int64_t l = 0; l < k; ++l) {
        const long double product = row[l].num.re * column[l].num.re;
        re += product;
        size += std::fabs(product);
      }
    } else {
      for (int64_t l = 0; l < k; ++l) {
        const Num x = row[l].num;
        const Num y = column[l].num;
        re += x.re * y.re - x.im * y.im;
        im += x.re * y.im + x.im * y.re;
        size += (std::fabs(x.re) + std::fabs(x.im)) * (std::fabs(y.re) + std::fabs(y.im));
      }
    }
    const auto where = [&] {
      return std::string(Name(compute)) + " m" + std::to_string(m) + " n" + std::to_string(n) + " k" +
             std::to_string(k) + " at " + std::to_string(flat);
    };
    if (compute == DType::kBool) {
      ASSERT_EQ(got.re, bits != 0 ? 1 : 0) << where();
    } else if (IsInteger(compute)) {
      ASSERT_EQ(got.re, RefCast({Wrap(bits, compute), 0}, compute, out.dtype).re) << where();
    } else {
      const bool is_double = compute == DType::kDouble || compute == DType::kComplex128;
      const long double eps = is_double ? 0x1p-53L : 0x1p-24L;
      const auto terms = static_cast<long double>(std::min<int64_t>(k, 256) + k / 256 + 2);
      const long double store = out.dtype == DType::kFloat16 ? 0x1p-11L : out.dtype == DType::kBFloat16 ? 0x1p-8L : eps;
      const long double bound = terms * eps * size;
      ASSERT_LE(std::fabs(got.re - re), bound + store * std::fabs(re) + 0x1p-24L * (store > eps)) << where();
      ASSERT_LE(std::fabs(got.im - im), bound + store * std::fabs(im)) << where();
    }
  }
}

TEST(MatMulTest, SmallProductsOfEveryTypeMatchTheReference) {
  Rng rng(21);
  const int kRounds = Loops(600, 150);  // multiples of the number of types
  for (int round = 0; round < kRounds; ++round) {
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
      for (int layout = 0; layout < 4; layout += Loops(1, 3)) {
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

TEST(MatMulTest, TheSplitDoesNotChangeABit) {
  Rng rng(23);
  for (DType dtype : {DType::kFloat, DType::kFloat16, DType::kDouble, DType::kComplex64}) {
    for (int64_t m : {1, 9, Loops(700, 140)}) {
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
      const auto of_columns = MakeTensor(rng, dtype, {m, 300});
      RunMatMul(rng, a.ref, b2, dtype, of_columns.ref, /*split=*/false);
      for (int round = 0; round < Loops(4, 2); ++round) {
        const auto pieces = MakeTensor(rng, dtype, {m, 300});
        RunMatMul(rng, a.ref, round % 2 == 0 ? b.ref : b2, dtype, pieces.ref);
        ASSERT_EQ(BytesOf(pieces.ref), BytesOf(round % 2 == 0 ? whole.ref : of_columns.ref))
            << Name(dtype) << " m " << m;
      }
    }
  }
}

// Threads take work items: a tall result of few columns is cut by rows, too, and no matrix into pieces that do not pay.
TEST(MatMulTest, TallResultsOfFewColumnsHaveSeveralWorkItems) {
  const auto units = [](int64_t m, int64_t k, int64_t n, DType type) {
    return MatMulUnitCount(MakeContiguous(nullptr, type, {m, k}), MakeContiguous(nullptr, type, {k, n}), type,
                           MakeContiguous(nullptr, type, {m, n}));
  };
  for (const DType type : {DType::kFloat, DType::kDouble}) {
    EXPECT_GE(units(300, 512, 96, type), 6);
    EXPECT_GE(units(1024, 128, 64, type), 8);
    EXPECT_EQ(units(200, 64, 32, type), 1) << "less than two groups of rows";
    EXPECT_EQ(units(500, 64, 512, type), units(100, 64, 512, type)) << "columns are enough";
  }
}

// Products in tiles end closer together; those that find out about the left operand in each call, or run through memory
// once, take larger pieces.
TEST(MatMulTest, CallsAreCheapInTiles) {
  const auto is_cheap = [](int64_t rows, DType type) {
    return MatMulUnitWork(MakeContiguous(nullptr, type, {rows, 64}), MakeContiguous(nullptr, type, {64, 96}), type,
                          MakeContiguous(nullptr, type, {rows, 96}))
        .has_cheap_calls;
  };
  EXPECT_EQ(is_cheap(100, DType::kFloat), !simd::HasMatrixUnitForFloat32());
  EXPECT_EQ(is_cheap(100, DType::kFloat16), !simd::HasMatrixUnit());
  EXPECT_EQ(is_cheap(100, DType::kBFloat16), !simd::HasFastBFloat16Pairs() && !simd::HasMatrixUnit());
  EXPECT_FALSE(is_cheap(1, DType::kFloat));
}

// Low tiles and high ones; of one panel, of several, of a pair and one more.
TEST(MatMulTest, TheFormOfTilesDoesNotChangeABit) {
  struct UsualCache {
    ~UsualCache() { simd::PretendFirstCache(0); }
  } const usual_again;
  Rng rng(27);
  for (const DType dtype : {DType::kFloat, DType::kFloat16, DType::kBFloat16, DType::kDouble}) {
    for (const int64_t n : {20, 64, 100, 230}) {
      for (const int64_t m : {12, 13, 19, 31, 140}) {
        const int64_t k = Pick(rng, 1, 2) * Pick(rng, 1, 300);
        const auto a = RandomTensor(rng, dtype, {m, k}, PickLayout(rng, false), false);
        auto b = RandomTensor(rng, dtype, {n, k}, TestLayout::kContiguous, false);
        std::swap(b.ref.sizes[0], b.ref.sizes[1]);
        std::swap(b.ref.strides[0], b.ref.strides[1]);
        std::vector<std::string> bytes;
        for (const int64_t cache : {32 << 10, 64 << 10}) {
          simd::PretendFirstCache(cache);
          const auto out = MakeTensor(rng, dtype, {m, n}, TestLayout::kContiguous);
          RunMatMul(rng, a.ref, b.ref, dtype, out.ref);
          bytes.push_back(BytesOf(out.ref));
        }
        ASSERT_EQ(bytes[0], bytes[1]) << Name(dtype) << " m" << m << " n" << n << " k" << k;
      }
    }
  }
}

// Whatever tiles the rows are cut into, a row is computed as it would be alone.
void CheckFewRowsTimesColumns() {
  Rng rng(29);
  struct Case {
    int64_t n, k;
  };
  for (const Case& c : {Case{11, 48}, Case{24, 61}, Case{12, 3}, Case{11, 4100}}) {
    for (const DType dtype : {DType::kFloat, DType::kFloat16, DType::kBFloat16, DType::kDouble}) {
      const auto columns = RandomTensor(rng, dtype, {c.n, c.k}, TestLayout::kContiguous, false);
      TensorRef b = columns.ref;
      std::swap(b.sizes[0], b.sizes[1]);
      std::swap(b.strides[0], b.strides[1]);
      for (int64_t m = 1; m <= 10; m += c.k > 1000 ? 9 : 1) {
        const auto a = RandomTensor(rng, dtype, {m, c.k}, TestLayout::kContiguous, false);
        const auto out = RandomTensor(rng, dtype, {m, c.n}, TestLayout::kContiguous);
        RunMatMul(rng, a.ref, b, dtype, out.ref);
        Check(a.ref, b, dtype, out.ref);
        for (int64_t i = m - 1; i >= 0; i -= 4) {
          TensorRef row = a.ref;
          row.sizes[0] = 1;
          row.data = static_cast<char*>(row.data) + i * c.k * ItemSize(dtype);
          TensorRef expected = out.ref;
          expected.sizes[0] = 1;
          expected.data = static_cast<char*>(expected.data) + i * c.n * ItemSize(dtype);
          const auto alone = RandomTensor(rng, dtype, {1, c.n}, TestLayout::kContiguous);
          RunMatMul(rng, row, b, dtype, alone.ref);
          ASSERT_EQ(BytesOf(alone.ref), BytesOf(expected)) << Name(dtype) << " row " << i << " of " << m;
        }
      }
    }
  }
}

TEST(MatMulTest, FewRowsTimesColumns) {
  const int targets = simd::testing::ForEachTarget([](int64_t target) {
    SCOPED_TRACE(hwy::TargetName(target));
    CheckFewRowsTimesColumns();
  });
  EXPECT_GE(targets, 1);
}

// Rows further apart on either side, which are walked in another order, and what is no whole number of tiles.
TEST(MatMulTest, RowsAndColumnsAreExchanged) {
  Rng rng(30);
  simd::testing::ForEachTarget([&](int64_t target) {
    for (int round = 0; round < 60; ++round) {
      const int64_t rows = Pick(rng, 1, 70);
      const int64_t cols = Pick(rng, 1, 70);
      const int64_t from_stride = cols + Pick(rng, 0, 40);
      const int64_t to_stride = rows + Pick(rng, 0, 40);
      std::vector<float> from(static_cast<size_t>(rows * from_stride));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      std::vector<float> to(static_cast<size_t>(cols * to_stride), -1.0f);
      simd::Transpose(from.data(), from_stride, rows, cols, to.data(), to_stride);
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t i = 0; i < to_stride; ++i) {
          const float wanted = i < rows ? from[static_cast<size_t>(i * from_stride + j)] : -1.0f;
          ASSERT_EQ(to[static_cast<size_t>(j * to_stride + i)], wanted)
              << hwy::TargetName(target) << ", " << rows << " x " << cols << " at " << i << ", " << j;
        }
      }
    }
  });
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

// Those of a product of many rows, for however few rows it is used: types, layouts, edges, pieces.
TEST(MatMulTest, APreparedRightOperandGivesTheSameBits) {
  Rng rng(26);
  for (int loop = Loops(60, 16); loop > 0; --loop) {
    const DType type = std::array{DType::kFloat, DType::kFloat16, DType::kBFloat16}[static_cast<size_t>(loop % 3)];
    int64_t most = Pick(rng, 11, 160);
    const int64_t m = Pick(rng, 0, 1) == 0 ? Pick(rng, 1, 33) : most;
    // More rows of float16 are multiplied in parts, with the form as without.
    if (type == DType::kFloat16 && m <= 32 && simd::HasMatrixUnit()) most = std::min<int64_t>(most, 32);
    const int64_t n = Pick(rng, 17, 100);
    const int64_t k = Pick(rng, 1, 600);
    const bool by_columns = Pick(rng, 0, 1) == 0;
    const auto all = RandomTensor(rng, type, {std::max(m, most), k}, PickLayout(rng, false), false);
    auto b = RandomTensor(rng, type, by_columns ? std::vector{n, k} : std::vector{k, n}, PickLayout(rng, false), false);
    if (by_columns) {
      std::swap(b.ref.sizes[0], b.ref.sizes[1]);
      std::swap(b.ref.strides[0], b.ref.strides[1]);
    }
    const DType result = Pick(rng, 0, 1) == 0 ? type : DType::kFloat;
    const auto expected = MakeTensor(rng, result, {std::max(m, most), n}, TestLayout::kContiguous);
    RunMatMul(rng, all.ref, b.ref, type, expected.ref);
    TensorRef a = all.ref;
    a.sizes[0] = m;
    const auto out = MakeTensor(rng, result, {m, n}, PickLayout(rng, false));
    const PreparedRight prepared = FindPreparedRight(a, b.ref, type);
    const auto bytes = static_cast<size_t>(prepared.bytes);
    if (bytes == 0) {  // no instructions for float16
      ASSERT_EQ(type, DType::kFloat16);
      continue;
    }
    ASSERT_GE(bytes, static_cast<size_t>(k * n * ItemSize(type)));
    const std::unique_ptr<void, decltype(&std::free)> form(std::aligned_alloc(64, (bytes + 63) / 64 * 64), &std::free);
    std::memset(form.get(), 0xff, bytes);
    prepared.write(b.ref, form.get());
    const int64_t units = MatMulUnitCount(a, b.ref, type, out.ref, true);
    const auto scratch_bytes = static_cast<size_t>(MatMulScratchBytes(a, b.ref, type, out.ref, true));
    const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, (scratch_bytes + 63) / 64 * 64),
                                                              &std::free);
    TensorRef shape = b.ref;  // of the operand, nothing else is read
    shape.data = nullptr;
    RunInPieces(rng, units,
                [&](Range range) { MatMul(a, shape, type, out.ref, range, scratch.get(), nullptr, form.get()); });
    for (int64_t flat = 0; flat < m * n; ++flat) {
      ASSERT_EQ(At(out.ref, flat).re, At(expected.ref, flat).re)
          << Name(type) << " m" << m << " n" << n << " k" << k << " at " << flat;
    }
  }
}

// Of a batch each matrix has its own form, which entries of the result may share.
TEST(MatMulTest, SmallProductsHaveTheBitsOfTiles) {
  Rng rng(4097);
  constexpr int64_t kCols = 64;  // more than small products have
  for (int loop = Loops(300, 60); loop > 0; --loop) {
    const int64_t n = 8 * Pick(rng, 1, 4);
    const int64_t k = Pick(rng, 1, std::min<int64_t>(4096 / n, 256));  // a block of the depth
    const int64_t m = Pick(rng, 1, std::min<int64_t>(32, 4096 / (n * k) + 1));
    const auto all = RandomTensor(rng, DType::kFloat, {m, k + Pick(rng, 0, 3)}, TestLayout::kContiguous, false);
    const auto right = RandomTensor(rng, DType::kFloat, {k, kCols}, TestLayout::kContiguous, false);
    const auto expected = MakeTensor(rng, DType::kFloat, {m, kCols}),
               results = MakeTensor(rng, DType::kFloat, {m, n + 3});
    TensorRef a = all.ref, b = right.ref, out = results.ref;
    a.sizes[1] = k;
    RunMatMul(rng, a, b, DType::kFloat, expected.ref);
    b.sizes[1] = out.sizes[1] = n;
    RunMatMul(rng, a, b, DType::kFloat, out);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_EQ(At(out, i * n + j).re, At(expected.ref, i * kCols + j).re) << m << " x " << k << " x " << n;
      }
    }
  }
}

TEST(MatMulTest, PreparedBatches) {
  Rng rng(28);
  for (int loop = Loops(24, 8); loop > 0; --loop) {
    const DType type = std::array{DType::kFloat, DType::kBFloat16}[static_cast<size_t>(loop % 2)];
    const int64_t outer = Pick(rng, 1, 3), inner = Pick(rng, 1, 3);
    const int64_t m = Pick(rng, 17, 40), n = Pick(rng, 17, 70), k = Pick(rng, 1, 300);
    const auto a = RandomTensor(rng, type, {outer, inner, m, k}, PickLayout(rng, false), false);
    const auto b =
        RandomTensor(rng, type, {Pick(rng, 0, 1) == 0 ? 1 : outer, inner, k, n}, PickLayout(rng, false), false);
    const auto expected = MakeTensor(rng, DType::kFloat, {outer, inner, m, n}, TestLayout::kContiguous);
    RunMatMul(rng, a.ref, b.ref, type, expected.ref);
    const auto out = MakeTensor(rng, DType::kFloat, {outer, inner, m, n}, PickLayout(rng, false));
    const PreparedRight prepared = FindPreparedRight(a.ref, b.ref, type);
    const auto bytes = static_cast<size_t>(prepared.bytes);
    ASSERT_GE(bytes, static_cast<size_t>(b.ref.sizes[0] * inner * k * n * ItemSize(type)));
    const std::unique_ptr<void, decltype(&std::free)> form(std::aligned_alloc(64, (bytes + 63) / 64 * 64), &std::free);
    prepared.write(b.ref, form.get());
    const auto scratch_bytes = static_cast<size_t>(MatMulScratchBytes(a.ref, b.ref, type, out.ref, true));
    const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, (scratch_bytes + 63) / 64 * 64),
                                                              &std::free);
    TensorRef shape = b.ref;
    shape.data = nullptr;
    RunInPieces(rng, MatMulUnitCount(a.ref, b.ref, type, out.ref, true),
                [&](Range range) { MatMul(a.ref, shape, type, out.ref, range, scratch.get(), nullptr, form.get()); });
    for (int64_t flat = 0; flat < outer * inner * m * n; ++flat) {
      ASSERT_EQ(At(out.ref, flat).re, At(expected.ref, flat).re) << Name(type) << " at " << flat;
    }
  }
  // An operand that is repeated has none.
  auto repeated = RandomTensor(rng, DType::kFloat, {1, 20, 30}, TestLayout::kContiguous, false);
  repeated.ref.sizes[0] = 4;
  repeated.ref.strides[0] = 0;
  EXPECT_EQ(FindPreparedRight(repeated.ref, repeated.ref, DType::kFloat).bytes, 0);
}

// The sums of such a product cannot be kept in out.
TEST(MatMulTest, TheAddendMayBeTheResult) {
  Rng rng(27);
  constexpr int64_t kRows = 40, kCols = 50, kDepth = 300;
  std::vector<float> a(kRows * kDepth), b(kDepth * kCols), out(kRows * kCols);
  for (float& value : a) value = static_cast<float>(Pick(rng, -3, 3));
  for (float& value : b) value = static_cast<float>(Pick(rng, -3, 3));
  for (float& value : out) value = static_cast<float>(Pick(rng, -3, 3));
  const std::vector<float> addend = out;
  const TensorRef left = MakeContiguous(a.data(), DType::kFloat, {kRows, kDepth});
  const TensorRef right = MakeContiguous(b.data(), DType::kFloat, {kDepth, kCols});
  const TensorRef result = MakeContiguous(out.data(), DType::kFloat, {kRows, kCols});
  const MatMulEpilogue epilogue = {Scalar::Of<float>(2), Scalar::Of<float>(3), result};
  const auto bytes = static_cast<size_t>(MatMulScratchBytes(left, right, DType::kFloat, result));
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64), &std::free);
  RunInPieces(rng, MatMulUnitCount(left, right, DType::kFloat, result),
              [&](Range range) { MatMul(left, right, DType::kFloat, result, range, scratch.get(), &epilogue); });
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) sum += a[i * kDepth + k] * b[k * kCols + j];
      ASSERT_EQ(out[i * kCols + j], 2 * sum + 3 * addend[i * kCols + j]) << i << ", " << j;
    }
  }
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
