// SPDX-License-Identifier: Apache-2.0
//
// What a draw is: the words it is made of, the distribution, and that nothing but seed, position and number of the
// element decides. Seeds are fixed, so a statistic is one number; its bound is one that a sound generator passes with
// all but one in some ten thousand seeds.
#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr uint64_t kSeed = 67280421310721;

DrawCall Call(Distribution distribution, DType type, double a = 0, double b = 0) {
  DrawCall call;
  call.distribution = distribution;
  call.type = type;
  call.a = a;
  call.b = b;
  return call;
}

template <class T>
std::vector<T> Drawn(DrawCall call, int64_t count, uint64_t position = 0, uint64_t seed = kSeed) {
  std::vector<T> out(static_cast<size_t>(count));
  call.type = DTypeOf<T>();
  call.count = count;
  call.out = out.data();
  EXPECT_EQ(WhyNot(call), "");
  EXPECT_EQ(Draw(call, seed, position, {0, count}), -1);
  return out;
}

template <class T>
std::vector<double> AsDoubles(const std::vector<T>& numbers) {
  std::vector<double> out(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) out[i] = static_cast<double>(static_cast<MathType<T>>(numbers[i]));
  return out;
}

double Mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double Variance(const std::vector<double>& x) {
  const double mean = Mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size() - 1);
}

// Kolmogorov and Smirnov: sqrt(n) times the greatest distance to the distribution function.
template <class Cdf>
double Distance(std::vector<double> x, Cdf cdf) {
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = cdf(x[i]);
    most = std::max(
        {most, std::abs(expected - static_cast<double>(i) / n), std::abs(expected - (static_cast<double>(i) + 1) / n)});
  }
  return most * std::sqrt(n);
}
constexpr double kMostDistance = 2.23;  // one in 10'000

// By how many standard deviations the chi-square statistic of these counts exceeds its mean.
double ChiSquareExcess(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}
double ChiSquareExcess(const std::vector<double>& counts) {
  const double each = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  return ChiSquareExcess(counts, std::vector<double>(counts.size(), each));
}
constexpr double kMostExcess = 5.0;

bool SameBytes(const void* a, const void* b, size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The vectors that the authors of the generator publish.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Which word of which block an element is made of; files that hold states rely on it.
TEST(Philox, ElementsComeFromTheWordsAsDocumented) {
  constexpr uint64_t kPosition = 0x500000007;
  const auto words = [](uint64_t block) {
    return Philox4x32({0x7, 0x5, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)}, {42, 1});
  };
  constexpr uint64_t kKey = (uint64_t{1} << 32) + 42;
  const auto u = Drawn<float>(Call(Distribution::kUniform, DType::kFloat, 0, 1), 50, kPosition, kKey);
  for (size_t i = 0; i < u.size(); ++i) ASSERT_EQ(u[i], static_cast<float>(words(i / 4)[i % 4] >> 8) * 0x1p-24f);
  const auto d = Drawn<double>(Call(Distribution::kUniform, DType::kDouble, 0, 1), 50, kPosition, kKey);
  for (size_t i = 0; i < d.size(); ++i) {
    const auto w = words(i / 2);
    const uint64_t bits = uint64_t{w[i % 2 * 2 + 1]} << 32 | w[i % 2 * 2];
    ASSERT_EQ(d[i], static_cast<double>(bits >> 11) * 0x1p-53);
  }
  DrawCall whole = Call(Distribution::kRandint, DType::kUInt64);
  whole.low = 0;
  whole.range = 0;
  const auto r = Drawn<uint64_t>(whole, 20, kPosition, kKey);
  for (size_t i = 0; i < r.size(); ++i) {
    const auto w = words(i);
    ASSERT_EQ(r[i], uint64_t{w[3]} << 32 | w[2]);
  }
}

