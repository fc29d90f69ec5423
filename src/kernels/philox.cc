// SPDX-License-Identifier: Apache-2.0
#include "kernels/philox.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/cast.h"
#include "kernels/simd/philox.h"
#include "kernels/simd/rows.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunkBlocks = 256;  // 4 KiB of words
static_assert(kChunkBlocks % simd::kBlockStep == 0);

// A chunk of a draw: blocks [first, first + blocks), of which the elements [begin, end) are wanted.
struct Chunk {
  uint64_t first;
  int64_t blocks;
  int64_t begin, end;
  int64_t base;  // number of the first element of the first block

  bool is_whole(int64_t per_block) const { return begin == base && end == base + blocks * per_block; }
};

// Cuts the elements into chunks that begin and end at whole steps of blocks.
template <class Fn>
void ForEachChunk(Range range, int64_t per_block, Fn fn) {
  for (int64_t at = range.begin; at < range.end;) {
    Chunk chunk;
    const int64_t first = at / per_block / simd::kBlockStep * simd::kBlockStep;
    const int64_t wanted = (range.end - first * per_block + per_block - 1) / per_block;
    const int64_t steps = (wanted + simd::kBlockStep - 1) / simd::kBlockStep;
    chunk.first = static_cast<uint64_t>(first);
    chunk.blocks = std::min(steps * simd::kBlockStep, kChunkBlocks);
    chunk.base = first * per_block;
    chunk.begin = at;
    chunk.end = std::min(range.end, chunk.base + chunk.blocks * per_block);
    fn(chunk);
    at = chunk.end;
  }
}

// Calls fn(words of the element, number of the element) for all elements of the range.
template <int kWords, class Fn>
void ForEachElement(const simd::PhiloxSource& source, Range range, Fn fn) {
  alignas(64) uint32_t words[kChunkBlocks * 4];
  ForEachChunk(range, 4 / kWords, [&](const Chunk& chunk) {
    simd::PhiloxWords(source, chunk.first, chunk.blocks, words);
    const uint32_t* at = words + (chunk.begin - chunk.base) * kWords;
    for (int64_t i = chunk.begin; i < chunk.end; ++i, at += kWords) fn(at, i);
  });
}

uint64_t Word64(const uint32_t* words) { return uint64_t{words[1]} << 32 | words[0]; }

// The upper 64 bits of a * b.
uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
}

// [0, 1) and (0, 1), of 53 and 52 bits.
double OpenOne(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
double OpenBoth(uint64_t word) { return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52; }

// ---- Continuous distributions of the types up to 32 bits ----

// The greatest number of the type below `value`, as a float.
template <class T>
float Below(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::nextafter(value, -std::numeric_limits<float>::infinity());
  } else {
    // Sign and magnitude: one step towards minus infinity.
    const auto bits = T(value).bits;
    if ((bits & 0x7FFF) == 0) return static_cast<float>(T::FromBits(0x8001));
    return static_cast<float>(T::FromBits(static_cast<uint16_t>((bits & 0x8000) != 0 ? bits + 1 : bits - 1)));
  }
}

template <class T>
float Rounded(double value) {
  return static_cast<float>(CastValue<T>(static_cast<float>(value)));
}

// Fills whole blocks of float32 numbers.
template <class T>
void FloatBlocks(const DrawCall& call, const simd::PhiloxSource& source, uint64_t first, int64_t blocks, float* out) {
  switch (call.distribution) {
    case Distribution::kUniform: {
      const float from = Rounded<T>(call.a);
      const float to = Rounded<T>(call.b);
      const float last = to > from ? std::max(from, Below<T>(to)) : from;
      return simd::UniformRow(source, first, blocks, from, to - from, last, out);
    }
    case Distribution::kNormal:
    case Distribution::kLogNormal:
      simd::NormalRow(source, first, blocks, static_cast<float>(call.a), static_cast<float>(call.b), out);
      if (call.distribution == Distribution::kLogNormal) {
        for (int64_t i = 0; i < blocks * 4; ++i) out[i] = std::exp(out[i]);
      }
      return;
    case Distribution::kExponential:
      return simd::ExponentialRow(source, first, blocks, static_cast<float>(1.0 / call.a), out);
    default: {
      alignas(64) uint32_t words[kChunkBlocks * 4];
      simd::PhiloxWords(source, first, blocks, words);
      const double log_failure = std::log1p(-call.a);  // of the geometric distribution
      for (int64_t i = 0; i < blocks * 4; ++i) {
        const double u = (static_cast<double>(words[i]) + 0.5) * 0x1p-32;
        out[i] = static_cast<float>(call.distribution == Distribution::kCauchy
                                        ? call.a + call.b * std::tan(std::numbers::pi * (u - 0.5))
                                        : std::max(1.0, std::ceil(std::log(u) / log_failure)));
      }
    }
  }
}

