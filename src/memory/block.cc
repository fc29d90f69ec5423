// SPDX-License-Identifier: Apache-2.0
#include "memory/block.h"

#include <algorithm>
#include <bit>

namespace reprise::memory {

Silo* BlockPool::FindOrMake(void* stream) {
  if (Silo* found = Find(stream)) return found;
  auto silo = std::make_unique<Silo>();
  silo->blocks = this;
  silo->stream = stream;
  return recent = (silos[stream] = std::move(silo)).get();
}

void BlockPool::EraseIfEmpty(Silo* silo) {
  if (silo->segments != 0) return;
  if (recent == silo) recent = nullptr;
  silos.erase(silo->stream);
}

bool RoundsByPowers(const Config& config) {
  return std::any_of(config.roundup_power2_divisions.begin(), config.roundup_power2_divisions.end(),
                     [](uint64_t steps) { return steps > 1; });
}

uint64_t RoundSize(uint64_t bytes, const Config& config) {
  if (bytes < kMinBlock) return kMinBlock;
  const std::vector<uint64_t>& divisions = config.roundup_power2_divisions;
  if (!divisions.empty()) {
    const int log2 = std::bit_width(bytes) - 1;
    const int last = static_cast<int>(divisions.size()) - 1;
    const uint64_t steps = divisions[std::clamp(log2 - 20, 0, last)];  // 2^20: one MiB
    if (steps > 1 && bytes > kMinBlock * steps) {
      const uint64_t power = uint64_t{1} << log2;
      return RoundUp(RoundUp(bytes - power, std::max<uint64_t>(power / steps, 1)) + power, kMinBlock);
    }
  }
  return RoundUp(bytes, kMinBlock);
}

uint64_t SegmentSize(uint64_t size, const Config& config) {
  if (size <= kSmallSize) return kSmallSegment;
  if (size < kMinLargeAlloc) return config.large_segment_size;
  return RoundUp(size, kRoundLarge);
}

}  // namespace reprise::memory