TEST(Uniform, IsUniform) {
  constexpr int64_t kCount = 1 << 18;
  const auto check = [](const std::vector<double>& x, double from, double to, double grid) {
    const double width = to - from;
    EXPECT_GE(*std::min_element(x.begin(), x.end()), from);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), to);
    EXPECT_NEAR(Mean(x), (from + to) / 2, 4 * width / std::sqrt(12.0 * kCount) + grid);
    EXPECT_NEAR(Variance(x), width * width / 12, 4 * width * width / 12 * std::sqrt(0.8 / kCount) + grid);
  };
  const DrawCall call = Call(Distribution::kUniform, DType::kFloat, -2.0, 3.0);
  const auto f = AsDoubles(Drawn<float>(call, kCount));
  check(f, -2, 3, 0);
  EXPECT_LT(Distance(f, [](double v) { return (v + 2) / 5; }), kMostDistance);
  const auto d = AsDoubles(Drawn<double>(call, kCount));
  check(d, -2, 3, 0);
  EXPECT_LT(Distance(d, [](double v) { return (v + 2) / 5; }), kMostDistance);
  check(AsDoubles(Drawn<Half>(call, kCount)), -2, 3, 1e-4);
  check(AsDoubles(Drawn<BFloat16>(call, kCount)), -2, 3, 1e-3);
}

// [from, to) however coarse the type is.
TEST(Uniform, NeverReachesTheUpperEnd) {
  constexpr int64_t kCount = 1 << 16;
  const auto check = [&](auto tag, double from, double to) {
    using T = decltype(tag);
    const auto x = AsDoubles(Drawn<T>(Call(Distribution::kUniform, DType::kFloat, from, to), kCount));
    EXPECT_GE(*std::min_element(x.begin(), x.end()), from);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), to);
  };
  for (const auto& [from, to] : {std::pair{0.0, 1.0}, {-1.0, 0.0}, {100.0, 101.0}, {-3.0, -2.0}}) {
    check(float{}, from, to);
    check(double{}, from, to);
    check(Half{}, from, to);
    check(BFloat16{}, from, to);
  }
  const float above = std::nextafter(1.0f, 2.0f);  // two numbers to choose from
  for (const float v : Drawn<float>(Call(Distribution::kUniform, DType::kFloat, 1.0, above), 1000)) EXPECT_EQ(v, 1.0f);
  for (const float v : Drawn<float>(Call(Distribution::kUniform, DType::kFloat, 7.0, 7.0), 100)) EXPECT_EQ(v, 7.0f);
}

TEST(Normal, IsNormal) {
  constexpr int64_t kCount = 1 << 18;
  const auto check = [](const std::vector<double>& z, double mean, double deviation) {
    EXPECT_NEAR(Mean(z), mean, 4 * deviation / std::sqrt(kCount));
    EXPECT_NEAR(Variance(z), deviation * deviation, 4 * deviation * deviation * std::sqrt(2.0 / kCount));
    double third = 0, fourth = 0;
    for (const double v : z) {
      const double s = (v - mean) / deviation;
      third += s * s * s / kCount;
      fourth += s * s * s * s / kCount;
    }
    EXPECT_NEAR(third, 0, 4 * std::sqrt(15.0 / kCount));
    EXPECT_NEAR(fourth, 3, 4 * std::sqrt(96.0 / kCount));
  };
  const DrawCall call = Call(Distribution::kNormal, DType::kFloat, 1.5, 0.5);
  const auto cdf = [](double v) { return NormalCdf((v - 1.5) / 0.5); };
  const auto f = AsDoubles(Drawn<float>(call, kCount));
  check(f, 1.5, 0.5);
  EXPECT_LT(Distance(f, cdf), kMostDistance);
  const auto d = AsDoubles(Drawn<double>(call, kCount));
  check(d, 1.5, 0.5);
  EXPECT_LT(Distance(d, cdf), kMostDistance);
  check(AsDoubles(Drawn<Half>(call, kCount)), 1.5, 0.5);
  check(AsDoubles(Drawn<BFloat16>(call, kCount)), 1.5, 0.5);
  // The two numbers of a pair, and neighbouring pairs, do not depend on each other.
  for (const size_t lag : {1, 2, 3, 4}) {
    double sum = 0;
    for (size_t i = 0; i + lag < f.size(); ++i) sum += (f[i] - 1.5) * (f[i + lag] - 1.5) / 0.25;
    EXPECT_NEAR(sum / kCount, 0, 4 / std::sqrt(kCount)) << "lag " << lag;
  }
}

