// SPDX-License-Identifier: Apache-2.0
//
// Settings of the caching allocators: PYTORCH_NPU_ALLOC_CONF or PYTORCH_ALLOC_CONF, a list "key:value,key:value".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise::memory {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

struct Config {
  // Device memory. Sizes in bytes.
  uint64_t max_split_size = UINT64_MAX;
  uint64_t max_non_split_rounding = 20 * kMiB;
  uint64_t large_segment_size = 20 * kMiB;
  double garbage_collection_threshold = 0;  ///< of the allowed memory; 0: off
  /// Steps between two powers of two, by size class: index i for sizes from 2^i MiB on. 0 or 1: multiples of 512.
  std::vector<uint64_t> roundup_power2_divisions = std::vector<uint64_t>(16, 0);
  bool expandable_segments = false;
  bool expandable_pages_1g = false;  ///< page_size:1g
  uint64_t base_addr_aligned = 16 * kKiB;
  bool multi_stream_lazy_reclaim = false;
  double per_process_memory_fraction = 1;
  bool release_lock_on_malloc = false;
  bool throw_on_oom = false;  ///< refuse at once instead of flushing and trying again
  /// Blocks that several captured streams have used can be had again inside of the capture, once the stream that they
  /// belong to waits for these uses. Otherwise they wait for the end of the capture.
  bool graph_capture_record_stream_reuse = false;
  bool no_cache = false;  ///< PYTORCH_NO_NPU_MEMORY_CACHING

  // Pinned memory.
  bool pinned_use_background_threads = false;
  uint64_t pinned_max_round_threshold = UINT64_MAX;
  uint64_t pinned_max_cached_size = UINT64_MAX;
  bool pinned_mem_register = false;
  uint64_t pinned_reserve_segment_size = 0;
  /// Knows no private pools, so captures are refused while it is set.
  bool pin_memory_expandable_segments = false;

  /// 107000 for an unknown key, a bad value, or keys that exclude each other; the message names the key.
  static StatusOr<Config> Parse(std::string_view text);
  struct Change;
  /// What this becomes by a text like that of the environment while allocators use it. 107000 also for a key that is
  /// read only when they are made.
  StatusOr<Change> ChangedBy(std::string_view text) const;
  /// From the environment; the two variables at once are refused.
  static StatusOr<Config> FromEnvironment();
  /// Keys and values as they are set, for snapshots.
  std::vector<std::pair<std::string, std::string>> Settings() const;
  /// Settings and the keys that are not set, whose values are empty.
  std::vector<std::pair<std::string, std::string>> AllSettings() const;
};

struct Config::Change {
  Config config;
  bool names_fraction = false;  ///< which is in force then, whatever a call has set for a device
};

}  // namespace reprise::memory
