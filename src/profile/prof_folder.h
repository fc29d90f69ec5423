// SPDX-License-Identifier: Apache-2.0
//
// Record folders: what the command msprof, and programs that call it, find of a recording beside its timeline:
//
//     PROF_<number>_<time>_P<process>/
//         host/start_info, host/end_info   clocks and devices, as JSON
//         host/data/timeline.json          the trace that Stop wrote; another name of the same file where links work
//         device_<n>/data/                 one for each device
//
// msprof (tools/profiler) makes the tables out of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::profile {

/// One instant on three clocks, in nanoseconds. Profilers of frameworks take the raw clock, which runs a little
/// faster or slower than that of the timeline.
struct Clocks {
  uint64_t unix_ns;
  uint64_t raw_ns;
  uint64_t monotonic_ns;

  static Clocks Now();
};

struct Record {
  std::string folder;  ///< of aclprofInit
  std::string trace;   ///< path of the timeline that is written already
  uint32_t number;     ///< of the recording in this process
  std::vector<int32_t> devices;
  Clocks begin;
  Clocks end;
};

/// 500005 when it cannot be written; then nothing of it is left.
Status WriteRecordFolder(const Record& record);

}  // namespace reprise::profile
