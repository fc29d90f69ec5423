// SPDX-License-Identifier: Apache-2.0
//
// Random numbers in device memory. The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011): block b of a sequence is a pure function of the seed and of counter + b, so
// that any number of threads gives the same result, and a replay goes on where the last run has left the counter.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "kernels/philox.h"
#include "runtime/stream.h"

namespace reprise::runtime {

using kernels::Philox4x32;
using kernels::PhiloxCounter;
using kernels::PhiloxKey;

/// The numbers are those of aclrtRandomNumFuncType.
enum class RandomFunction : uint32_t {
  kDropoutMask = 0,      ///< one bit for each number, lowest first; 0 with the probability `a` (drop), else 1 (keep)
  kUniform = 1,          ///< from a to b; of integers a, …, b - 1
  kNormal = 2,           ///< mean a, standard deviation b
  kTruncatedNormal = 3,  ///< as kNormal, drawn again while further than two standard deviations from the mean
};

/// Types of results; the numbers are those of aclDataType. Integers are uniform only.
enum class RandomType : int32_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kInt32 = 3,
  kUInt32 = 8,
  kInt64 = 9,
  kUInt64 = 10,
  kBFloat16 = 27,
};
/// 0 for a number that is none of them.
constexpr uint32_t RandomBytes(RandomType type) {
  switch (type) {
    case RandomType::kFloat16:
    case RandomType::kBFloat16: return 2;
    case RandomType::kFloat32:
    case RandomType::kInt32:
    case RandomType::kUInt32: return 4;
    case RandomType::kInt64:
    case RandomType::kUInt64: return 8;
  }
  return 0;
}
constexpr bool IsInteger(RandomType type) {
  return RandomBytes(type) != 0 && type != RandomType::kFloat32 && type != RandomType::kFloat16 &&
         type != RandomType::kBFloat16;
}

/// A number that is known now (its bits), or lies in device memory when the task runs (its address).
struct RandomParam {
  uint64_t bits_or_address = 0;
  uint8_t bytes = 0;
  bool is_address = false;
};

struct RandomRequest {
  RandomFunction function;
  RandomType type;    ///< of the results, and of parameters as wide as it
  RandomParam a, b;   ///< of 2 (as `type`), 4 (fp32) or 8 bytes (fp64); for integers 4 or 8, signed as `type`
  RandomParam seed;   ///< 1 to 8 bytes
  RandomParam count;  ///< of numbers; 1 to 8 bytes
  void* result;
  /// 128 bits, little endian: how many blocks were drawn before. One gives four numbers, of integers two of 32 bits or
  /// one of 64.
  void* counter;
};

/// Bytes that `count` numbers take.
uint64_t RandomResultBytes(RandomFunction function, RandomType type, uint64_t count);

/// The value of a parameter; reads device memory when it is an address.
double RandomValue(const RandomParam& param, RandomType type);
uint64_t RandomInteger(const RandomParam& param);
/// The numbers low, …, low + range - 1 of a uniform draw of integers; low is sign extended for signed types.
struct IntegerRange {
  uint64_t low;
  uint64_t range;
};
/// 107000 when a or b does not fit the type, or b is not above a. Reads device memory as RandomValue does.
StatusOr<IntegerRange> RandomRange(const RandomRequest& request);

/// Hands the task to `take`, which owns it; for callers that put it elsewhere than into a stream.
Status WithRandomTask(const RandomRequest& request, const std::function<Status(const ir::Task&)>& take);
/// The request in the payload of a task of kind kRandom.
const RandomRequest& RequestOf(const void* payload);

/// Queues one draw; captured, every replay draws further numbers.
Status SubmitRandom(Stream& stream, const RandomRequest& request);

}  // namespace reprise::runtime