TEST(Continuous, OthersHaveTheirDistributions) {
  constexpr int64_t kCount = 1 << 17;
  const auto exponential = AsDoubles(Drawn<float>(Call(Distribution::kExponential, DType::kFloat, 2.0), kCount));
  EXPECT_GT(*std::min_element(exponential.begin(), exponential.end()), 0);
  EXPECT_NEAR(Mean(exponential), 0.5, 4 * 0.5 / std::sqrt(kCount));
  EXPECT_NEAR(Variance(exponential), 0.25, 4 * 0.25 * std::sqrt(8.0 / kCount));
  const auto exponential_cdf = [](double v) { return -std::expm1(-2 * v); };
  EXPECT_LT(Distance(exponential, exponential_cdf), kMostDistance);
  EXPECT_LT(
      Distance(AsDoubles(Drawn<double>(Call(Distribution::kExponential, DType::kFloat, 2.0), kCount)), exponential_cdf),
      kMostDistance);
  EXPECT_NEAR(Mean(AsDoubles(Drawn<BFloat16>(Call(Distribution::kExponential, DType::kFloat, 2.0), kCount))), 0.5,
              0.01);

  const auto cauchy_cdf = [](double v) { return 0.5 + std::atan((v - 1) / 3) / std::acos(-1.0); };
  EXPECT_LT(Distance(AsDoubles(Drawn<float>(Call(Distribution::kCauchy, DType::kFloat, 1, 3), kCount)), cauchy_cdf),
            kMostDistance);
  EXPECT_LT(Distance(AsDoubles(Drawn<double>(Call(Distribution::kCauchy, DType::kFloat, 1, 3), kCount)), cauchy_cdf),
            kMostDistance);

  const auto log_cdf = [](double v) { return NormalCdf((std::log(v) - 0.5) / 0.25); };
  EXPECT_LT(
      Distance(AsDoubles(Drawn<float>(Call(Distribution::kLogNormal, DType::kFloat, 0.5, 0.25), kCount)), log_cdf),
      kMostDistance);
  EXPECT_LT(
      Distance(AsDoubles(Drawn<double>(Call(Distribution::kLogNormal, DType::kFloat, 0.5, 0.25), kCount)), log_cdf),
      kMostDistance);

  for (const bool wide : {false, true}) {
    const DrawCall call = Call(Distribution::kGeometric, DType::kFloat, 0.3);
    const auto trials = wide ? AsDoubles(Drawn<double>(call, kCount)) : AsDoubles(Drawn<float>(call, kCount));
    std::vector<double> counts(12), expected(12);
    for (const double t : trials) ++counts[static_cast<size_t>(std::min(t, 12.0)) - 1];
    for (size_t k = 0; k < 11; ++k) expected[k] = kCount * 0.3 * std::pow(0.7, static_cast<double>(k));
    expected[11] = kCount * std::pow(0.7, 11.0);
    EXPECT_LT(ChiSquareExcess(counts, expected), kMostExcess);
  }
}

TEST(Bernoulli, HasItsProbability) {
  constexpr int64_t kCount = 1 << 18;
  for (const double p : {0.0, 1e-4, 0.25, 0.5, 0.9, 1.0}) {
    const double bound = 4 * std::sqrt(p * (1 - p) / kCount);
    EXPECT_NEAR(Mean(AsDoubles(Drawn<float>(Call(Distribution::kBernoulli, DType::kFloat, p), kCount))), p, bound);
    EXPECT_NEAR(Mean(AsDoubles(Drawn<int8_t>(Call(Distribution::kBernoulli, DType::kFloat, p), kCount))), p, bound);
    EXPECT_NEAR(Mean(AsDoubles(Drawn<int64_t>(Call(Distribution::kBernoulli, DType::kFloat, p), kCount))), p, bound);
    double sum = 0;
    for (const Bool v : Drawn<Bool>(Call(Distribution::kBernoulli, DType::kFloat, p), kCount)) {
      ASSERT_LE(v.byte, 1);
      sum += v.byte;
    }
    EXPECT_NEAR(sum / kCount, p, bound);
  }
}