template <class T>
void DrawFloats(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  alignas(64) float numbers[kChunkBlocks * 4];
  auto* out = static_cast<T*>(call.out);
  ForEachChunk(range, 4, [&](const Chunk& chunk) {
    if constexpr (std::is_same_v<T, float>) {
      if (chunk.is_whole(4)) return FloatBlocks<T>(call, source, chunk.first, chunk.blocks, out + chunk.begin);
    }
    FloatBlocks<T>(call, source, chunk.first, chunk.blocks, numbers);
    const float* from = numbers + (chunk.begin - chunk.base);
    const int64_t n = chunk.end - chunk.begin;
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(out + chunk.begin, from, static_cast<size_t>(n) * sizeof(float));
    } else {
      simd::ConvertRow(DType::kFloat, DTypeOf<T>(), from, out + chunk.begin, n);
    }
  });
}

// ---- float64 ----

void DrawDoubles(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  auto* out = static_cast<double*>(call.out);
  const double a = call.a;
  const double b = call.b;
  switch (call.distribution) {
    case Distribution::kUniform: {
      const double last = b > a ? std::max(a, std::nextafter(b, -std::numeric_limits<double>::infinity())) : a;
      return ForEachElement<2>(source, range, [&](const uint32_t* words, int64_t i) {
        out[i] = std::min(a + OpenOne(Word64(words)) * (b - a), last);
      });
    }
    case Distribution::kNormal:
    case Distribution::kLogNormal:
      // The two elements of a block are the cosine and the sine of one pair.
      return ForEachElement<2>(source, range, [&](const uint32_t* words, int64_t i) {
        const uint32_t* block = words - (i % 2) * 2;
        const double radius = std::sqrt(-2.0 * std::log(OpenBoth(Word64(block))));
        const double angle = 2.0 * std::numbers::pi * OpenOne(Word64(block + 2));
        const double number = a + b * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        out[i] = call.distribution == Distribution::kNormal ? number : std::exp(number);
      });
    case Distribution::kExponential:
      return ForEachElement<2>(
          source, range, [&](const uint32_t* words, int64_t i) { out[i] = -std::log(OpenBoth(Word64(words))) / a; });
    case Distribution::kCauchy:
      return ForEachElement<2>(source, range, [&](const uint32_t* words, int64_t i) {
        out[i] = a + b * std::tan(std::numbers::pi * (OpenBoth(Word64(words)) - 0.5));
      });
    default: {
      const double log_failure = std::log1p(-a);
      return ForEachElement<2>(source, range, [&](const uint32_t* words, int64_t i) {
        out[i] = std::max(1.0, std::ceil(std::log(OpenBoth(Word64(words))) / log_failure));
      });
    }
  }
}

// ---- Choices ----

// A word is below this with the probability p.
uint64_t Threshold(double p) { return static_cast<uint64_t>(std::nearbyint(p * 0x1p32)); }

// Calls fn(choices, first element, count): choices are 1 with the probability p, else 0. No branch depends on a word.
template <class Fn>
void ForEachChoice(const simd::PhiloxSource& source, Range range, double p, Fn fn) {
  alignas(64) uint32_t words[kChunkBlocks * 4];
  alignas(64) uint8_t choices[kChunkBlocks * 4] = {};
  const uint64_t threshold = Threshold(p);
  const auto last = static_cast<uint32_t>(threshold - 1);
  ForEachChunk(range, 4, [&](const Chunk& chunk) {
    const int64_t n = chunk.end - chunk.begin;
    if (threshold != 0) {
      simd::PhiloxWords(source, chunk.first, chunk.blocks, words);
      const uint32_t* word = words + (chunk.begin - chunk.base);
      for (int64_t k = 0; k < n; ++k) choices[k] = word[k] <= last ? 1 : 0;
    }
    fn(choices, chunk.begin, n);
  });
}

template <class T>
void DrawBernoulli(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  const T values[2] = {T{}, CastValue<T>(1.0f)};
  ForEachChoice(source, range, call.a, [&](const uint8_t* choices, int64_t begin, int64_t n) {
    T* out = static_cast<T*>(call.out) + begin;
    for (int64_t k = 0; k < n; ++k) out[k] = values[choices[k]];
  });
}

