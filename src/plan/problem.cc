// SPDX-License-Identifier: Apache-2.0
#include "plan/problem.h"

#include <algorithm>

namespace reprise::plan {

std::string NameOf(const Problem& problem, BufferId buffer) {
  return buffer < problem.names.size() ? problem.names[buffer] : std::to_string(buffer);
}

Bytes HeightOf(const Problem& problem, const std::vector<Bytes>& offsets) {
  Bytes height = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (problem.buffers[i].size > 0) height = std::max(height, offsets[i] + problem.buffers[i].size);
  }
  return height;
}

Bytes LowerBound(const Problem& problem) {
  Bytes bound = 0;
  std::vector<std::pair<Time, Bytes>> changes;  // ends come first: what has ended makes room for what begins
  changes.reserve(2 * problem.buffers.size());
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.at != kAnywhere && buffer.size > 0) bound = std::max(bound, buffer.at + buffer.size);
    changes.emplace_back(buffer.begin, buffer.size);
    changes.emplace_back(buffer.end, -buffer.size);
  }
  std::sort(changes.begin(), changes.end());
  Bytes live = 0;
  for (const auto& [time, bytes] : changes) bound = std::max(bound, live += bytes);
  return bound;
}

}  // namespace reprise::plan
