// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <cstring>
#include <tuple>

#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/math_functions.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

// ---- Reference: each operation rounded by RoundFloating, integers in 128 bits ----

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv };
enum class UnaryOp : uint8_t { kRelu, kExp, kNeg, kAbs };

const ElementFn& FnOf(BinaryOp op, bool is_scaled) {
  switch (op) {
    case BinaryOp::kAdd: return is_scaled ? kAddScaledFn : kAddFn;
    case BinaryOp::kSub: return is_scaled ? kSubScaledFn : kSubFn;
    case BinaryOp::kMul: return kMulFn;
    default: return kDivFn;
  }
}

const ElementFn& FnOf(UnaryOp op) {
  switch (op) {
    case UnaryOp::kRelu: return kReluFn;
    case UnaryOp::kExp: return kExpFn;
    case UnaryOp::kNeg: return kNegFn;
    default: return kAbsFn;
  }
}

void Binary(BinaryOp op, const TensorRef& a, const TensorRef& b, const Scalar& alpha, DType compute,
            const TensorRef& out, Range range) {
  const TensorRef refs[] = {out, a, b};
  ElementCall(FnOf(op, true), compute, {&alpha, 1}).Run(refs, range);
}

void Unary(UnaryOp op, const TensorRef& a, DType compute, const TensorRef& out, Range range) {
  const TensorRef refs[] = {out, a};
  ElementCall(FnOf(op), compute).Run(refs, range);
}

bool Supports(UnaryOp op, DType compute) {
  return FnOf(op).find(compute).function != nullptr && !(op == UnaryOp::kNeg && compute == DType::kBool);
}

// One IEEE operation in the math type of `compute`. Sums, products and
// quotients of floats are innocuous to round twice through long double; doubles
// are computed as doubles.
long double Apply(char op, long double a, long double b, DType math) {
  if (math == DType::kDouble || math == DType::kComplex128) {
    volatile double x = static_cast<double>(a);
    volatile double y = static_cast<double>(b);
    volatile double r = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
    return r;
  }
  const long double exact = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
  return RoundFloating(exact, math);
}

Num RefBinary(BinaryOp op, Num a, Num b, Num alpha, DType compute) {
  if (compute == DType::kBool) {
    const bool x = a.re != 0;
    const bool y = b.re != 0;
    const bool s = alpha.re != 0;
    const bool r = op == BinaryOp::kAdd ? x || (s && y) : op == BinaryOp::kSub ? x != (s && y) : x && y;
    return {r ? 1.0L : 0.0L, 0};
  }
  if (IsInteger(compute)) {
    const auto x = ToBits(a.re);
    const auto y = ToBits(b.re);
    const auto s = ToBits(alpha.re);
    switch (op) {
      case BinaryOp::kAdd: return {Wrap(x + s * y, compute), 0};
      case BinaryOp::kSub: return {Wrap(x - s * y, compute), 0};
      case BinaryOp::kMul: return {Wrap(x * y, compute), 0};
      case BinaryOp::kDiv:
        if (b.re == 0) return {};
        return {Wrap(static_cast<unsigned __int128>(static_cast<__int128>(x) / static_cast<__int128>(y)), compute), 0};
    }
  }
  const DType math = MathDType(compute);
  long double r = 0;
  switch (op) {
    case BinaryOp::kAdd: r = Apply('+', a.re, Apply('*', alpha.re, b.re, math), math); break;
    case BinaryOp::kSub: r = Apply('-', a.re, Apply('*', alpha.re, b.re, math), math); break;
    case BinaryOp::kMul: r = Apply('*', a.re, b.re, math); break;
    case BinaryOp::kDiv: r = Apply('/', a.re, b.re, math); break;
  }
  return {RoundFloating(r, compute), 0};
}

void CopyElements(const TensorRef& src, const TensorRef& dst) {
  for (int64_t i = 0; i < ElementCount(src); ++i) {
    std::memcpy(AddressOf(dst, i), AddressOf(src, i), static_cast<size_t>(ItemSize(src.dtype)));
  }
}

std::string Describe(DType a, DType b, DType compute, DType out) {
  return std::string(Name(a)) + " " + std::string(Name(b)) + " in " + std::string(Name(compute)) + " to " +
         std::string(Name(out));
}