template <class T, class P>
int64_t DrawBernoulliEach(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  auto* out = static_cast<T*>(call.out);
  const auto* probability = static_cast<const P*>(call.in);
  const T values[2] = {T{}, CastValue<T>(1.0f)};
  int64_t bad = -1;
  ForEachElement<1>(source, range, [&](const uint32_t* word, int64_t i) {
    const auto p = static_cast<double>(static_cast<MathType<P>>(probability[i]));
    if (!(p >= 0.0 && p <= 1.0) && bad < 0) bad = i;
    out[i] = values[static_cast<double>(*word) < p * 0x1p32 ? 1 : 0];
  });
  return bad;
}

template <class T>
void DrawDropout(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  using Math = MathType<T>;
  const Math scale = call.a < 1.0 ? static_cast<Math>(1.0 / (1.0 - call.a)) : Math{0};
  ForEachChoice(source, range, call.a, [&](const uint8_t* dropped, int64_t begin, int64_t n) {
    const T* in = static_cast<const T*>(call.in) + begin;
    T* out = static_cast<T*>(call.out) + begin;
    for (int64_t k = 0; k < n; ++k) {
      const T value = CastValue<T>(static_cast<Math>(in[k]) * scale);
      out[k] = dropped[k] != 0 ? T{} : value;
    }
    if (call.mask == nullptr) return;
    uint8_t* mask = static_cast<uint8_t*>(call.mask) + begin;
    for (int64_t k = 0; k < n; ++k) mask[k] = dropped[k] ^ 1;
  });
}

// ---- Integers ----

template <class T>
T Integer(uint64_t value) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool(value != 0);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return CastValue<T>(static_cast<double>(static_cast<int64_t>(value)));
  }
}

template <class T>
void DrawIntegers(const DrawCall& call, const simd::PhiloxSource& source, Range range) {
  auto* out = static_cast<T*>(call.out);
  const auto low = static_cast<uint64_t>(call.low);
  const uint64_t span = call.range;
  if (span != 0 && span <= uint64_t{1} << 32) {
    return ForEachElement<2>(source, range, [&](const uint32_t* words, int64_t i) {
      out[i] = Integer<T>(low + MultiplyHigh(Word64(words), span));
    });
  }
  // floor(x * span / 2^128) of 128 random bits x.
  ForEachElement<4>(source, range, [&](const uint32_t* words, int64_t i) {
    const uint64_t fine = Word64(words);
    const uint64_t coarse = Word64(words + 2);
    uint64_t value = coarse;
    if (span != 0) {
      const uint64_t carry = MultiplyHigh(fine, span);
      value = MultiplyHigh(coarse, span) + (coarse * span + carry < carry ? 1 : 0);
    }
    out[i] = Integer<T>(low + value);
  });
}

// Fisher and Yates from the front, in place. The places that a chunk will touch are known before: they are fetched
// ahead, as none of the caches holds a large permutation.
template <class T>
void DrawPermutation(const DrawCall& call, const simd::PhiloxSource& source) {
  auto* out = static_cast<T*>(call.out);
  constexpr int64_t kAhead = 16;
  constexpr int64_t kBatch = kChunkBlocks * 2;
  alignas(64) uint32_t words[kChunkBlocks * 4];
  int64_t places[kBatch + kAhead] = {};
  ForEachChunk({0, call.count}, 2, [&](const Chunk& chunk) {
    simd::PhiloxWords(source, chunk.first, chunk.blocks, words);
    const int64_t n = chunk.end - chunk.begin;
    for (int64_t k = 0; k < n; ++k) {
      const auto choices = static_cast<uint64_t>(chunk.begin + k + 1);
      places[k] = static_cast<int64_t>(MultiplyHigh(Word64(words + 2 * k), choices));
    }
    for (int64_t k = 0; k < n; ++k) {
      __builtin_prefetch(out + places[k + kAhead], 1);
      const int64_t i = chunk.begin + k;
      out[i] = out[places[k]];
      out[places[k]] = static_cast<T>(i);
    }
  });
}

// ---- Which types ----

constexpr bool IsFloating(DType type) { return IsKnown(type) && CategoryOf(type) == Category::kFloating; }