TEST(Bernoulli, TakesAProbabilityForEachElement) {
  constexpr int64_t kCount = 1 << 18;
  std::vector<float> p(kCount);
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i % 5) * 0.25f;
  DrawCall call = Call(Distribution::kBernoulliEach, DType::kFloat);
  call.in = p.data();
  const auto drawn = Drawn<uint8_t>(call, kCount);
  for (size_t k = 0; k < 5; ++k) {
    double sum = 0;
    for (size_t i = k; i < drawn.size(); i += 5) sum += drawn[i];
    const double wanted = static_cast<double>(k) * 0.25;
    EXPECT_NEAR(sum / (kCount / 5.0), wanted, 4 * std::sqrt(wanted * (1 - wanted) * 5 / kCount) + 1e-4);
  }
  // Like the draw with one probability.
  std::fill(p.begin(), p.end(), 0.25f);
  EXPECT_EQ(Drawn<uint8_t>(call, kCount), Drawn<uint8_t>(Call(Distribution::kBernoulli, DType::kFloat, 0.25), kCount));
  std::vector<BFloat16> narrow(kCount, BFloat16(0.25f));
  call.in = narrow.data();
  call.in_type = DType::kBFloat16;
  EXPECT_EQ(Drawn<uint8_t>(call, kCount), Drawn<uint8_t>(Call(Distribution::kBernoulli, DType::kFloat, 0.25), kCount));
  // What is no probability is told.
  for (const float bad : {-0.1f, 1.5f, NAN}) {
    std::fill(p.begin(), p.end(), 0.5f);
    p[777] = bad;
    std::vector<uint8_t> out(kCount);
    call.in = p.data();
    call.in_type = DType::kFloat;
    call.type = DType::kUInt8;
    call.out = out.data();
    call.count = kCount;
    EXPECT_EQ(Draw(call, kSeed, 0, {0, kCount}), 777);
  }
}

TEST(Randint, IsUniformInSmallAndLargeRanges) {
  constexpr int64_t kCount = 1 << 18;
  DrawCall call = Call(Distribution::kRandint, DType::kInt64);
  call.low = -5;
  call.range = 17;
  std::vector<double> counts(17);
  for (const int64_t v : Drawn<int64_t>(call, kCount)) {
    ASSERT_TRUE(v >= -5 && v < 12) << v;
    ++counts[static_cast<size_t>(v + 5)];
  }
  EXPECT_LT(ChiSquareExcess(counts), kMostExcess);
  for (const uint64_t range : {(uint64_t{1} << 32) - 5, (uint64_t{1} << 33) + 12345, uint64_t{3} << 62, uint64_t{0}}) {
    call.low = range == 0 || range >= uint64_t{1} << 63 ? INT64_MIN : -1000;
    call.range = range;
    std::vector<double> bins(64);
    for (const int64_t v : Drawn<int64_t>(call, kCount)) {
      const uint64_t offset = static_cast<uint64_t>(v) - static_cast<uint64_t>(call.low);
      if (range != 0) {
        ASSERT_LT(offset, range);
      }
      const double full = range == 0 ? 0x1p64 : static_cast<double>(range);
      ++bins[std::min<size_t>(63, static_cast<size_t>(static_cast<double>(offset) / full * 64))];
    }
    EXPECT_LT(ChiSquareExcess(bins), kMostExcess) << range;
  }
}

TEST(Randint, FillsEveryTypeThatHoldsTheNumbers) {
  constexpr int64_t kCount = 4096;
  const auto check = [](auto tag, int64_t low, uint64_t range) {
    using T = decltype(tag);
    DrawCall call = Call(Distribution::kRandint, DTypeOf<T>());
    call.low = low;
    call.range = range;
    double least = 1e30, most = -1e30;
    for (const T v : Drawn<T>(call, kCount)) {
      double number;
      if constexpr (std::is_same_v<T, Bool>) {
        number = v.byte;
      } else {
        number = static_cast<double>(static_cast<MathType<T>>(v));
      }
      least = std::min(least, number);
      most = std::max(most, number);
      ASSERT_EQ(number, std::floor(number));
    }
    EXPECT_EQ(least, static_cast<double>(low)) << Name(DTypeOf<T>());
    EXPECT_EQ(most, static_cast<double>(low) + static_cast<double>(range) - 1) << Name(DTypeOf<T>());
  };
  check(int8_t{}, -128, 256);
  check(uint8_t{}, 0, 256);
  check(int16_t{}, -100, 200);
  check(uint16_t{}, 65436, 100);
  check(int32_t{}, INT32_MIN, 100);
  check(uint32_t{}, int64_t{UINT32_MAX} - 99, 100);
  check(int64_t{}, INT64_MIN, 100);
  check(uint64_t{}, 0, 100);
  check(Bool{}, 0, 2);
  check(float{}, -100, 200);
  check(double{}, -100, 200);
  check(Half{}, -2048, 100);
  check(BFloat16{}, -256, 500);
}

