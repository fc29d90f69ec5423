// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <variant>
#include <vector>

#include "kernels/simd/activation_rows.h"
#include "kernels/simd/math_rows.h"
#include "kernels/simd/test_targets.h"

namespace reprise::kernels::simd {
namespace {

using testing::ForEachTarget;

ElementRow Find(MathRow row) { return FindMathRow(row, DType::kFloat); }
ElementRow Find(ActivationRow row) { return FindActivationRow(row, DType::kFloat); }

struct Function {
  const char* name;
  std::variant<MathRow, ActivationRow> row;
  double (*exact)(double);
  double bound;  // in units of the spacing of float32
};

#define REPRISE_STD(function) [](double x) { return std::function(x); }
const Function kFunctions[] = {
    {"acos", MathRow::kAcos, REPRISE_STD(acos), 2.2},
    {"asin", MathRow::kAsin, REPRISE_STD(asin), 2.2},
    {"atan", MathRow::kAtan, REPRISE_STD(atan), 2.2},
    {"cos", MathRow::kCos, REPRISE_STD(cos), 2.2},
    {"cosh", MathRow::kCosh, REPRISE_STD(cosh), 2.2},
    {"elu", ActivationRow::kElu, [](double x) { return x > 0 ? x : std::expm1(x); }, 2.2},
    {"erf", MathRow::kErf, REPRISE_STD(erf), 2.2},
    {"erfc", MathRow::kErfc, REPRISE_STD(erfc), 5.5},
    {"exp", MathRow::kExp, REPRISE_STD(exp), 2.2},
    {"exp2", MathRow::kExp2, REPRISE_STD(exp2), 2.2},
    {"expm1", MathRow::kExpm1, REPRISE_STD(expm1), 2.2},
    {"log", MathRow::kLog, REPRISE_STD(log), 2.2},
    {"log10", MathRow::kLog10, REPRISE_STD(log10), 2.2},
    {"log1p", MathRow::kLog1p, REPRISE_STD(log1p), 2.2},
    {"log2", MathRow::kLog2, REPRISE_STD(log2), 2.2},
    {"round", MathRow::kRound, REPRISE_STD(nearbyint), 0},
    {"floor", MathRow::kFloor, REPRISE_STD(floor), 0},
    {"ceil", MathRow::kCeil, REPRISE_STD(ceil), 0},
    {"trunc", MathRow::kTrunc, REPRISE_STD(trunc), 0},
    {"rsqrt", MathRow::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.6},
    {"sigmoid", ActivationRow::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5},
    {"silu", ActivationRow::kSilu, [](double x) { return x / (1 + std::exp(-x)); }, 2.5},
    {"sin", MathRow::kSin, REPRISE_STD(sin), 2.2},
    {"sinh", MathRow::kSinh, REPRISE_STD(sinh), 2.2},
    {"sqrt", MathRow::kSqrt, REPRISE_STD(sqrt), 0.51},
    {"tan", MathRow::kTan, REPRISE_STD(tan), 3.5},
    {"tanh", MathRow::kTanh, REPRISE_STD(tanh), 2.2},
};
#undef REPRISE_STD

// Numbers of every sign and exponent, integers, multiples of pi / 2, and what is special.
std::vector<float> Arguments() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 100003) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  // Beside each other where exponentials stop being normal numbers.
  for (int i = -999; i < 1000; ++i) x.push_back((i % 2 == 0 ? 85.0f : -85.0f) + static_cast<float>(i) * 0.005f);
  for (int i = -2000; i < 2000; ++i) {
    x.push_back(static_cast<float>(i) * 0.0101f);
    x.push_back(static_cast<float>(i) * 0.5f);
    x.push_back(static_cast<float>(i * 1.5707963267948966));
  }
  for (float special : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN}) x.push_back(special);
  return x;
}

TEST(MathTest, ErrorsStayWithinTheirBoundsOnEveryInstructionSet) {
  const std::vector<float> x = Arguments();
  for (const Function& function : kFunctions) {
    std::vector<float> first_of[2];  // without and with fused multiply-add
    ForEachTarget([&](int64_t target) {
      std::vector<float>& first = first_of[testing::HasFusedMultiplyAdd(target)];
      std::vector<float> y(x.size());
      RowArgs args{};
      args.out = y.data();
      args.in[0] = x.data();
      constexpr float kOnes[] = {1, 1, 1};  // of elu
      args.numbers = kOnes;
      const ElementRow row = std::visit([](auto which) { return Find(which); }, function.row);
      row.function(&args, 0, static_cast<int64_t>(x.size()));
      if (!first.empty()) {
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_TRUE(std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(first[i]) || std::isnan(y[i]))
              << function.name << "(" << x[i] << ") on target " << target << ": " << y[i] << ", not " << first[i];
        }
        return;
      }
      first = y;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = function.exact(x[i]);
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(y[i])) << function.name << "(" << x[i] << ") = " << y[i];
          continue;
        }
        const auto rounded = static_cast<float>(exact);
        ASSERT_EQ(std::signbit(y[i]), std::signbit(rounded)) << function.name << "(" << x[i] << ") = " << y[i];
        if (std::isinf(rounded) || std::isinf(y[i])) {
          // Next to the largest number either one will do.
          ASSERT_TRUE(y[i] == rounded || std::abs(exact) > 0x1.fffff0p127 * (std::isinf(y[i]) ? 1 : 0.5))
              << function.name << "(" << x[i] << ") = " << y[i] << ", not " << exact;
          continue;
        }
        int exponent = 0;
        std::frexp(exact, &exponent);
        const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
        ASSERT_LE(std::abs(y[i] - exact) / unit, function.bound)
            << function.name << "(" << x[i] << ") = " << y[i] << ", not " << exact;
      }
    });
  }
}

}  // namespace
}  // namespace reprise::kernels::simd