TEST(ElementwiseTest, RealBinaryOpsMatchTheReferenceInAnyTypeAndLayout) {
  Rng rng(11);
  int checked = 0;
  for (int round = 0; round < 3000; ++round) {
    const bool mixed = round % 3 == 0;
    const DType compute = PickDType(rng);
    if (CategoryOf(compute) == Category::kComplex) continue;
    const DType type_a = mixed ? PickDType(rng) : compute;
    const DType type_b = mixed ? PickDType(rng) : compute;
    const DType type_out = mixed ? PickDType(rng) : compute;
    const auto sizes = RandomSizes(rng);
    const auto a = RandomTensor(rng, type_a, BroadcastSource(rng, sizes), PickLayout(rng, true));
    const auto b = RandomTensor(rng, type_b, BroadcastSource(rng, sizes), PickLayout(rng, true));
    const auto out = MakeTensor(rng, type_out, sizes, PickLayout(rng, false));
    const auto op = static_cast<BinaryOp>(Pick(rng, 0, 3));
    const Scalar alphas[] = {Scalar::Of(1.0), Scalar::Of(int64_t{3}), Scalar::Of(-0.3f)};
    const Scalar alpha = alphas[Pick(rng, 0, 2)];
    const Num scale =
        RefCast(Read(alpha.dtype, reinterpret_cast<const char*>(alpha.bytes)), alpha.dtype, MathDType(compute));
    RunInPieces(rng, ElementCount(out.ref), [&](Range r) { Binary(op, a.ref, b.ref, alpha, compute, out.ref, r); });
    for (int64_t i = 0; i < ElementCount(out.ref); ++i, ++checked) {
      const Num x = RefCast(AtBroadcast(a.ref, out.ref, i), type_a, compute);
      const Num y = RefCast(AtBroadcast(b.ref, out.ref, i), type_b, compute);
      const Num expected = RefCast(RefBinary(op, x, y, scale, compute), compute, type_out);
      const Num got = At(out.ref, i);
      ASSERT_TRUE(Same(got, expected)) << "op " << static_cast<int>(op) << " "
                                       << Describe(type_a, type_b, compute, type_out) << ": "
                                       << static_cast<double>(x.re) << ", " << static_cast<double>(y.re) << " -> "
                                       << static_cast<double>(got.re) << " not " << static_cast<double>(expected.re);
    }
  }
  EXPECT_GT(checked, 100000);
}

TEST(ElementwiseTest, RealUnaryOpsMatchTheReferenceInAnyTypeAndLayout) {
  Rng rng(12);
  for (int round = 0; round < 2000; ++round) {
    const bool mixed = round % 3 == 0;
    const DType compute = PickDType(rng);
    const auto op = static_cast<UnaryOp>(Pick(rng, 0, 3));
    if (CategoryOf(compute) == Category::kComplex || op == UnaryOp::kExp || !Supports(op, compute)) continue;
    const DType type_a = mixed ? PickDType(rng) : compute;
    const DType type_out = mixed ? PickDType(rng) : compute;
    const auto sizes = RandomSizes(rng);
    const auto a = RandomTensor(rng, type_a, BroadcastSource(rng, sizes), PickLayout(rng, true));
    const auto out = MakeTensor(rng, type_out, sizes, PickLayout(rng, false));
    RunInPieces(rng, ElementCount(out.ref), [&](Range r) { Unary(op, a.ref, compute, out.ref, r); });
    for (int64_t i = 0; i < ElementCount(out.ref); ++i) {
      const Num x = RefCast(AtBroadcast(a.ref, out.ref, i), type_a, compute);
      Num r = x;
      const bool is_negative = std::signbit(x.re) && !std::isnan(x.re);
      if (op == UnaryOp::kRelu && !(x.re > 0) && !std::isnan(x.re)) r.re = 0;
      if (op == UnaryOp::kNeg || (op == UnaryOp::kAbs && is_negative)) {
        r.re = IsInteger(compute) ? Wrap(-ToBits(x.re), compute) : -x.re;
      }
      ASSERT_TRUE(Same(At(out.ref, i), RefCast(r, compute, type_out)))
          << "op " << static_cast<int>(op) << " " << Describe(type_a, type_a, compute, type_out) << " "
          << static_cast<double>(x.re) << " -> " << static_cast<double>(At(out.ref, i).re);
    }
  }
}

