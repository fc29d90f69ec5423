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
#include "runtime/reduce.h"
#include "runtime/stream.h"

namespace reprise::runtime {

using kernels::Philox4x32;
using kernels::PhiloxCounter;
using kernels::PhiloxKey;

/// The numbers are those of aclrtRandomNumFuncType.
enum class RandomFunction : uint32_t {
  kDropoutMask = 0,      ///< one bit for each number, lowest first; 0 with the probability `a` (drop), else 1 (keep)
  kUniform = 1,          ///< from a to b
  kNormal = 2,           ///< mean a, standard deviation b
  kTruncatedNormal = 3,  ///< the same, drawn again while further than two standard deviations from the mean
};

/// A number that is known now (its bits), or lies in device memory when the task runs (its address).
struct RandomParam {
  uint64_t bits_or_address = 0;
  uint8_t bytes = 0;
  bool is_address = false;
};

struct RandomRequest {
  RandomFunction function;
  ElementType type;   ///< kFloat32, kFloat16 or kBFloat16: of the results, and of parameters as wide as it
  RandomParam a, b;   ///< of 2 (as `type`), 4 (fp32) or 8 bytes (fp64)
  RandomParam seed;   ///< 1 to 8 bytes
  RandomParam count;  ///< of numbers; 1 to 8 bytes
  void* result;
  void* counter;  ///< 128 bits, little endian: how many blocks of four numbers were drawn before
};

/// Bytes that `count` numbers take.
uint64_t RandomResultBytes(RandomFunction function, ElementType type, uint64_t count);

/// The value of a parameter; reads device memory when it is an address.
double RandomValue(const RandomParam& param, ElementType type);
uint64_t RandomInteger(const RandomParam& param);

/// The task for those who put it elsewhere than into a stream; `take` owns it.
Status WithRandomTask(const RandomRequest& request, const std::function<Status(const ir::Task&)>& take);
/// What is behind the payload of a task of kind kRandom.
const RandomRequest& RequestOf(const void* payload);

/// Queues one draw; captured, every replay draws further numbers.
Status SubmitRandom(Stream& stream, const RandomRequest& request);

}  // namespace reprise::runtime
