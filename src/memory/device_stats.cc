// SPDX-License-Identifier: Apache-2.0
#include "memory/device_stats.h"

#include <string>
#include <utility>
#include <vector>

namespace reprise {

std::vector<std::pair<std::string, int64_t>> DeviceStats::Flatten() const {
  std::vector<std::pair<std::string, int64_t>> flat;
  const auto add = [&](const std::string& name, const Stat& stat) {
    flat.emplace_back(name + ".current", stat.current);
    flat.emplace_back(name + ".peak", stat.peak);
    flat.emplace_back(name + ".allocated", stat.allocated);
    flat.emplace_back(name + ".freed", stat.freed);
  };
  const auto add_by_size = [&](const std::string& name, const StatBySize& by_size) {
    add(name + ".all", by_size.all);
    add(name + ".small_pool", by_size.small_pool);
    add(name + ".large_pool", by_size.large_pool);
  };
  add_by_size("allocation", allocation);
  add_by_size("segment", segment);
  add_by_size("active", active);
  add_by_size("inactive_split", inactive_split);
  add_by_size("allocated_bytes", allocated_bytes);
  add_by_size("reserved_bytes", reserved_bytes);
  add_by_size("active_bytes", active_bytes);
  add_by_size("inactive_split_bytes", inactive_split_bytes);
  add_by_size("requested_bytes", requested_bytes);
  add("oversize_allocations", oversize_allocations);
  add("oversize_segments", oversize_segments);
  flat.emplace_back("num_alloc_retries", num_alloc_retries);
  flat.emplace_back("num_ooms", num_ooms);
  flat.emplace_back("num_oom_rejections", num_oom_rejections);
  flat.emplace_back("num_sync_all_streams", num_sync_all_streams);
  flat.emplace_back("num_device_alloc", num_device_alloc);
  flat.emplace_back("num_device_free", num_device_free);
  flat.emplace_back("max_split_size", max_split_size);
  return flat;
}

namespace memory {

DeviceStats DeviceCounters::Show() const {
  DeviceStats stats;
  stats.allocation = allocation.Show();
  stats.segment = segment.Show();
  stats.active = active.Show(allocation);
  stats.inactive_split = inactive_split.Show();
  stats.allocated_bytes = allocated_bytes.Show();
  stats.reserved_bytes = reserved_bytes.Show();
  stats.active_bytes = active_bytes.Show(allocated_bytes);
  stats.inactive_split_bytes = inactive_split_bytes.Show();
  stats.requested_bytes = requested_bytes.Show();
  stats.oversize_allocations = oversize_allocations.Show();
  stats.oversize_segments = oversize_segments.Show();
  stats.num_alloc_retries = num_alloc_retries;
  stats.num_ooms = num_ooms;
  stats.num_oom_rejections = num_oom_rejections;
  stats.num_sync_all_streams = num_sync_all_streams;
  stats.num_device_alloc = num_device_alloc;
  stats.num_device_free = num_device_free;
  stats.max_split_size = max_split_size;
  return stats;
}

void DeviceCounters::ResetPeaks() {
  for (CounterBySize* counter : {&allocation, &segment, &inactive_split, &allocated_bytes, &reserved_bytes,
                                 &inactive_split_bytes, &requested_bytes}) {
    counter->ResetPeak();
  }
  active.ResetPeak(allocation);
  active_bytes.ResetPeak(allocated_bytes);
  oversize_allocations.ResetPeak();
  oversize_segments.ResetPeak();
}

void DeviceCounters::ResetAccumulated() {
  for (CounterBySize* counter : {&allocation, &segment, &inactive_split, &allocated_bytes, &reserved_bytes,
                                 &inactive_split_bytes, &requested_bytes}) {
    counter->ResetAccumulated();
  }
  active.ResetAccumulated();
  active_bytes.ResetAccumulated();
  oversize_allocations.ResetAccumulated();
  oversize_segments.ResetAccumulated();
  num_alloc_retries = num_ooms = num_oom_rejections = 0;
  num_sync_all_streams = num_device_alloc = num_device_free = 0;
}

}  // namespace memory

}  // namespace reprise
