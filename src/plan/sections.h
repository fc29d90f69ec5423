// SPDX-License-Identifier: Apache-2.0
//
// Sections of a problem: the moments at which the set of live buffers is greatest, as sets go. Whatever fits in each
// section fits at each moment; there are never more of them than buffers, and usually far fewer than begins and ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/problem.h"

namespace reprise::plan {

struct Sections {
  uint32_t count = 0;
  /// The buffer is live in sections first[i] .. last[i] - 1; always in one at least.
  std::vector<uint32_t> first;
  std::vector<uint32_t> last;
};

inline Sections FindSections(const Problem& problem) {
  std::vector<std::pair<Time, bool>> events;  // and whether something begins; ends come first
  events.reserve(2 * problem.buffers.size());
  for (const Buffer& buffer : problem.buffers) {
    events.emplace_back(buffer.begin, true);
    events.emplace_back(buffer.end, false);
  }
  std::sort(events.begin(), events.end());
  // A section: where something ends after something has begun.
  std::vector<Time> at;  // the last begin before that end
  bool has_grown = false;
  Time last_begin = 0;
  for (const auto& [time, begins] : events) {
    if (begins) {
      has_grown = true;
      last_begin = time;
    } else if (has_grown) {
      at.push_back(last_begin);
      has_grown = false;
    }
  }
  Sections sections;
  sections.count = static_cast<uint32_t>(at.size());
  const auto index = [&](Time time) {
    return static_cast<uint32_t>(std::lower_bound(at.begin(), at.end(), time) - at.begin());
  };
  for (const Buffer& buffer : problem.buffers) {
    sections.first.push_back(index(buffer.begin));
    sections.last.push_back(index(buffer.end));
  }
  return sections;
}

}  // namespace reprise::plan
