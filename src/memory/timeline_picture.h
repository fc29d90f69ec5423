// SPDX-License-Identifier: Apache-2.0
//
// A picture of the memory of each device over time: allocated and reserved bytes, stacked by pool, and what held the
// memory when most of it was taken.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reprise/memory_types.h"

namespace reprise::memory {

struct TimelineOptions {
  std::string title = "Device memory";
  /// Words for pools in the legend: "graph 7".
  std::vector<std::pair<PoolId, std::string>> pool_names;
};

/// A complete SVG document. Without a history it shows what is there now, and says so.
std::string TimelineSvg(const MemorySnapshot& snapshot, const TimelineOptions& options = {});

/// The picture as an HTML page that needs no other file; shows the numbers under the pointer.
std::string TimelineHtml(const MemorySnapshot& snapshot, const TimelineOptions& options = {});

}  // namespace reprise::memory