// The types that hold numbers, and the integers of +-2^bits that each holds exactly.
struct Limits {
  int64_t lowest;
  int64_t highest;
};
Limits LimitsOf(DType type) {
  switch (type) {
    case DType::kFloat16: return {-(1 << 11), 1 << 11};
    case DType::kBFloat16: return {-(1 << 8), 1 << 8};
    case DType::kFloat: return {-(1 << 24), 1 << 24};
    case DType::kDouble: return {-(int64_t{1} << 53), int64_t{1} << 53};
    case DType::kBool: return {0, 1};
    case DType::kInt8: return {INT8_MIN, INT8_MAX};
    case DType::kUInt8: return {0, UINT8_MAX};
    case DType::kInt16: return {INT16_MIN, INT16_MAX};
    case DType::kUInt16: return {0, UINT16_MAX};
    case DType::kInt32: return {INT32_MIN, INT32_MAX};
    case DType::kUInt32: return {0, UINT32_MAX};
    case DType::kUInt64: return {0, INT64_MAX};  // numbers above it are drawn with range 0 alone
    default: return {INT64_MIN, INT64_MAX};
  }
}

template <class Fn>
void DispatchReal(DType type, Fn fn) {
  switch (type) {
    case DType::kFloat: return fn(TypeTag<float>{});
    case DType::kFloat16: return fn(TypeTag<Half>{});
    case DType::kBFloat16: return fn(TypeTag<BFloat16>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kBool: return fn(TypeTag<Bool>{});
    case DType::kInt8: return fn(TypeTag<int8_t>{});
    case DType::kUInt8: return fn(TypeTag<uint8_t>{});
    case DType::kInt16: return fn(TypeTag<int16_t>{});
    case DType::kUInt16: return fn(TypeTag<uint16_t>{});
    case DType::kInt32: return fn(TypeTag<int32_t>{});
    case DType::kUInt32: return fn(TypeTag<uint32_t>{});
    case DType::kInt64: return fn(TypeTag<int64_t>{});
    case DType::kUInt64: return fn(TypeTag<uint64_t>{});
    default: return;
  }
}

std::string Quoted(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string WhyNotProbability(double p, const char* what) {
  if (p >= 0.0 && p <= 1.0) return {};
  return std::string(what) + " is " + Quoted(p) + ", must be between 0 and 1";
}

}  // namespace

const char* Name(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform: return "uniform";
    case Distribution::kNormal: return "normal";
    case Distribution::kLogNormal: return "log-normal";
    case Distribution::kExponential: return "exponential";
    case Distribution::kCauchy: return "Cauchy";
    case Distribution::kGeometric: return "geometric";
    case Distribution::kBernoulli:
    case Distribution::kBernoulliEach: return "Bernoulli";
    case Distribution::kRandint: return "integer";
    case Distribution::kDropout: return "dropout";
    case Distribution::kPermutation: return "permutation";
  }
  return "unknown";
}

namespace {

std::string WhyNotUniform(const DrawCall& call) {
  if (!(call.a <= call.b)) return "the range [" + Quoted(call.a) + ", " + Quoted(call.b) + ") is not one";
  bool fits = std::isfinite(call.b - call.a);
  if (call.type == DType::kFloat || call.type == DType::kBFloat16) {
    const double most = call.type == DType::kFloat ? std::numeric_limits<float>::max() : 0x1.FEp127;
    fits = fits && -call.a <= most && call.b <= most && call.b - call.a <= most;
  }
  if (call.type == DType::kFloat16) fits = fits && -call.a <= 65504.0 && call.b <= 65504.0;
  if (!fits) {
    return "the range [" + Quoted(call.a) + ", " + Quoted(call.b) + ") is wider than " + std::string(Name(call.type)) +
           " can tell";
  }
  return {};
}

std::string WhyNotRandint(const DrawCall& call) {
  const Limits limits = LimitsOf(call.type);
  if (call.range == 0 && ItemSize(call.type) == 8 && CategoryOf(call.type) == Category::kInteger) return {};
  const auto room_above = [&](int64_t highest) {
    return static_cast<uint64_t>(highest) - static_cast<uint64_t>(call.low);
  };
  if (call.range == 0 || call.low < limits.lowest || call.low > limits.highest ||
      call.range - 1 > room_above(limits.highest)) {
    const bool wraps = call.range - 1 > room_above(INT64_MAX);
    const std::string top = wraps ? "2^63" : std::to_string(call.low + static_cast<int64_t>(call.range - 1));
    return std::string(Name(call.type)) + " does not hold all integers from " + std::to_string(call.low) + " to " +
           top + ": it does from " + std::to_string(limits.lowest) + " to " + std::to_string(limits.highest);
  }
  return {};
}

}  // namespace