TEST(Dropout, ScalesWhatItKeepsAndTellsTheRest) {
  constexpr int64_t kCount = 1 << 17;
  const auto check = [&](auto tag, double p) {
    using T = decltype(tag);
    std::vector<T> in(kCount), out(kCount);
    for (size_t i = 0; i < in.size(); ++i) in[i] = CastValue<T>(static_cast<float>(i % 100) + 1.0f);
    std::vector<uint8_t> mask(kCount, 7);
    DrawCall call = Call(Distribution::kDropout, DTypeOf<T>(), p);
    call.count = kCount;
    call.in = in.data();
    call.out = out.data();
    call.mask = mask.data();
    ASSERT_EQ(WhyNot(call), "");
    ASSERT_EQ(Draw(call, kSeed, 3, {0, kCount}), -1);
    double kept = 0;
    const auto scale = p < 1 ? static_cast<MathType<T>>(1 / (1 - p)) : 0;
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_LE(mask[i], 1);
      kept += mask[i];
      const T expected = mask[i] != 0 ? CastValue<T>(static_cast<MathType<T>>(in[i]) * scale) : T{};
      ASSERT_EQ(static_cast<MathType<T>>(out[i]), static_cast<MathType<T>>(expected));
    }
    EXPECT_NEAR(kept / kCount, 1 - p, 4 * std::sqrt(p * (1 - p) / kCount));
    // In place, and without a mask.
    call.out = in.data();
    call.mask = nullptr;
    ASSERT_EQ(Draw(call, kSeed, 3, {0, kCount}), -1);
    EXPECT_TRUE(SameBytes(in.data(), out.data(), kCount * sizeof(T)));
  };
  for (const double p : {0.0, 0.1, 0.5, 1.0}) {
    check(float{}, p);
    check(double{}, p);
    check(Half{}, p);
    check(BFloat16{}, p);
  }
}

TEST(Permutation, EveryOrderIsAsLikely) {
  for (const int64_t n : {2, 3, 4, 5}) {
    std::map<std::vector<int64_t>, double> seen;
    const int repeats = 24'000;
    for (int i = 0; i < repeats; ++i) {
      ++seen[Drawn<int64_t>(Call(Distribution::kPermutation, DType::kInt64), n, static_cast<uint64_t>(i))];
    }
    double orders = 1;
    for (int64_t k = 2; k <= n; ++k) orders *= static_cast<double>(k);
    ASSERT_EQ(static_cast<double>(seen.size()), orders);
    std::vector<double> counts;
    for (const auto& [order, count] : seen) counts.push_back(count);
    EXPECT_LT(ChiSquareExcess(counts), kMostExcess) << n;
  }
}

TEST(Permutation, IsOneAndFavoursNoPlace) {
  constexpr int64_t kCount = 100'000;
  const auto order = Drawn<int32_t>(Call(Distribution::kPermutation, DType::kInt32), kCount);
  std::vector<bool> seen(kCount);
  for (const int32_t v : order) {
    ASSERT_TRUE(v >= 0 && v < kCount);
    ASSERT_FALSE(seen[static_cast<size_t>(v)]) << v;
    seen[static_cast<size_t>(v)] = true;
  }
  // Which tenth a number comes from, which tenth it goes to: a hundred cells.
  std::vector<double> cells(100);
  for (size_t i = 0; i < order.size(); ++i) ++cells[i / 10'000 * 10 + static_cast<size_t>(order[i]) / 10'000];
  EXPECT_LT(ChiSquareExcess(cells), kMostExcess);
  EXPECT_NE(order, Drawn<int32_t>(Call(Distribution::kPermutation, DType::kInt32), kCount, 1));
  EXPECT_TRUE(Drawn<int64_t>(Call(Distribution::kPermutation, DType::kInt64), 0).empty());
  EXPECT_EQ(Drawn<int64_t>(Call(Distribution::kPermutation, DType::kInt64), 1), std::vector<int64_t>{0});
}