TEST(ElementwiseTest, ComplexOpsAreCloseToTheReference) {
  Rng rng(13);
  using Wide = std::complex<long double>;
  for (DType dtype : {DType::kComplex64, DType::kComplex128}) {
    const long double eps = dtype == DType::kComplex64 ? 0x1p-24L : 0x1p-53L;
    const auto sizes = std::vector<int64_t>{9, 31};
    const auto a = RandomTensor(rng, dtype, sizes, TestLayout::kStrided, false);
    const auto b = RandomTensor(rng, dtype, sizes, TestLayout::kStrided, false);
    const auto out = MakeTensor(rng, dtype, sizes);
    const Scalar alpha = Scalar::Of(std::complex<float>(0.5f, -2));
    const auto check = [&](const char* what, auto&& formula, long double tolerance) {
      for (int64_t i = 0; i < ElementCount(out.ref); ++i) {
        const Num x = At(a.ref, i);
        const Num y = At(b.ref, i);
        const Num r = At(out.ref, i);
        const Wide expected = formula(Wide(x.re, x.im), Wide(y.re, y.im));
        const long double size = std::abs(Wide(x.re, x.im)) + std::abs(expected) + 8;
        ASSERT_LE(std::abs(Wide(r.re, r.im) - expected), tolerance * eps * size) << what;
      }
    };
    const auto binary = [&](BinaryOp op) {
      RunInPieces(rng, ElementCount(out.ref), [&](Range r) { Binary(op, a.ref, b.ref, alpha, dtype, out.ref, r); });
    };
    const auto unary = [&](UnaryOp op) { Unary(op, a.ref, dtype, out.ref, FullRange(out.ref)); };
    binary(BinaryOp::kAdd);
    check(
        "add", [](Wide x, Wide y) { return x + Wide(0.5L, -2) * y; }, 8);
    binary(BinaryOp::kSub);
    check(
        "sub", [](Wide x, Wide y) { return x - Wide(0.5L, -2) * y; }, 8);
    binary(BinaryOp::kMul);
    check(
        "mul", [](Wide x, Wide y) { return x * y; }, 8);
    binary(BinaryOp::kDiv);
    check(
        "div", [](Wide x, Wide y) { return x / y; }, 16);
    unary(UnaryOp::kExp);
    check(
        "exp", [](Wide x, Wide) { return std::exp(x); }, 16);
    unary(UnaryOp::kNeg);
    check(
        "neg", [](Wide x, Wide) { return -x; }, 0);
    unary(UnaryOp::kAbs);
    check(
        "abs", [](Wide x, Wide) { return Wide(std::abs(x)); }, 8);
    EXPECT_FALSE(Supports(UnaryOp::kRelu, dtype));
  }
  // No overflow on the way: (1e30 + 1e30 i) / (1e30 + 1e30 i) = 1.
  std::complex<float> huge(1e30f, 1e30f);
  std::complex<float> one;
  const TensorRef in = MakeContiguous(&huge, DType::kComplex64, {});
  const TensorRef out = MakeContiguous(&one, DType::kComplex64, {});
  Binary(BinaryOp::kDiv, in, in, Scalar(), DType::kComplex64, out, {0, 1});
  EXPECT_EQ(one, std::complex<float>(1, 0));
}

int64_t UlpDistance(float a, float b) {
  const auto ordered = [](float f) {
    const auto bits = std::bit_cast<int32_t>(f);
    return static_cast<int64_t>(bits < 0 ? std::numeric_limits<int32_t>::min() - int64_t{bits} : bits);
  };
  return std::abs(ordered(a) - ordered(b));
}

