// SPDX-License-Identifier: Apache-2.0
//
// Which blocks a capture got, gave back, and saw given out anew, in part at least. What its tasks have left in them
// before that is nobody's after a replay: the program has no object there any more, and the memory was somebody else's.
// A block that was given back and not given out anew is not among them: programs look at results through references
// that own nothing. Nor is one that another capture in the same pool gets later.
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
  void NoteGiven(const CaptureMoment& now, const char* address, uint64_t bytes) noexcept;
  void NoteFreed(const CaptureMoment& now, const char* address) noexcept;
  /// Those of a capture, in the order in which they were given out anew. Forgets it.
  std::vector<ReusedBlock> Take(uint64_t capture);
  void Clear() { logs_.clear(); }

 private:
  struct Life {
    uintptr_t end;
    uint32_t first, behind;
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
