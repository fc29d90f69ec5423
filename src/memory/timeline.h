// SPDX-License-Identifier: Apache-2.0
//
// How the memory of a device changed over time, out of the history in a snapshot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reprise/memory_types.h"

namespace reprise::memory {

struct Timeline {
  struct Pool {
    PoolId id;
    int64_t allocated_before = 0;  ///< bytes, before the first change
    int64_t reserved_before = 0;
    int64_t allocated_peak = 0;  ///< each pool has its own moment
    int64_t reserved_peak = 0;
  };
  struct Change {
    int64_t time_us = 0;
    size_t pool = 0;        ///< position in `pools`
    int64_t allocated = 0;  ///< bytes more, or fewer
    int64_t reserved = 0;
  };
  struct Oom {
    int64_t time_us = 0;
    uint64_t bytes = 0;  ///< asked for
  };
  /// Live blocks of one place in the program and one pool.
  struct Holder {
    size_t pool = 0;
    int64_t bytes = 0;
    int64_t blocks = 0;
    std::string place;
  };

  int device = 0;
  std::vector<Pool> pools;  ///< by id; the default pool is the first
  std::vector<Change> changes;
  std::vector<Oom> ooms;
  /// The largest sum of allocated bytes, the change behind which there was that much (-1: before the first), and what
  /// held it, largest first.
  int64_t peak = 0;
  ptrdiff_t peak_change = -1;
  std::vector<Holder> holders;
  int64_t reserved_peak = 0;
  ptrdiff_t reserved_peak_change = -1;
};

/// One for each device that has segments or a history. The history may have lost its beginning: what was there before
/// it follows from what is there now.
std::vector<Timeline> Timelines(const MemorySnapshot& snapshot);

}  // namespace reprise::memory