std::string WhyNot(const DrawCall& call) {
  const auto type_error = [&](const char* wanted) {
    return std::string("elements of type ") + std::string(Name(call.type)) + " do not fit a " +
           Name(call.distribution) + " draw, which makes " + wanted;
  };
  if (call.count < 0) return "count is " + std::to_string(call.count) + ", must not be negative";
  if (!IsKnown(call.type) || CategoryOf(call.type) == Category::kComplex) return type_error("real numbers");
  switch (call.distribution) {
    case Distribution::kUniform:
    case Distribution::kNormal:
    case Distribution::kLogNormal:
    case Distribution::kExponential:
    case Distribution::kCauchy:
    case Distribution::kGeometric:
    case Distribution::kDropout:
      if (!IsFloating(call.type)) return type_error("floating numbers");
      break;
    case Distribution::kPermutation:
      if (CategoryOf(call.type) != Category::kInteger) return type_error("integers");
      break;
    default: break;
  }
  switch (call.distribution) {
    case Distribution::kUniform: return WhyNotUniform(call);
    case Distribution::kNormal:
    case Distribution::kLogNormal:
      if (!(call.b >= 0.0)) return "the standard deviation is " + Quoted(call.b) + ", must not be negative";
      return {};
    case Distribution::kExponential:
      if (!(call.a > 0.0) || !std::isfinite(call.a)) return "the rate is " + Quoted(call.a) + ", must be positive";
      return {};
    case Distribution::kCauchy:
      if (!(call.b > 0.0) || !std::isfinite(call.b)) {
        return "the half width is " + Quoted(call.b) + ", must be positive";
      }
      return {};
    case Distribution::kGeometric:
      if (!(call.a > 0.0 && call.a <= 1.0)) {
        return "the probability is " + Quoted(call.a) + ", must be above 0 and at most 1";
      }
      return {};
    case Distribution::kBernoulli: return WhyNotProbability(call.a, "the probability");
    case Distribution::kDropout: return WhyNotProbability(call.a, "the probability to drop");
    case Distribution::kBernoulliEach:
      if (!IsFloating(call.in_type)) {
        return "probabilities of type " + std::string(Name(call.in_type)) + " are not floating numbers";
      }
      return {};
    case Distribution::kRandint: return WhyNotRandint(call);
    case Distribution::kPermutation:
      if (call.count > 0 && call.count - 1 > LimitsOf(call.type).highest) {
        return std::string(Name(call.type)) + " does not hold " + std::to_string(call.count - 1) +
               ", the last number of the permutation";
      }
      return {};
  }
  return "there is no distribution " + std::to_string(static_cast<int>(call.distribution));
}

int64_t Draw(const DrawCall& call, uint64_t seed, uint64_t position, Range range) {
  const simd::PhiloxSource source{seed, position};
  int64_t bad = -1;
  switch (call.distribution) {
    case Distribution::kUniform:
    case Distribution::kNormal:
    case Distribution::kLogNormal:
    case Distribution::kExponential:
    case Distribution::kCauchy:
    case Distribution::kGeometric:
      DispatchFloating(call.type, [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_same_v<T, double>) {
          DrawDoubles(call, source, range);
        } else {
          DrawFloats<T>(call, source, range);
        }
      });
      break;
    case Distribution::kBernoulli:
      DispatchReal(call.type, [&]<class T>(TypeTag<T>) { DrawBernoulli<T>(call, source, range); });
      break;
    case Distribution::kBernoulliEach:
      DispatchReal(call.type, [&]<class T>(TypeTag<T>) {
        DispatchFloating(call.in_type,
                         [&]<class P>(TypeTag<P>) { bad = DrawBernoulliEach<T, P>(call, source, range); });
      });
      break;
    case Distribution::kRandint:
      DispatchReal(call.type, [&]<class T>(TypeTag<T>) { DrawIntegers<T>(call, source, range); });
      break;
    case Distribution::kDropout:
      DispatchFloating(call.type, [&]<class T>(TypeTag<T>) { DrawDropout<T>(call, source, range); });
      break;
    case Distribution::kPermutation:
      DispatchReal(call.type, [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_integral_v<T>) DrawPermutation<T>(call, source);
      });
      break;
  }
  return bad;
}

}  // namespace reprise::kernels
