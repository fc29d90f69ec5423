// SPDX-License-Identifier: Apache-2.0
//
// Static memory planning: buffers whose lifetimes are known beforehand get offsets in one block of memory.
//
// A problem is a list of buffers, a solution one offset for each. Two buffers of which one begins to live before the
// other has ended may not share bytes; what the lifetimes do not say (two lanes that the graph does not order) is
// listed pair by pair. solve.h finds solutions, validate.h checks them, csv.h reads and writes both.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace reprise::plan {

using Bytes = int64_t;  ///< of sizes and offsets
using Time = int64_t;   ///< of any unit; only the order counts
using BufferId = uint32_t;

inline constexpr Bytes kAnywhere = -1;
/// The greatest sum of sizes, rounded up to their alignments, that a problem may have: offsets cannot overflow.
inline constexpr Bytes kMostBytes = Bytes{1} << 60;

struct Buffer {
  Time begin = 0;        ///< the first moment at which it is live
  Time end = 0;          ///< the first moment at which it no longer is; greater than begin
  Bytes size = 0;        ///< 0 and up
  Bytes alignment = 1;   ///< of its offset; a power of two
  Bytes at = kAnywhere;  ///< the offset that it must have, a multiple of its alignment

  bool operator==(const Buffer&) const = default;
};

/// Whether both are live at one moment.
inline bool OverlapInTime(const Buffer& a, const Buffer& b) { return a.begin < b.end && b.begin < a.end; }

inline uint64_t Lifetime(const Buffer& buffer) {
  return static_cast<uint64_t>(buffer.end) - static_cast<uint64_t>(buffer.begin);
}

struct Problem {
  std::vector<Buffer> buffers;
  /// Further pairs that may not share bytes, although their lifetimes do not overlap.
  std::vector<std::pair<BufferId, BufferId>> apart;
  /// For files, pictures and messages; empty, or one name for each buffer.
  std::vector<std::string> names;

  bool operator==(const Problem&) const = default;
};

/// The buffer's name, or its index.
std::string NameOf(const Problem& problem, BufferId buffer);

struct Solution {
  std::vector<Bytes> offsets;  ///< of the buffers, in their order
  Bytes height = 0;            ///< bytes of the block: the greatest end of a buffer

  bool operator==(const Solution&) const = default;
};

/// The greatest end of a buffer; buffers of no bytes count nothing.
Bytes HeightOf(const Problem& problem, const std::vector<Bytes>& offsets);

/// No solution is lower: the greatest sum of sizes that are live at one moment, or the end of a buffer whose offset is
/// given.
Bytes LowerBound(const Problem& problem);

/// `value` rounded up to a multiple of a power of two.
constexpr Bytes RoundUp(Bytes value, Bytes alignment) { return (value + alignment - 1) & ~(alignment - 1); }

}  // namespace reprise::plan