TEST(ElementwiseTest, ExpIsWithinTwoUlp) {
  std::vector<float> x = {0.0f,    -0.0f,        INFINITY, -INFINITY,   NAN,         88.7228317f,  88.7228394f,
                          89.0f,   -87.3365447f, -87.4f,   -103.27893f, -103.97207f, -103.972084f, -104.0f,
                          -150.0f, 1e30f,        -1e30f,   1e-40f,      -1e-40f,     1e-8f};
  Rng rng(14);
  for (int i = 0; i < 400000; ++i) x.push_back(std::uniform_real_distribution<float>(-105, 90)(rng));
  for (int i = 0; i < 200000; ++i) x.push_back(std::uniform_real_distribution<float>(-1, 1)(rng));
  std::vector<float> y(x.size());
  const auto n = static_cast<int64_t>(x.size());
  const TensorRef in = MakeContiguous(x.data(), DType::kFloat, {n});
  const TensorRef out = MakeContiguous(y.data(), DType::kFloat, {n});
  Unary(UnaryOp::kExp, in, DType::kFloat, out, {0, n});
  int64_t worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto expected = static_cast<float>(std::exp(static_cast<long double>(x[i])));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[i]));
      continue;
    }
    ASSERT_LE(UlpDistance(y[i], expected), 2) << x[i];
    worst = std::max(worst, UlpDistance(y[i], expected));
  }
  RecordProperty("worst_ulp", static_cast<int>(worst));
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], INFINITY);
  EXPECT_EQ(y[3], 0.0f);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kDouble}) {
    const auto a = RandomTensor(rng, dtype, {5000}, TestLayout::kContiguous);
    const auto r = MakeTensor(rng, dtype, {5000});
    Unary(UnaryOp::kExp, a.ref, dtype, r.ref, {0, 5000});
    for (int64_t i = 0; i < 5000; ++i) {
      const long double exact = std::exp(At(a.ref, i).re);
      const long double got = At(r.ref, i).re;
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(got));
        continue;
      }
      const long double eps = dtype == DType::kFloat16 ? 0x1p-10L : dtype == DType::kBFloat16 ? 0x1p-7L : 0x1p-52L;
      const long double tiny = dtype == DType::kFloat16 ? 0x1p-24L : dtype == DType::kBFloat16 ? 0x1p-133L : 0x1p-1074L;
      const long double rounded = RoundFloating(exact, dtype);
      if (std::isinf(rounded) || std::isinf(got))
        ASSERT_EQ(got, rounded);
      else
        ASSERT_LE(std::fabs(got - exact), eps * std::fabs(exact) + tiny) << static_cast<double>(exact);
    }
  }
}

TEST(ElementwiseTest, LayoutAndSplitDoNotChangeABit) {
  Rng rng(15);
  for (DType dtype : kAllDTypes) {
    const std::vector<int64_t> sizes = {3, 7, 129};
    const auto a = RandomTensor(rng, dtype, sizes, TestLayout::kContiguous);
    const auto b = RandomTensor(rng, dtype, sizes, TestLayout::kContiguous);
    const auto expected = MakeTensor(rng, dtype, sizes);
    const Scalar alpha = Scalar::Of(0.7);
    for (int op = 0; op < 4; ++op) {
      const auto o = static_cast<BinaryOp>(op);
      Binary(o, a.ref, b.ref, alpha, dtype, expected.ref, FullRange(expected.ref));
      for (int round = 0; round < 5; ++round) {
        const auto a2 = MakeTensor(rng, dtype, sizes, TestLayout::kStrided);
        const auto b2 = MakeTensor(rng, dtype, sizes, TestLayout::kStrided);
        const auto got = MakeTensor(rng, dtype, sizes, PickLayout(rng, false));
        CopyElements(a.ref, a2.ref);
        CopyElements(b.ref, b2.ref);
        RunInPieces(rng, ElementCount(got.ref), [&](Range r) { Binary(o, a2.ref, b2.ref, alpha, dtype, got.ref, r); });
        ASSERT_EQ(BytesOf(got.ref), BytesOf(expected.ref)) << Name(dtype) << " op " << op;
      }
    }
  }
}

