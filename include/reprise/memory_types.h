/* SPDX-License-Identifier: Apache-2.0
 *
 * What the caching allocators count and show: names of pools, statistics, snapshots. Plain values, no ownership.
 */
#ifndef REPRISE_MEMORY_TYPES_H_
#define REPRISE_MEMORY_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

/** Names a pool. At most one half is not zero: {0,0} the default pool, {n,0} made by a capture for itself,
 *  {0,n} made by NewPoolId() or a MemPool. Never used again within a process. */
struct PoolId {
  uint64_t capture = 0;
  uint64_t handle = 0;
  friend bool operator==(const PoolId& a, const PoolId& b) { return a.capture == b.capture && a.handle == b.handle; }
  friend bool operator!=(const PoolId& a, const PoolId& b) { return !(a == b); }
  friend bool operator<(const PoolId& a, const PoolId& b) {
    return a.capture != b.capture ? a.capture < b.capture : a.handle < b.handle;
  }
  bool is_default() const { return capture == 0 && handle == 0; }
};

/** Whether an allocation on this stream belongs to a pool. Called with the lock of the allocator held, from any
 *  thread: it must not allocate, free or wait. */
using StreamFilter = std::function<bool(void* stream)>;

/** One quantity over time. `allocated` and `freed` only grow (until they are reset); current = what is there now. */
struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;
  int64_t freed = 0;
  friend bool operator==(const Stat& a, const Stat& b) {
    return a.current == b.current && a.peak == b.peak && a.allocated == b.allocated && a.freed == b.freed;
  }
};

/** The same quantity of all blocks, of those up to 1 MiB, and of larger ones. */
struct StatBySize {
  Stat all, small_pool, large_pool;
  friend bool operator==(const StatBySize& a, const StatBySize& b) {
    return a.all == b.all && a.small_pool == b.small_pool && a.large_pool == b.large_pool;
  }
};

/** Of one device. Private pools count like any other. */
struct DeviceStats {
  // Counts.
  StatBySize allocation;      ///< blocks that the user holds
  StatBySize segment;         ///< ranges taken from the device
  StatBySize active;          ///< held, or freed and waiting for a stream that uses them
  StatBySize inactive_split;  ///< free parts of segments that are not wholly free
  // Sums of bytes.
  StatBySize allocated_bytes;
  StatBySize reserved_bytes;  ///< of segments: what the device misses
  StatBySize active_bytes;
  StatBySize inactive_split_bytes;
  StatBySize requested_bytes;  ///< as asked for, before rounding
  // Counts; blocks and segments of at least max_split_size.
  Stat oversize_allocations;
  Stat oversize_segments;
  // Counts.
  int64_t num_alloc_retries = 0;  ///< the cache was flushed to satisfy an allocation
  int64_t num_ooms = 0;
  int64_t num_oom_rejections = 0;  ///< refused by policy, without flushing
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  // Size in bytes; -1: no limit.
  int64_t max_split_size = -1;

  /// "allocated_bytes.small_pool.peak" and its like with their values, in a fixed order.
  std::vector<std::pair<std::string, int64_t>> Flatten() const;
  friend bool operator==(const DeviceStats& a, const DeviceStats& b) { return a.Flatten() == b.Flatten(); }
};

/** Microseconds that calls took. */
struct DurationStat {
  int64_t total = 0, max = 0, min = 0, count = 0;
  int64_t avg() const { return count == 0 ? 0 : total / count; }
};

/** Of pinned host memory. Bytes are those of rounded sizes. */
struct HostStats {
  int64_t num_host_alloc = 0;  ///< calls to the runtime
  int64_t num_host_free = 0;
  Stat allocations;      ///< blocks owned, handed out or cached
  Stat active_requests;  ///< blocks handed out, or waiting for a stream that uses them
  Stat allocated_bytes;
  Stat active_bytes;
  DurationStat host_alloc_time;
  DurationStat host_free_time;
  std::vector<std::pair<std::string, int64_t>> Flatten() const;
};

/** A place in the program. */
struct Frame {
  std::string filename;
  int64_t line = 0;
  std::string name;
};

/** Where an allocation was made; turned into words only when somebody looks. Thread-safe. */
class TraceContext {
 public:
  virtual ~TraceContext() = default;
  virtual std::vector<Frame> Frames() const = 0;
};
using TraceContextPtr = std::shared_ptr<const TraceContext>;
/** Takes the context of the calling thread; called without any lock of the allocator. */
using ContextRecorder = TraceContextPtr (*)();

enum class BlockState { kActiveAllocated, kActivePendingFree, kInactive };

struct BlockInfo {
  uint64_t address = 0;
  uint64_t size = 0;            ///< bytes
  uint64_t requested_size = 0;  ///< bytes; 0 when inactive
  BlockState state = BlockState::kInactive;
  TraceContextPtr context;
};

struct SegmentInfo {
  int device = 0;
  uint64_t address = 0;
  uint64_t total_size = 0;      ///< bytes, mapped ones only
  uint64_t allocated_size = 0;  ///< bytes that the user holds
  uint64_t active_size = 0;
  uint64_t requested_size = 0;
  void* stream = nullptr;  ///< the owner
  PoolId pool;
  bool is_large = false;
  bool is_expandable = false;
  TraceContextPtr context;
  std::vector<BlockInfo> blocks;  ///< by address
};

enum class TraceAction {
  kAlloc,
  kFreeRequested,  ///< the user has given it back
  kFreeCompleted,  ///< no stream uses it any more
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOom
};

struct TraceEntry {
  TraceAction action = TraceAction::kAlloc;
  int device = 0;
  uint64_t address = 0;  ///< kOom: bytes that the device has free
  uint64_t size = 0;     ///< bytes
  void* stream = nullptr;
  PoolId pool;
  int64_t time_us = 0;  ///< since the epoch
  TraceContextPtr context;
};

/** Everything that the device allocator knows; one moment for each device. */
struct MemorySnapshot {
  std::vector<SegmentInfo> segments;                   ///< by device and address
  std::vector<std::vector<TraceEntry>> device_traces;  ///< by device, oldest first; empty unless recorded
  std::vector<std::pair<std::string, std::string>> settings;
};

}  // namespace reprise

#endif  // REPRISE_MEMORY_TYPES_H_