// Each distribution and type, in pieces cut anywhere and at odd addresses, against one call.
TEST(Draw, DoesNotDependOnHowItIsCutOrWhereItLies) {
  constexpr int64_t kCount = 5000;
  std::vector<double> in(kCount + 8);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i % 7) / 7;
  const auto check = [&](DrawCall call, auto tag) {
    using T = decltype(tag);
    call.type = DTypeOf<T>();
    call.in_type = DType::kDouble;
    call.count = kCount;
    std::vector<T> typed(kCount);
    for (size_t i = 0; i < typed.size(); ++i) typed[i] = CastValue<T>(in[i]);
    call.in = call.distribution == Distribution::kDropout ? static_cast<const void*>(typed.data()) : in.data();
    ASSERT_EQ(WhyNot(call), "");
    std::vector<T> whole(kCount), cut(kCount + 3);
    std::vector<uint8_t> whole_mask(kCount), cut_mask(kCount);
    call.out = whole.data();
    call.mask = whole_mask.data();
    Draw(call, kSeed, 9, {0, kCount});
    call.mask = cut_mask.data();
    for (const int64_t shift : {0, 1, 3}) {
      call.out = cut.data() + shift;
      uint32_t random = 12345;
      for (int64_t begin = 0; begin < kCount;) {
        random = random * 1664525 + 1013904223;
        const int64_t end = std::min<int64_t>(kCount, begin + 1 + static_cast<int64_t>(random >> 20) % 1500);
        Draw(call, kSeed, 9, {begin, end});
        begin = end;
      }
      ASSERT_TRUE(SameBytes(whole.data(), cut.data() + shift, kCount * sizeof(T)))
          << Name(call.distribution) << " of " << Name(call.type) << " at " << shift;
      ASSERT_EQ(whole_mask, cut_mask);
    }
  };
  DrawCall small = Call(Distribution::kRandint, DType::kFloat);
  small.range = 100;
  DrawCall large = small;
  large.range = uint64_t{1} << 40;
  const auto floating = [&](auto tag) {
    check(Call(Distribution::kUniform, DType::kFloat, -1, 2), tag);
    check(Call(Distribution::kNormal, DType::kFloat, 1, 2), tag);
    check(Call(Distribution::kLogNormal, DType::kFloat, 1, 2), tag);
    check(Call(Distribution::kExponential, DType::kFloat, 2), tag);
    check(Call(Distribution::kCauchy, DType::kFloat, 1, 2), tag);
    check(Call(Distribution::kGeometric, DType::kFloat, 0.2), tag);
    check(Call(Distribution::kBernoulli, DType::kFloat, 0.2), tag);
    check(Call(Distribution::kBernoulliEach, DType::kFloat), tag);
    check(Call(Distribution::kDropout, DType::kFloat, 0.2), tag);
    check(small, tag);
  };
  floating(float{});
  floating(double{});
  floating(Half{});
  floating(BFloat16{});
  const auto integer = [&](auto tag) {
    check(Call(Distribution::kBernoulli, DType::kFloat, 0.2), tag);
    check(Call(Distribution::kBernoulliEach, DType::kFloat), tag);
    check(small, tag);
  };
  integer(int8_t{});
  integer(uint8_t{});
  integer(int16_t{});
  integer(int32_t{});
  integer(int64_t{});
  check(large, int64_t{});
  check(large, double{});
}

// Where the number of the block leaves 32 bits; the elements before are not there, only their places.
TEST(Draw, GoesOnBeyondFourGigaBlocks) {
  constexpr int64_t kMiddle = int64_t{1} << 34;
  for (const int64_t begin : {kMiddle - 37, kMiddle - 64, kMiddle - 1}) {
    std::vector<float> numbers(128);
    DrawCall call = Call(Distribution::kUniform, DType::kFloat, 0, 1);
    call.count = kMiddle + 64;
    call.out = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(numbers.data()) -
                                        static_cast<uintptr_t>(begin) * sizeof(float));
    ASSERT_EQ(Draw(call, kSeed, 3, {begin, kMiddle + 64}), -1);
    for (int64_t i = begin; i < kMiddle + 64; ++i) {
      const auto block = static_cast<uint64_t>(i / 4);
      const auto words = Philox4x32({3, 0, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)},
                                    {static_cast<uint32_t>(kSeed), static_cast<uint32_t>(kSeed >> 32)});
      ASSERT_EQ(numbers[static_cast<size_t>(i - begin)],
                static_cast<float>(words[static_cast<size_t>(i % 4)] >> 8) * 0x1p-24f)
          << i;
    }
  }
}

