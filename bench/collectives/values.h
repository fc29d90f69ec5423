// SPDX-License-Identifier: Apache-2.0
//
// What the ranks send, and what they must have afterwards; the same for everybody who is compared. Sums are exact.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace bench {

inline float ValueOf(int rank, size_t i) { return static_cast<float>(rank + 1) + static_cast<float>(i % 7); }
inline float SumOf(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ValueOf(rank, i);
  return sum;
}

/// Throws unless `result` is right on this rank. `count`: elements of the larger of the two buffers.
inline void CheckResult(const std::string& name, const float* result, size_t count, int rank, int ranks) {
  const size_t block = count / static_cast<size_t>(ranks);
  const auto me = static_cast<size_t>(rank);
  const size_t length = name == "reduce_scatter" ? block : count;
  for (size_t i = 0; i < length; ++i) {
    float wanted = 0;
    if (name == "allreduce") {
      wanted = SumOf(ranks, i);
    } else if (name == "reduce_scatter") {
      wanted = SumOf(ranks, me * block + i);
    } else if (name == "broadcast") {
      wanted = ValueOf(0, i);
    } else if (i >= block * static_cast<size_t>(ranks)) {
      break;  // what does not divide belongs to nobody
    } else if (name == "allgather") {
      wanted = ValueOf(static_cast<int>(i / block), i % block);
    } else {
      wanted = ValueOf(static_cast<int>(i / block), me * block + i % block);
    }
    if (result[i] != wanted) {
      throw std::runtime_error(name + " of rank " + std::to_string(rank) + ": element " + std::to_string(i) + " is " +
                               std::to_string(result[i]) + ", not " + std::to_string(wanted));
    }
  }
}

}  // namespace bench
