// SPDX-License-Identifier: Apache-2.0
//
// Markers: what the mstx* functions do. Marks and ranges with a domain each, on the calling thread and, where one is
// named, on a stream. They go into the timeline (device/timeline.h) and are kept only while somebody records.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace reprise::profile {

/// Threads: thread-safe. A domain is a number; 0 is none. Numbers are never used again.
class Markers {
 public:
  /// 207005 when there are too many.
  static StatusOr<uint64_t> CreateDomain(std::string name);
  /// 107017 unless there is such a domain; 0 is good.
  static Status CheckDomain(uint64_t domain);
  /// Open ranges and registered memory of it end, too; those on streams are not shown.
  static Status DestroyDomain(uint64_t domain);
  /// `stream`: handle of a stream, or null.
  static Status Mark(uint64_t domain, const std::string& text, void* stream);
  /// A number of the range, never 0. 207005 when too many are open.
  static StatusOr<uint64_t> Start(uint64_t domain, const std::string& text, void* stream);
  /// 100000 for a number that is no open range of that domain.
  static Status End(uint64_t domain, uint64_t range);
};

}  // namespace reprise::profile
