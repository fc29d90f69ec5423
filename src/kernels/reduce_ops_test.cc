// SPDX-License-Identifier: Apache-2.0
//
// Every reduction against its formula, with lengths around the lanes, the vectors and the blocks.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/reduce.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using namespace testing;

constexpr int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 511, 512, 513, 600, 1027};
constexpr int64_t kColumns = 19;

long double Formula(ReduceOp op, const std::vector<float>& x) {
  const auto n = static_cast<long double>(x.size());
  const auto fold = [&](long double begin, const std::function<long double(long double, long double)>& of) {
    for (float value : x) begin = of(begin, value);
    return begin;
  };
  const auto sum = [&](const std::function<long double(long double)>& term) {
    return fold(0, [&](long double a, long double value) { return a + term(value); });
  };
  const auto largest = [](long double a, long double b) { return std::isnan(b) || b > a ? b : a; };
  const auto smallest = [](long double a, long double b) { return std::isnan(b) || b < a ? b : a; };
  switch (op) {
    case ReduceOp::kSum: return sum([](long double v) { return v; });
    case ReduceOp::kNanSum: return sum([](long double v) { return std::isnan(v) ? 0 : v; });
    case ReduceOp::kMean: return sum([](long double v) { return v; }) / n;
    case ReduceOp::kProd: return fold(1, std::multiplies<long double>());
    case ReduceOp::kMax: return fold(-INFINITY, largest);
    case ReduceOp::kMin: return fold(INFINITY, smallest);
    case ReduceOp::kNormZero: return sum([](long double v) { return v != 0 ? 1 : 0; });
    case ReduceOp::kNormOne: return sum([](long double v) { return std::fabs(v); });
    case ReduceOp::kNormTwo: return std::sqrt(sum([](long double v) { return v * v; }));
    case ReduceOp::kNormInf: return fold(0, [&](long double a, long double v) { return largest(a, std::fabs(v)); });
    case ReduceOp::kNormMinusInf:
      return fold(INFINITY, [&](long double a, long double v) { return smallest(a, std::fabs(v)); });
    case ReduceOp::kLogSumExp: return std::log(sum([](long double v) { return std::exp(v); }));
    case ReduceOp::kVar: {
      const long double mean = sum([](long double v) { return v; }) / n;
      return sum([&](long double v) { return (v - mean) * (v - mean); }) / n;
    }
    default: return NAN;
  }
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum,     ReduceOp::kNanSum,  ReduceOp::kMean,         ReduceOp::kProd,
                             ReduceOp::kMax,     ReduceOp::kMin,     ReduceOp::kNormZero,     ReduceOp::kNormOne,
                             ReduceOp::kNormTwo, ReduceOp::kNormInf, ReduceOp::kNormMinusInf, ReduceOp::kLogSumExp,
                             ReduceOp::kVar};

std::vector<float> Reduced(ReduceOp op, const std::vector<float>& x, int64_t rows, int64_t columns, uint32_t mask) {
  std::vector<float> input = x;
  std::vector<float> out(static_cast<size_t>(mask == 1 ? columns : rows));
  const TensorRef self = MakeContiguous(input.data(), DType::kFloat, {rows, columns});
  const TensorRef result = MakeContiguous(out.data(), DType::kFloat, {std::ssize(out)});
  Reduce({op, DType::kFloat}, self, mask, result, nullptr, FullRange(result));
  return out;
}

// `make(i)`: element i of each row or column.
void CheckAll(const std::function<float(int64_t)>& make) {
  for (int64_t n : kLengths) {
    std::vector<float> line;
    for (int64_t i = 0; i < n; ++i) line.push_back(make(i));
    std::vector<float> rows, columns;  // kColumns times the same
    for (int64_t c = 0; c < kColumns; ++c) rows.insert(rows.end(), line.begin(), line.end());
    for (float value : line) columns.insert(columns.end(), kColumns, value);
    for (ReduceOp op : kOps) {
      const long double expected = Formula(op, line);
      for (bool by_rows : {true, false}) {
        const auto got = by_rows ? Reduced(op, rows, kColumns, n, 2) : Reduced(op, columns, n, kColumns, 1);
        for (float value : got) {
          // No sum of these numbers cancels; products of many may overflow.
          const bool is_exact =
              op == ReduceOp::kMax || op == ReduceOp::kMin || std::isinf(static_cast<float>(expected));
          const long double allowed =
              is_exact ? 0 : (op == ReduceOp::kProd ? 1e-4L : 1e-5L) * std::fabs(expected) + 1e-6L;
          const long double error = value == static_cast<float>(expected) ? 0 : std::fabs(value - expected);
          ASSERT_LE(error, allowed) << "op " << static_cast<int>(op) << ", length " << n
                                    << (by_rows ? ", rows" : ", columns");
        }
      }
    }
  }
}

TEST(ReduceOpsTest, PositiveNumbersFarFromZero) {
  CheckAll([](int64_t i) { return 3.0f + static_cast<float>(i % 7) / 8; });
}

TEST(ReduceOpsTest, NegativeNumbers) {
  CheckAll([](int64_t i) { return -1.0f - static_cast<float>(i * 5 % 11) / 64; });
}

// The last element decides.
TEST(ReduceOpsTest, TheLastElementIsTheLargestOrTheSmallest) {
  for (int64_t n : kLengths) {
    std::vector<float> x(static_cast<size_t>(n), -2.0f);
    x.back() = -1.0f;
    EXPECT_EQ(Reduced(ReduceOp::kMax, x, 1, n, 2)[0], -1.0f) << n;
    x.assign(static_cast<size_t>(n), 2.0f);
    x.back() = 1.0f;
    EXPECT_EQ(Reduced(ReduceOp::kMin, x, 1, n, 2)[0], 1.0f) << n;
  }
}

// Wherever it stands, alone and with larger and smaller numbers around it.
TEST(ReduceOpsTest, OneNanIsTheLargestAndTheSmallest) {
  for (int64_t n : kLengths) {
    for (int64_t at = 0; at<n; at += n> 70 ? 13 : 1) {
      std::vector<float> x(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 5) - 2;
      x[static_cast<size_t>(at)] = NAN;
      for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
        EXPECT_TRUE(std::isnan(Reduced(op, x, 1, n, 2)[0])) << static_cast<int>(op) << ": " << at << " of " << n;
        EXPECT_TRUE(std::isnan(Reduced(op, x, n, 1, 1)[0])) << static_cast<int>(op) << ": " << at << " of " << n;
      }
    }
  }
}

}  // namespace
}  // namespace reprise::kernels
