// SPDX-License-Identifier: Apache-2.0
#include "memory/device_stats.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise {

namespace {

/// Calls visit(name, member) for what is counted by size of block, in the order of the keys.
template <class Stats, class Visit>
void ForEachBySize(Stats& stats, const Visit& visit) {
  visit("allocation", stats.allocation);
  visit("segment", stats.segment);
  visit("active", stats.active);
  visit("inactive_split", stats.inactive_split);
  visit("allocated_bytes", stats.allocated_bytes);
  visit("reserved_bytes", stats.reserved_bytes);
  visit("active_bytes", stats.active_bytes);
  visit("inactive_split_bytes", stats.inactive_split_bytes);
  visit("requested_bytes", stats.requested_bytes);
}

template <class Stats, class Visit>
void ForEachStat(Stats& stats, const Visit& visit) {
  ForEachBySize(stats, [&](std::string_view name, auto& by_size) {
    visit(std::string(name) + ".all", by_size.all);
    visit(std::string(name) + ".small_pool", by_size.small_pool);
    visit(std::string(name) + ".large_pool", by_size.large_pool);
  });
  visit("oversize_allocations", stats.oversize_allocations);
  visit("oversize_segments", stats.oversize_segments);
}

template <class Stats, class Visit>
void ForEachCount(Stats& stats, const Visit& visit) {
  visit("num_alloc_retries", stats.num_alloc_retries);
  visit("num_ooms", stats.num_ooms);
  visit("num_oom_rejections", stats.num_oom_rejections);
  visit("num_sync_all_streams", stats.num_sync_all_streams);
  visit("num_device_alloc", stats.num_device_alloc);
  visit("num_device_free", stats.num_device_free);
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> DeviceStats::Flatten() const {
  std::vector<std::pair<std::string, int64_t>> flat;
  ForEachStat(*this, [&](const std::string& name, const Stat& stat) {
    flat.emplace_back(name + ".current", stat.current);
    flat.emplace_back(name + ".peak", stat.peak);
    flat.emplace_back(name + ".allocated", stat.allocated);
    flat.emplace_back(name + ".freed", stat.freed);
  });
  ForEachCount(*this, [&](const char* name, int64_t count) { flat.emplace_back(name, count); });
  flat.emplace_back("max_split_size", max_split_size);
  return flat;
}

namespace memory {

void ResetPeaks(DeviceStats& stats) {
  ForEachStat(stats, [](const std::string&, Stat& stat) { stat.peak = stat.current; });
}

void ResetAccumulated(DeviceStats& stats) {
  ForEachStat(stats, [](const std::string&, Stat& stat) { stat.allocated = stat.freed = 0; });
  ForEachCount(stats, [](const char*, int64_t& count) { count = 0; });
}

}  // namespace memory

}  // namespace reprise