// Operands that repeat along one dim or another, or whose rows lie apart, give the bits of copies that lie as the
// result does: short rows are computed several at a time (TiledRows).
TEST(ElementwiseTest, ShortRowsAreTheSameInAnyPattern) {
  Rng rng(21);
  constexpr int64_t kPlanes = 3;
  for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kDouble, DType::kInt8, DType::kComplex64}) {
    for (const int64_t length : {3, 16, 33, 64, 256, 300}) {
      for (const int64_t rows : {3, 37}) {
        const std::vector<int64_t> sizes = {kPlanes, rows, length};
        // Which dims an operand has; a gap behind each row.
        for (const auto& [first, second, gap] :
             {std::tuple(7, 1, 0), {1, 7, 0}, {7, 3, 0}, {6, 1, 0}, {6, 5, 0}, {7, 7, 2}, {2, 7, 1}, {5, 6, 0}}) {
          const auto operand = [&](int has) {
            std::vector<int64_t> own;
            for (int d = 0; d < 3; ++d) own.push_back((has >> (2 - d) & 1) != 0 ? sizes[static_cast<size_t>(d)] : 1);
            std::vector<int64_t> wide = own;
            wide[2] += wide[2] > 1 ? gap : 0;
            auto tensor = RandomTensor(rng, dtype, wide, TestLayout::kContiguous);
            tensor.ref.sizes[2] = own[2];
            return tensor;
          };
          const auto whole = [&](const TensorRef& ref) {
            const auto tensor = MakeTensor(rng, dtype, sizes);
            for (int64_t i = 0; i < ElementCount(tensor.ref); ++i) {
              const int64_t at[] = {i / length / rows, i / length % rows, i % length};
              int64_t from = 0;
              for (int d = 0; d < 3; ++d) from += ref.sizes[d] == 1 ? 0 : at[d] * ref.strides[d];
              std::memcpy(AddressOf(tensor.ref, i), static_cast<char*>(ref.data) + from * ItemSize(dtype),
                          static_cast<size_t>(ItemSize(dtype)));
            }
            return tensor;
          };
          const auto a = operand(first);
          const auto b = operand(second);
          const auto whole_a = whole(a.ref);
          const auto whole_b = whole(b.ref);
          const auto expected = MakeTensor(rng, dtype, sizes);
          const auto got = MakeTensor(rng, dtype, sizes);
          for (const BinaryOp op : {BinaryOp::kSub, BinaryOp::kDiv}) {
            Binary(op, whole_a.ref, whole_b.ref, Scalar::Of(1.0), dtype, expected.ref, FullRange(expected.ref));
            RunInPieces(rng, ElementCount(got.ref),
                        [&](Range r) { Binary(op, a.ref, b.ref, Scalar::Of(1.0), dtype, got.ref, r); });
            for (int64_t i = 0; i < ElementCount(got.ref); ++i) {  // which NaN comes out of two is not said
              ASSERT_TRUE(Same(At(got.ref, i), At(expected.ref, i)))
                  << Name(dtype) << ", " << rows << " rows of " << length << ", " << first << " and " << second;
            }
          }
        }
      }
    }
  }
}

// Operands whose neighbours belong to neighbouring rows give the bits of copies that lie as the result does: blocks of
// rows are turned (TurnedRows).
TEST(ElementwiseTest, TurnedOperandsAreTheSame) {
  Rng rng(22);
  for (DType dtype : {DType::kFloat, DType::kInt32, DType::kBFloat16, DType::kDouble}) {
    for (const int64_t length : {7, 8, 64, 131}) {
      for (const int64_t rows : {5, 8, 16, 45}) {
        const std::vector<int64_t> sizes = {3, rows, length};
        const auto turned = [&](const TensorRef& from) {
          auto tensor = MakeTensor(rng, dtype, {3, length, rows});
          std::swap(tensor.ref.sizes[1], tensor.ref.sizes[2]);
          std::swap(tensor.ref.strides[1], tensor.ref.strides[2]);
          CopyElements(from, tensor.ref);
          return tensor;
        };
        const auto a = RandomTensor(rng, dtype, sizes, TestLayout::kContiguous);
        const auto b = RandomTensor(rng, dtype, sizes, TestLayout::kContiguous);
        const auto turned_a = turned(a.ref);
        const auto turned_b = turned(b.ref);
        const auto expected = MakeTensor(rng, dtype, sizes);
        Binary(BinaryOp::kSub, a.ref, b.ref, Scalar::Of(1.0), dtype, expected.ref, FullRange(expected.ref));
        for (const auto& [left, right] :
             {std::pair(&turned_a, &b), std::pair(&a, &turned_b), std::pair(&turned_a, &turned_b)}) {
          const auto got = MakeTensor(rng, dtype, sizes);
          RunInPieces(rng, ElementCount(got.ref), [&](Range r) {
            Binary(BinaryOp::kSub, left->ref, right->ref, Scalar::Of(1.0), dtype, got.ref, r);
          });
          for (int64_t i = 0; i < ElementCount(got.ref); ++i) {  // which NaN comes out of two is not said
            ASSERT_TRUE(Same(At(got.ref, i), At(expected.ref, i))) << Name(dtype) << ", " << rows << " by " << length;
          }
        }
      }
    }
  }
}

