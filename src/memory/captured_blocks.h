// SPDX-License-Identifier: Apache-2.0
//
// Which blocks a capture got, gave back, and could have lost to somebody else: one that it got later lies there, in
// part at least, or would have fitted, and the allocator has chosen another. What its tasks have left in them before
// that is nobody's after a replay: the program has no object there any more, and may not count on which block is
// chosen. A block behind which no such one was asked for is not among them: programs look at a last result through a
// reference that owns nothing. Nor is one that another capture in the same pool gets later.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "memory/driver.h"

namespace reprise::memory {

/// Lived in the capture while a stream recorded its tasks [first, behind).
struct ReusedBlock {
  uintptr_t begin, end;
  uint32_t first, behind;
};

/// Threads: thread-compatible. Notes for which there is no memory are left out; then fewer blocks are told.
class CapturedBlocks {
 public:
  /// `among`: names the free blocks that it was chosen from.
  void NoteGiven(const CaptureMoment& now, const char* address, uint64_t bytes, const void* among) noexcept;
  /// It is one of those free blocks now.
  void NoteFreed(const CaptureMoment& now, const char* address, const void* among) noexcept;
  /// Those of a capture, in the order in which they were given out anew, or passed over. Forgets it.
  std::vector<ReusedBlock> Take(uint64_t capture);
  void Clear() { logs_.clear(); }

 private:
  struct Life {
    uintptr_t end;
    uint32_t first, behind;
    const void* among;  // of a freed one
  };
  using Lives = std::map<uintptr_t, Life>;  // by the begin of the block; none overlaps another
  struct Log {
    Lives live, freed;
    std::vector<ReusedBlock> reused;
  };
  static Lives::iterator FirstBehind(Lives& lives, uintptr_t address);

  std::map<uint64_t, Log> logs_;  // by capture
};

}  // namespace reprise::memory
