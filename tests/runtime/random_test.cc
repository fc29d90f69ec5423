// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fixture.h"
#include "kernels/float16.h"
#include "runtime/random.h"

namespace reprise::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(Philox, GivesTheKnownAnswers) {
  using runtime::Philox4x32;
  static_assert(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
                runtime::PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  static_assert(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
                runtime::PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  EXPECT_NE(Philox4x32({1, 0, 0, 0}, {0, 0}), Philox4x32({0, 0, 0, 0}, {0, 0}));
}

// ---- Reductions ----

class Reduce : public Runtime {
 protected:
  template <class T>
  std::vector<T> Run(std::vector<T> dst, const std::vector<T>& src, aclrtReduceKind kind, aclDataType type) {
    const size_t bytes = dst.size() * sizeof(T);
    void* device_dst = NewMemory(bytes);
    void* device_src = NewMemory(bytes);
    std::memcpy(device_dst, dst.data(), bytes);
    std::memcpy(device_src, src.data(), bytes);
    EXPECT_ACL(0, aclrtReduceAsync(device_dst, device_src, bytes, kind, type, nullptr, nullptr));
    EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
    std::memcpy(dst.data(), device_dst, bytes);
    EXPECT_EQ(0, aclrtFree(device_dst));
    EXPECT_EQ(0, aclrtFree(device_src));
    return dst;
  }
};

constexpr auto kSum = ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM;
constexpr auto kMax = ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX;
constexpr auto kMin = ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN;
constexpr auto kEqual = ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL;

TEST_F(Reduce, IntegersWrap) {
  EXPECT_THAT(Run<int8_t>({127, -128, 3}, {1, -1, 4}, kSum, ACL_INT8), ElementsAre(-128, 127, 7));
  EXPECT_THAT(Run<int16_t>({32767, 5}, {1, 5}, kSum, ACL_INT16), ElementsAre(-32768, 10));
  EXPECT_THAT(Run<int32_t>({INT32_MAX, -7}, {1, -8}, kSum, ACL_INT32), ElementsAre(INT32_MIN, -15));
  EXPECT_THAT(Run<int32_t>({1, -7}, {2, -8}, kMax, ACL_INT32), ElementsAre(2, -7));
  EXPECT_THAT(Run<int8_t>({1, -7}, {2, -8}, kMin, ACL_INT8), ElementsAre(1, -8));
  EXPECT_THAT(Run<int16_t>({1, -7}, {2, -7}, kEqual, ACL_INT16), ElementsAre(0, 1));
}

TEST_F(Reduce, FloatsAddAndKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Run<float>({1.5f, -2.0f}, {0.25f, 2.0f}, kSum, ACL_FLOAT), ElementsAre(1.75f, 0.0f));
  EXPECT_THAT(Run<float>({1.5f, -2.0f}, {0.25f, -2.0f}, kEqual, ACL_FLOAT), ElementsAre(0.0f, 1.0f));
  const auto most = Run<float>({nan, 1.0f, 3.0f}, {1.0f, nan, 2.0f}, kMax, ACL_FLOAT);
  EXPECT_TRUE(std::isnan(most[0]) && std::isnan(most[1]));
  EXPECT_EQ(most[2], 3.0f);
}

TEST_F(Reduce, HalfFormatsRoundOnce) {
  using kernels::BFloat16BitsToFloat;
  using kernels::FloatToBFloat16Bits;
  using kernels::FloatToHalfBits;
  // 2048 + 1 lies between two fp16 numbers, 2048 and 2050: even wins.
  EXPECT_THAT(Run<uint16_t>({FloatToHalfBits(2048), FloatToHalfBits(65504)}, {FloatToHalfBits(1), FloatToHalfBits(32)},
                            kSum, ACL_FLOAT16),
              ElementsAre(FloatToHalfBits(2048), 0x7C00));
  EXPECT_THAT(Run<uint16_t>({FloatToBFloat16Bits(1.5f)}, {FloatToBFloat16Bits(-3.0f)}, kMin, ACL_BF16),
              ElementsAre(FloatToBFloat16Bits(-3.0f)));
}

TEST_F(Reduce, LargeRangesAreComplete) {
  const std::vector<int32_t> ones(300'001, 1);
  EXPECT_THAT(Run<int32_t>(ones, ones, kSum, ACL_INT32), ElementsAreArray(std::vector<int32_t>(300'001, 2)));
}

TEST_F(Reduce, CapturedReductionRunsAtEveryReplay) {
  auto* cells = static_cast<int32_t*>(NewMemory(8));
  cells[1] = 5;
  const aclrtStream stream = NewStream();
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, aclrtReduceAsync(cells, cells + 1, 4, kSum, ACL_INT32, stream, nullptr));
  EXPECT_ACL(0, aclrtCmoAsync(cells, 8, ACL_RT_CMO_TYPE_PREFETCH, stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  EXPECT_EQ(cells[0], 0);
  for (int run = 1; run <= 3; ++run) {
    MUST(aclmdlRIExecuteAsync(model, stream));
    MUST(aclrtSynchronizeStream(stream));
    EXPECT_EQ(cells[0], 5 * run);
  }
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

TEST_F(Reduce, ArgumentsAreChecked) {
  auto* cells = static_cast<int32_t*>(NewMemory(64));
  int32_t host[2] = {};
  EXPECT_ACL(100000, aclrtReduceAsync(cells, cells, 4, kSum, ACL_INT64, nullptr, nullptr));
  EXPECT_ACL(100000, aclrtReduceAsync(cells, cells, 4, kSum, ACL_INT32, nullptr, cells));
  EXPECT_ACL(107000, aclrtReduceAsync(cells, cells, 4, static_cast<aclrtReduceKind>(14), ACL_INT32, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtReduceAsync(cells, cells, 6, kSum, ACL_INT32, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtReduceAsync(cells, cells, 0, kSum, ACL_INT32, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtReduceAsync(host, cells, 4, kSum, ACL_INT32, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtReduceAsync(cells, host, 4, kSum, ACL_INT32, nullptr, nullptr));
  EXPECT_ACL(107000, aclrtReduceAsync(cells, cells, 1 << 20, kSum, ACL_INT32, nullptr, nullptr));
}

// ---- Random numbers ----

template <class T>
aclrtRandomParaInfo Value(T value) {
  aclrtRandomParaInfo info{};
  info.size = sizeof value;
  std::memcpy(info.valueOrAddr, &value, sizeof value);
  return info;
}

aclrtRandomParaInfo Address(const void* address, uint8_t size) {
  aclrtRandomParaInfo info{};
  info.isAddr = 1;
  info.size = size;
  std::memcpy(info.valueOrAddr, &address, sizeof address);
  return info;
}

class Random : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    counter_ = static_cast<uint64_t*>(NewMemory(16));
    result_ = NewMemory(kCount * 4);
  }
  aclrtRandomNumTaskInfo Info(aclrtRandomNumFuncType function, aclDataType type, uint64_t count = kCount) {
    aclrtRandomNumTaskInfo info{};
    info.dataType = type;
    info.randomNumFuncParaInfo.funcType = function;
    info.randomResultAddr = result_;
    info.randomCounterAddr = counter_;
    info.randomSeed = Value<uint64_t>(42);
    info.randomNum = Value<uint64_t>(count);
    return info;
  }
  aclrtRandomNumTaskInfo Uniform(aclDataType type, float min, float max) {
    aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS, type);
    info.randomNumFuncParaInfo.paramInfo.uniformDisInfo = {Value(min), Value(max)};
    return info;
  }
  std::vector<double> Draw(const aclrtRandomNumTaskInfo& info) {
    EXPECT_ACL(0, aclrtRandomNumAsync(&info, nullptr, nullptr));
    EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
    std::vector<double> numbers(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const uint16_t half = static_cast<uint16_t*>(result_)[i];
      numbers[i] = static_cast<double>(info.dataType == ACL_FLOAT     ? static_cast<float*>(result_)[i]
                                       : info.dataType == ACL_FLOAT16 ? kernels::HalfBitsToFloat(half)
                                                                      : kernels::BFloat16BitsToFloat(half));
    }
    return numbers;
  }
  static double Mean(const std::vector<double>& numbers) {
    double sum = 0;
    for (const double number : numbers) sum += number;
    return sum / static_cast<double>(numbers.size());
  }
  static double Deviation(const std::vector<double>& numbers) {
    const double mean = Mean(numbers);
    double sum = 0;
    for (const double number : numbers) sum += (number - mean) * (number - mean);
    return std::sqrt(sum / static_cast<double>(numbers.size()));
  }

  static constexpr size_t kCount = 100'003;
  uint64_t* counter_ = nullptr;
  void* result_ = nullptr;
};

TEST_F(Random, UniformNumbersFillTheInterval) {
  for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    const auto numbers = Draw(Uniform(type, -1.0f, 3.0f));
    for (const double number : numbers) ASSERT_TRUE(number >= -1.0 && number <= 3.0) << number;
    EXPECT_NEAR(Mean(numbers), 1.0, 0.02);
    EXPECT_NEAR(Deviation(numbers), 4.0 / std::sqrt(12.0), 0.02);
  }
}

TEST_F(Random, SequenceIsPhiloxOfSeedAndCounter) {
  counter_[0] = 9;
  counter_[1] = 3;
  const auto numbers = Draw(Uniform(ACL_FLOAT, 0.0f, 1.0f));
  const auto words = runtime::Philox4x32({9 + 5, 0, 3, 0}, {42, 0});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(numbers[20 + i]), static_cast<float>(words[i] * 0x1p-32));
  }
  EXPECT_EQ(counter_[0], 9 + (kCount + 3) / 4);
  EXPECT_EQ(counter_[1], 3U);
}

TEST_F(Random, CounterCarries) {
  counter_[0] = UINT64_MAX;
  Draw(Uniform(ACL_FLOAT, 0.0f, 1.0f));
  EXPECT_EQ(counter_[0], (kCount + 3) / 4 - 1);
  EXPECT_EQ(counter_[1], 1U);
}

TEST_F(Random, SameSeedAndCounterGiveTheSameNumbers) {
  const auto first = Draw(Uniform(ACL_FLOAT, 0.0f, 1.0f));
  const auto second = Draw(Uniform(ACL_FLOAT, 0.0f, 1.0f));
  EXPECT_NE(first, second) << "the counter has moved on";
  counter_[0] = 0;
  EXPECT_EQ(first, Draw(Uniform(ACL_FLOAT, 0.0f, 1.0f)));
}

TEST_F(Random, NormalNumbersHaveMeanAndDeviation) {
  aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS, ACL_FLOAT);
  info.randomNumFuncParaInfo.paramInfo.normalDisInfo = {Value(2.0f), Value(0.5f)};
  const auto numbers = Draw(info);
  EXPECT_NEAR(Mean(numbers), 2.0, 0.01);
  EXPECT_NEAR(Deviation(numbers), 0.5, 0.01);
  EXPECT_GT(*std::max_element(numbers.begin(), numbers.end()), 3.5) << "tails are not cut";
}

TEST_F(Random, TruncatedNormalNumbersStayWithinTwoDeviations) {
  aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS, ACL_FLOAT);
  info.randomNumFuncParaInfo.paramInfo.normalDisInfo = {Value(2.0f), Value(0.5f)};
  const auto numbers = Draw(info);
  for (const double number : numbers) ASSERT_LE(std::abs(number - 2.0), 1.0 + 1e-6);
  EXPECT_NEAR(Mean(numbers), 2.0, 0.01);
  EXPECT_NEAR(Deviation(numbers), 0.5 * 0.8796, 0.01);  // of a standard normal cut at two
}

TEST_F(Random, ParametersMayLieInDeviceMemoryAndInHalfPrecision) {
  auto* params = static_cast<uint16_t*>(NewMemory(32));
  params[0] = kernels::FloatToHalfBits(4.0f);
  params[1] = kernels::FloatToHalfBits(5.0f);
  const uint64_t count = 7;
  std::memcpy(params + 4, &count, sizeof count);
  aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS, ACL_FLOAT16);
  info.randomNumFuncParaInfo.paramInfo.uniformDisInfo = {Address(params, 2), Address(params + 1, 2)};
  info.randomNum = Address(params + 4, 8);
  std::memset(result_, 0, kCount * 4);
  const auto numbers = Draw(info);
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(numbers[i] >= 4.0 && numbers[i] <= 5.0);
  EXPECT_EQ(numbers[7], 0.0);
  EXPECT_EQ(counter_[0], 2U);
  const uint64_t too_many = 1 << 30;
  std::memcpy(params + 4, &too_many, sizeof too_many);
  EXPECT_ACL(0, aclrtRandomNumAsync(&info, nullptr, nullptr));
  EXPECT_ACL(507053, aclrtSynchronizeStream(nullptr));
}

TEST_F(Random, DropoutMaskKeepsTheRightShare) {
  for (const float ratio : {0.0f, 0.25f, 1.0f}) {
    aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK, ACL_FLOAT);
    info.randomNumFuncParaInfo.paramInfo.dropoutBitmaskInfo = {Value(ratio)};
    std::memset(result_, 0xFF, kCount * 4);
    EXPECT_ACL(0, aclrtRandomNumAsync(&info, nullptr, nullptr));
    EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
    const auto* bytes = static_cast<unsigned char*>(result_);
    size_t kept = 0;
    for (size_t i = 0; i < kCount; ++i) kept += (bytes[i / 8] >> (i % 8)) & 1u;
    EXPECT_NEAR(static_cast<double>(kept) / kCount, 1.0 - static_cast<double>(ratio), 0.01);
    EXPECT_EQ(bytes[kCount / 8 + 1], 0xFF) << "nothing is written behind the mask";
  }
}

TEST_F(Random, ReplaysDrawFurtherNumbers) {
  const aclrtStream stream = NewStream();
  const aclrtRandomNumTaskInfo info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_ACL(0, aclrtRandomNumAsync(&info, stream, nullptr));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  std::vector<float> first(kCount), second(kCount);
  for (auto* numbers : {&first, &second}) {
    MUST(aclmdlRIExecuteAsync(model, stream));
    MUST(aclrtSynchronizeStream(stream));
    std::memcpy(numbers->data(), result_, kCount * 4);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(counter_[0], 2 * ((kCount + 3) / 4));
  counter_[0] = 0;
  EXPECT_ACL(0, aclrtRandomNumAsync(&info, stream, nullptr));
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(0, std::memcmp(first.data(), result_, kCount * 4)) << "eager and captured agree";
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

template <class T>
std::vector<T> NumbersAt(const void* result, size_t count) {
  const auto* numbers = static_cast<const T*>(result);
  return {numbers, numbers + count};
}

template <class T>
class RandomIntegers : public Random {
 protected:
  static constexpr aclDataType kType = std::is_same_v<T, int32_t>    ? ACL_INT32
                                       : std::is_same_v<T, uint32_t> ? ACL_UINT32
                                       : std::is_same_v<T, int64_t>  ? ACL_INT64
                                                                     : ACL_UINT64;
  static constexpr size_t kNumbers = 40'001;
  template <class Bound>
  aclrtRandomNumTaskInfo Between(Bound min, Bound max) {
    aclrtRandomNumTaskInfo info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS, kType, kNumbers);
    info.randomNumFuncParaInfo.paramInfo.uniformDisInfo = {Value(min), Value(max)};
    return info;
  }
  std::vector<T> Integers(const aclrtRandomNumTaskInfo& info) {
    EXPECT_ACL(0, aclrtRandomNumAsync(&info, nullptr, nullptr));
    EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
    return NumbersAt<T>(result_, kNumbers);
  }
};
using IntegerTypes = ::testing::Types<int32_t, uint32_t, int64_t, uint64_t>;
TYPED_TEST_SUITE(RandomIntegers, IntegerTypes);

TYPED_TEST(RandomIntegers, AreUniform) {
  using T = TypeParam;
  const uint64_t blocks = sizeof(T) == 4 ? (this->kNumbers + 1) / 2 : this->kNumbers;
  // Each of few numbers comes as often as the others.
  const T low = std::is_signed_v<T> ? static_cast<T>(-3) : static_cast<T>(7);
  const auto few = this->Integers(this->Between(low, static_cast<T>(low + 5)));
  EXPECT_EQ(this->counter_[0], blocks);
  double chi_square = 0;
  for (int i = 0; i < 5; ++i) {
    const double seen = static_cast<double>(std::count(few.begin(), few.end(), static_cast<T>(low + i)));
    const double wanted = this->kNumbers / 5.0;
    chi_square += (seen - wanted) * (seen - wanted) / wanted;
  }
  EXPECT_LT(chi_square, 30) << "four degrees of freedom: above 30 once in 200,000 seeds";
  ASSERT_TRUE(std::all_of(few.begin(), few.end(), [&](T x) { return x >= low && x < low + 5; }));
  // Over all that the type holds: each bit is set half of the time.
  using Limits = std::numeric_limits<T>;
  const auto all = this->Integers(this->Between(Limits::min(), Limits::max()));
  for (size_t bit = 0; bit < sizeof(T) * 8; ++bit) {
    const auto set =
        std::count_if(all.begin(), all.end(), [&](T x) { return (static_cast<uint64_t>(x) >> bit & 1) != 0; });
    EXPECT_NEAR(static_cast<double>(set) / this->kNumbers, 0.5, 0.02) << bit;
  }
  // One number, and a bound of 64 bits for either width.
  const T top = Limits::max();
  for (const T number : this->Integers(this->Between(static_cast<T>(top - 1), top))) ASSERT_EQ(number, top - 1);
  const auto wide = this->Integers(this->Between(uint64_t{3}, uint64_t{5}));
  EXPECT_TRUE(std::all_of(wide.begin(), wide.end(), [](T x) { return x == 3 || x == 4; }));
}

TYPED_TEST(RandomIntegers, AreThePhiloxWordsScaled) {
  using T = TypeParam;
  this->counter_[0] = 9;
  this->counter_[1] = 3;
  const auto numbers = this->Integers(this->Between(T{100}, T{1100}));
  for (uint32_t block = 0; block < 4; ++block) {
    const auto words = runtime::Philox4x32({9 + block, 0, 3, 0}, {42, 0});
    const auto word = [&](size_t i) { return static_cast<unsigned __int128>(words[i]); };
    if (sizeof(T) == 8) {
      // The upper 64 bits of 128 decide, but for one draw in 2^54.
      EXPECT_EQ(numbers[block], static_cast<T>(100 + static_cast<uint64_t>((word(3) << 32 | word(2)) * 1000 >> 64)));
    } else {
      EXPECT_EQ(numbers[2 * block],
                static_cast<T>(100 + static_cast<uint64_t>((word(1) << 32 | word(0)) * 1000 >> 64)));
      EXPECT_EQ(numbers[2 * block + 1],
                static_cast<T>(100 + static_cast<uint64_t>((word(3) << 32 | word(2)) * 1000 >> 64)));
    }
  }
}

TYPED_TEST(RandomIntegers, BoundsAreChecked) {
  using T = TypeParam;
  const auto refused = [&](const aclrtRandomNumTaskInfo& info) {
    EXPECT_ACL(107000, aclrtRandomNumAsync(&info, nullptr, nullptr));
  };
  refused(this->Between(T{5}, T{5}));
  refused(this->Between(T{6}, T{5}));
  refused(this->Between(uint16_t{1}, uint16_t{5}));
  if (sizeof(T) == 4) refused(this->Between(int64_t{0}, int64_t{1} << 33));
  if (std::is_signed_v<T>) {
    const auto below = this->Integers(this->Between(int32_t{-2}, int32_t{-1}));
    EXPECT_TRUE(std::all_of(below.begin(), below.end(), [](T x) { return x == static_cast<T>(-2); }));
  } else {
    const auto above = this->Integers(this->Between(uint32_t{0xFFFFFFFE}, uint32_t{0xFFFFFFFF}));
    EXPECT_TRUE(std::all_of(above.begin(), above.end(), [](T x) { return x == static_cast<T>(0xFFFFFFFE); }));
  }
  aclrtRandomNumTaskInfo normal = this->Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS, this->kType);
  normal.randomNumFuncParaInfo.paramInfo.normalDisInfo = {Value(2.0f), Value(0.5f)};
  refused(normal);
  // In device memory they are checked when the task runs.
  auto* const bounds = static_cast<T*>(this->NewMemory(64));
  bounds[0] = 10;
  bounds[1] = 20;
  aclrtRandomNumTaskInfo info = this->Between(T{0}, T{1});
  info.randomNumFuncParaInfo.paramInfo.uniformDisInfo = {Address(bounds, sizeof(T)), Address(bounds + 1, sizeof(T))};
  const auto drawn = this->Integers(info);
  EXPECT_TRUE(std::all_of(drawn.begin(), drawn.end(), [](T x) { return x >= 10 && x < 20; }));
  const uint64_t counter = this->counter_[0];
  bounds[0] = 20;
  EXPECT_ACL(0, aclrtRandomNumAsync(&info, nullptr, nullptr));
  EXPECT_ACL(507018, aclrtSynchronizeStream(nullptr));
  EXPECT_EQ(this->counter_[0], counter) << "nothing was drawn";
}

TEST_F(Random, ArgumentsAreChecked) {
  const auto refused = [&](const aclrtRandomNumTaskInfo& info) {
    EXPECT_ACL(107000, aclrtRandomNumAsync(&info, nullptr, nullptr));
  };
  aclrtRandomNumTaskInfo info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  EXPECT_ACL(107000, aclrtRandomNumAsync(&info, nullptr, &info));
  info.dataType = ACL_INT8;
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomNumFuncParaInfo.funcType = static_cast<aclrtRandomNumFuncType>(4);
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomResultAddr = nullptr;
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomCounterAddr = nullptr;
  refused(info);
  uint64_t host[2] = {};
  info.randomCounterAddr = host;
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomNum = Value<uint64_t>(kCount * 100);
  refused(info);
  info.randomNum = Value<uint64_t>(UINT64_MAX);
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomSeed.size = 9;
  refused(info);
  info = Uniform(ACL_FLOAT, 0.0f, 1.0f);
  info.randomNumFuncParaInfo.paramInfo.uniformDisInfo.min.size = 3;
  refused(info);
  info = Info(ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK, ACL_FLOAT);
  info.randomNumFuncParaInfo.paramInfo.dropoutBitmaskInfo = {Value(1.5f)};
  refused(info);
}

}  // namespace
}  // namespace reprise::testing