TEST(ElementwiseTest, InPlaceEqualsOutOfPlace) {
  Rng rng(16);
  for (DType dtype : kAllDTypes) {
    for (auto layout : {TestLayout::kContiguous, TestLayout::kStrided}) {
      const auto a = RandomTensor(rng, dtype, {11, 77}, layout);
      const auto b = RandomTensor(rng, dtype, {77}, TestLayout::kContiguous);
      const auto out = MakeTensor(rng, dtype, {11, 77});
      Binary(BinaryOp::kAdd, a.ref, b.ref, Scalar::Of(1.0), dtype, out.ref, FullRange(out.ref));
      Binary(BinaryOp::kAdd, a.ref, b.ref, Scalar::Of(1.0), dtype, a.ref, FullRange(a.ref));
      for (int64_t i = 0; i < ElementCount(out.ref); ++i) {  // which NaN comes out of two is not said
        ASSERT_TRUE(Same(At(a.ref, i), At(out.ref, i))) << Name(dtype) << " element " << i;
      }
    }
  }
}

TEST(ElementwiseTest, IntegerCornersAreDefined) {
  struct Case {
    BinaryOp op;
    int32_t a, b, expected;
  };
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const Case kCases[] = {{BinaryOp::kAdd, kMax, 1, kMin},  {BinaryOp::kSub, kMin, 1, kMax},
                         {BinaryOp::kMul, kMin, -1, kMin}, {BinaryOp::kDiv, kMin, -1, kMin},
                         {BinaryOp::kDiv, 7, 0, 0},        {BinaryOp::kDiv, -7, 2, -3}};
  for (Case c : kCases) {
    int32_t got = 0;
    const TensorRef a = MakeContiguous(&c.a, DType::kInt32, {});
    const TensorRef b = MakeContiguous(&c.b, DType::kInt32, {});
    const TensorRef out = MakeContiguous(&got, DType::kInt32, {});
    Binary(c.op, a, b, Scalar::Of(1.0), DType::kInt32, out, {0, 1});
    EXPECT_EQ(got, c.expected);
  }
}

// ---- Functions that are looked up ----

// Bits of all sorts, NaN and infinity among them.
void FillBits(Rng& rng, std::vector<char>& bytes) {
  for (char& byte : bytes) byte = static_cast<char>(Pick(rng, 0, 255));
}

