// SPDX-License-Identifier: Apache-2.0
//
// Memory marks: what the mstxMem* functions do. A program that hands out pieces of its own pools names the pools
// (heaps) and the pieces (regions); they are held against each other, and show as instants in a timeline while one is
// recorded.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace reprise::profile {

/// Threads: thread-safe. Heaps and regions are numbers that are never used again; `domain` as in markers.h.
class MemoryMarks {
 public:
  struct Range {
    uint32_t device;
    uint64_t address;
    uint64_t bytes;
  };

  /// 107000 for a device that does not exist, an empty range, or one that overlaps another heap; 207005 for too many.
  static StatusOr<uint64_t> AddHeap(uint64_t domain, const Range& range);
  /// Ends its regions, too. 107017 for none of that domain.
  static Status RemoveHeap(uint64_t domain, uint64_t heap);
  /// All or none. `numbers` may be null, else there is one for each. 107000 for a range that does not lie in the heap
  /// or overlaps another region.
  static Status AddRegions(uint64_t domain, uint64_t heap, std::span<const Range> ranges, uint64_t* numbers);
  struct Reference {
    bool is_number;  ///< else the address where the region begins
    uint64_t value;
  };
  /// All or none. 107000 for one that is no region of that domain.
  static Status RemoveRegions(uint64_t domain, std::span<const Reference> regions);
  /// The domain is destroyed.
  static void EndDomain(uint64_t domain);
};

}  // namespace reprise::profile
