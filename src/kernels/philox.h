// SPDX-License-Identifier: Apache-2.0
//
// Random numbers from a generator that counts: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). A block of four words is a pure function of key and counter. The key is the seed; the
// lower half of the counter is the position of the draw, the upper half the number of the block within it. So a draw of
// any size takes one position, and the result does not depend on how its elements are split over threads.
//
// Words per element, in the order of the elements:
//   1  uniform, normal, exponential, log-normal, Cauchy, geometric of the types up to 32 bits; Bernoulli, dropout
//   2  the same continuous ones of float64; integers from ranges up to 2^32; permutations
//   4  integers from larger ranges
// The types up to 32 bits are computed in float32 and rounded to nearest even once. A float32 result is the same on
// every processor; float64 and log-normal, Cauchy and geometric go through the C library's functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"
#include "kernels/strided.h"

namespace reprise::kernels {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// Four random words for a counter and a key.
constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

enum class Distribution : uint8_t {
  kUniform,        ///< [a, b): what would round to b becomes the number below it; a where a = b
  kNormal,         ///< mean a, standard deviation b
  kLogNormal,      ///< e^x of such a number
  kExponential,    ///< rate a; greater than 0 before it is rounded to the type
  kCauchy,         ///< median a, half width b
  kGeometric,      ///< 1, 2, …: trials up to the first success, which has the probability a
  kBernoulli,      ///< 1 with the probability a (in steps of 2^-32), else 0
  kBernoulliEach,  ///< 1 with the probability that stands at the same place of `in`, else 0
  kRandint,        ///< low, …, low + range - 1; no number is preferred by more than one part in 2^32
  kDropout,        ///< out = kept ? in / (1 - a) : 0, mask = kept; dropped with the probability a
  kPermutation,    ///< of 0, …, count - 1, each as likely as any other
};

/// One draw. Pointers are aligned to their elements; `out` may be `in` of a dropout, other overlap is not allowed.
struct DrawCall {
  Distribution distribution = Distribution::kUniform;
  DType type = DType::kFloat;     ///< of out; of in, too, for a dropout
  DType in_type = DType::kFloat;  ///< of the probabilities of kBernoulliEach
  double a = 0;
  double b = 0;
  int64_t low = 0;
  uint64_t range = 0;  ///< 0 stands for 2^64
  int64_t count = 0;   ///< of elements
  void* out = nullptr;
  const void* in = nullptr;
  void* mask = nullptr;  ///< bytes, 0 or 1; null when nobody wants it
};

/// "uniform"
const char* Name(Distribution distribution);

/// Why the draw cannot be made (types, parameters; not the pointers), or an empty text.
std::string WhyNot(const DrawCall& call);

/// Draws the elements [range.begin, range.end) at position `position` of the sequence of `seed`. Ranges may be cut
/// anywhere and run at the same time, but for a permutation, which is drawn as a whole.
/// \pre WhyNot(call) is empty.
/// \returns the first element whose probability is not in [0, 1], or -1
int64_t Draw(const DrawCall& call, uint64_t seed, uint64_t position, Range range);

}  // namespace reprise::kernels