// In one piece they do what Run does; cut at multiples of 32 elements they give the same bits, in place or not.
TEST(ElementwiseTest, BinaryRowsAreTheSameHoweverTheyAreCut) {
  Rng rng(21);
  int singles = 0;
  for (int round = 0; round < 1200; ++round) {
    const DType dtype = kAllDTypes[static_cast<size_t>(round) % kAllDTypes.size()];
    const auto op = static_cast<BinaryOp>(Pick(rng, 0, 3));
    const int64_t n = Pick(rng, 1, round % 3 == 0 ? 9 : 600);
    const bool in_place = Pick(rng, 0, 1) != 0;
    const Scalar alpha = Scalar::Of(int64_t{3});
    const ElementCall call(FnOf(op, Pick(rng, 0, 1) != 0), dtype, {&alpha, 1});
    if (call.row.is_wide) continue;
    const bool b_is_single = Pick(rng, 0, 2) == 0;
    singles += b_is_single ? 1 : 0;
    const RowFn function = b_is_single ? call.row.single : call.row.function;
    const auto bytes = static_cast<size_t>(n * ItemSize(dtype));
    std::vector<char> a(bytes), b(std::max<size_t>(16, bytes)), whole(bytes), cut(bytes), plain(bytes);
    FillBits(rng, a);
    FillBits(rng, b);
    if (dtype == DType::kBool) {
      for (auto* bytes_of : {&a, &b}) {
        for (char& byte : *bytes_of) byte = static_cast<char>(byte & 1);
      }
    }
    const auto args_for = [&](std::vector<char>& out) {
      if (in_place) out = a;
      return RowArgs{out.data(), {in_place ? out.data() : a.data(), b.data()}, call.numbers};
    };
    const RowArgs once = args_for(whole);
    function(&once, 0, n);
    const RowArgs pieces = args_for(cut);
    for (int64_t at = 0; at < n;) {
      const int64_t end = std::min(n, at + 32 * Pick(rng, 1, 4));
      function(&pieces, at, end);
      at = end;
    }
    ASSERT_TRUE(whole == cut) << Name(dtype) << " op " << static_cast<int>(op) << " n " << n;
    if (in_place) plain = a;
    const TensorRef refs[] = {MakeContiguous(plain.data(), dtype, {n}),
                              MakeContiguous(in_place ? plain.data() : a.data(), dtype, {n}),
                              MakeContiguous(b.data(), b_is_single ? call.row.math : dtype, {b_is_single ? 1 : n})};
    ElementCall with_scalar = call;
    with_scalar.has_scalar = b_is_single;
    with_scalar.Run(refs, {0, n});
    for (int64_t i = 0; i < n; ++i) {  // which NaN comes out of two is not said
      const Num x = Read(dtype, whole.data() + i * ItemSize(dtype));
      const Num y = Read(dtype, plain.data() + i * ItemSize(dtype));
      ASSERT_TRUE(Same(x, y)) << Name(dtype) << " op " << static_cast<int>(op) << " element " << i;
    }
  }
  EXPECT_GT(singles, 50);
}

TEST(ElementwiseTest, UnaryRowsAreTheSameHoweverTheyAreCut) {
  Rng rng(22);
  for (int round = 0; round < 1200; ++round) {
    const DType dtype = kAllDTypes[static_cast<size_t>(round) % kAllDTypes.size()];
    const auto op = static_cast<UnaryOp>(Pick(rng, 0, 3));
    const int64_t n = Pick(rng, 1, round % 3 == 0 ? 9 : 600);
    const ElementCall call(FnOf(op), dtype);
    if (call.row.function == nullptr || call.row.is_wide || call.row.out != dtype) continue;
    const auto bytes = static_cast<size_t>(n * ItemSize(dtype));
    std::vector<char> a(bytes), whole(bytes), plain(bytes);
    FillBits(rng, a);
    std::vector<char> cut = a;  // in place
    const RowArgs once{whole.data(), {a.data()}, nullptr};
    call.row.function(&once, 0, n);
    const RowArgs pieces{cut.data(), {cut.data()}, nullptr};
    for (int64_t at = 0; at < n;) {
      const int64_t end = std::min(n, at + 32 * Pick(rng, 1, 4));
      call.row.function(&pieces, at, end);
      at = end;
    }
    ASSERT_TRUE(whole == cut) << Name(dtype) << " op " << static_cast<int>(op) << " n " << n;
    Unary(op, MakeContiguous(a.data(), dtype, {n}), dtype, MakeContiguous(plain.data(), dtype, {n}), {0, n});
    ASSERT_TRUE(whole == plain) << Name(dtype) << " op " << static_cast<int>(op) << " n " << n;
  }
}

// A scalar keeps the precision of the arithmetic: it is not rounded to the type of the tensor.
TEST(ElementwiseTest, ScalarsOfSixteenBitTensorsAreFloat32) {
  BFloat16 a(3.0f);
  BFloat16 out;
  ElementCall call(kMulFn, DType::kBFloat16);
  call.has_scalar = true;
  Scalar b = call.ToMath(Scalar::Of(1.0 + 1.0 / 256));
  const TensorRef refs[] = {MakeContiguous(&out, DType::kBFloat16, {1}), MakeContiguous(&a, DType::kBFloat16, {1}),
                            MakeContiguous(b.bytes, b.dtype, {})};
  call.Run(refs, {0, 1});
  EXPECT_EQ(static_cast<float>(out), 3.015625f);  // 3.01171875 rounded; as bfloat16 the factor would be 1
}

}  // namespace
}  // namespace reprise::kernels