// A prefix of a longer draw is the shorter draw; other seeds and positions are other numbers.
TEST(Draw, DependsOnSeedPositionAndElementAlone) {
  const DrawCall call = Call(Distribution::kNormal, DType::kFloat, 0, 1);
  const auto reference = Drawn<float>(call, 1000);
  const auto prefix = Drawn<float>(call, 333);
  EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), reference.begin()));
  const auto same = [&](const std::vector<float>& other) {
    int count = 0;
    for (size_t i = 0; i < other.size(); ++i) count += other[i] == reference[i] ? 1 : 0;
    return count;
  };
  EXPECT_LT(same(Drawn<float>(call, 1000, 1)), 3);
  EXPECT_LT(same(Drawn<float>(call, 1000, uint64_t{1} << 32)), 3);
  EXPECT_LT(same(Drawn<float>(call, 1000, 0, kSeed + 1)), 3);
  EXPECT_LT(same(Drawn<float>(call, 1000, 0, kSeed + (uint64_t{1} << 32))), 3);
}

TEST(Draw, SaysWhyNot) {
  const auto why = [](Distribution distribution, DType type, double a = 0, double b = 0) {
    return WhyNot(Call(distribution, type, a, b));
  };
  using D = Distribution;
  EXPECT_EQ(why(D::kUniform, DType::kFloat, 0, 1), "");
  EXPECT_NE(why(D::kUniform, DType::kInt32, 0, 1), "");
  EXPECT_NE(why(D::kUniform, DType::kComplex64, 0, 1), "");
  EXPECT_NE(why(D::kUniform, DType::kUndefined, 0, 1), "");
  EXPECT_NE(why(D::kUniform, DType::kFloat, 1, 0), "");
  EXPECT_NE(why(D::kUniform, DType::kFloat, NAN, 0), "");
  EXPECT_NE(why(D::kUniform, DType::kFloat, -3e38, 3e38), "");
  EXPECT_EQ(why(D::kUniform, DType::kDouble, -3e38, 3e38), "");
  EXPECT_NE(why(D::kUniform, DType::kFloat16, 0, 70000), "");
  EXPECT_NE(why(D::kUniform, DType::kBFloat16, 0, 3.4e38), "");
  EXPECT_NE(why(D::kNormal, DType::kFloat, 0, -1), "");
  EXPECT_NE(why(D::kNormal, DType::kInt8, 0, 1), "");
  EXPECT_NE(why(D::kExponential, DType::kFloat, 0), "");
  EXPECT_NE(why(D::kExponential, DType::kFloat, INFINITY), "");
  EXPECT_NE(why(D::kCauchy, DType::kFloat, 0, 0), "");
  EXPECT_NE(why(D::kGeometric, DType::kFloat, 0), "");
  EXPECT_NE(why(D::kGeometric, DType::kFloat, 1.1), "");
  EXPECT_NE(why(D::kBernoulli, DType::kFloat, 1.1), "");
  EXPECT_NE(why(D::kBernoulli, DType::kFloat, NAN), "");
  EXPECT_NE(why(D::kDropout, DType::kFloat, -0.1), "");
  EXPECT_NE(why(D::kDropout, DType::kInt32, 0.1), "");
  EXPECT_NE(why(D::kPermutation, DType::kFloat), "");
  EXPECT_NE(why(static_cast<D>(99), DType::kFloat), "");
  DrawCall call = Call(D::kRandint, DType::kInt8);
  call.low = -128;
  call.range = 257;
  EXPECT_NE(WhyNot(call).find("from -128 to 128"), std::string::npos) << WhyNot(call);
  call.low = 200;
  call.range = 1;
  EXPECT_NE(WhyNot(call), "");
  call.range = 0;
  EXPECT_NE(WhyNot(call), "");
  call = Call(D::kRandint, DType::kBFloat16);
  call.range = 258;
  EXPECT_NE(WhyNot(call), "");
  call.range = 257;
  EXPECT_EQ(WhyNot(call), "");
  call = Call(D::kPermutation, DType::kInt8);
  call.count = 129;
  EXPECT_NE(WhyNot(call), "");
  call.count = 128;
  EXPECT_EQ(WhyNot(call), "");
  call = Call(D::kNormal, DType::kFloat, 0, 1);
  call.count = -1;
  EXPECT_NE(WhyNot(call), "");
  call = Call(D::kBernoulliEach, DType::kFloat);
  call.in_type = DType::kInt32;
  EXPECT_NE(WhyNot(call), "");
}

}  // namespace
}  // namespace reprise::kernels
