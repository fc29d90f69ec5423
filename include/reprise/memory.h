/* SPDX-License-Identifier: Apache-2.0
 *
 * Caching allocators of device memory and of pinned host memory, with pools of their own for captured graphs.
 *
 *     void* x = reprise::device_memory::Allocate(1 << 20, stream);  // for work on `stream`, no call to the device if
 * cached reprise::device_memory::RecordStream(x, other);               // used on another stream, too
 *     reprise::device_memory::Free(x);                              // at once; used again when `other` has got there
 *
 * Rules. A block belongs to the stream it was allocated for: work on that stream may use it until Free, and whoever
 * gets it next on that stream comes later in stream order. Inside a capture, allocations for captured streams come from
 * the pool of the graph, which nobody else can touch until every graph of that pool is reset.
 *
 * Settings: PYTORCH_NPU_ALLOC_CONF or PYTORCH_ALLOC_CONF, read at the first use. All functions are thread-safe and
 * throw reprise::Exception; OutOfMemory when there is no room.
 */
#ifndef REPRISE_MEMORY_H_
#define REPRISE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "memory_types.h"
#include "pool_state.h"

namespace reprise {

/** A name for a pool that graphs can share; never given twice. */
PoolId NewPoolId();

/** Changes settings of both allocators while they are in use: "key:value,key:value" with expandable_segments,
 *  max_split_size_mb, max_non_split_rounding_mb, release_lock_on_npumalloc, throw_on_npumalloc_oom,
 *  per_process_memory_fraction, graph_capture_record_stream_reuse, pinned_max_round_threshold_mb,
 *  pinned_max_cached_size_mb. All of them or none.
 *  Throws Exception: 107000 unknown or fixed key, bad value, settings that exclude each other. */
void ChangeMemorySettings(const std::string& settings);
/** Every setting that is known, with its value as text; empty: not set, no limit. Throws Exception: 107000 the
 * environment's are malformed. */
std::vector<std::pair<std::string, std::string>> MemorySettings();

namespace device_memory {

/** Memory for work on `stream` (null: the calling thread's current stream), on the stream's device. 0 bytes: null. */
void* Allocate(size_t bytes, void* stream = nullptr);
/** Gives a block back. Null is ignored; never waits. `context`: of the caller, for the history; null: that of the
 *  allocation.
 *  Throws Exception: 107000 not a live block. */
void Free(void* block, const TraceContextPtr& context = nullptr);
/** The block is used by work on `stream` that was submitted before. Memory of others is ignored. */
void RecordStream(void* block, void* stream);
void EraseStream(void* block, void* stream);
/** Bytes of a block, rounding included; 0 for memory of others. */
size_t SizeOf(const void* block) noexcept;

/** Returns what nobody uses to the device: of the default pool and of pools without a graph, or of one pool. Waits for
 *  the device, except in a capture. */
void EmptyCache(PoolId pool = {});

DeviceStats Stats(int device);
void ResetPeakStats(int device);
void ResetAccumulatedStats(int device);
/** 0 to 1: how much of the device's memory this process may reserve. */
void SetFraction(int device, double fraction);
double Fraction(int device);

MemorySnapshot Snapshot(PoolId pool = {});
/** Keeps the newest `entries` events of each device; 0: off. `skipped`: a bit (1 << action) for each kind of event that
 *  is not kept. */
void RecordHistory(uint64_t entries, ContextRecorder recorder = nullptr, uint32_t skipped = 0);
/** Writes a snapshot by the ending of the name: .pickle (PyTorch's memory viewer), .json, .svg or .html (a timeline).
 */
void DumpSnapshot(const std::string& path);

using OomObserver = std::function<void(int device, uint64_t bytes, uint64_t total, uint64_t free)>;
void AddOomObserver(OomObserver observer);
void AddFreeMemoryCallback(std::function<bool()> callback);
/** What a thread does around each wait for the device in Allocate and EmptyCache, without a lock of the allocator:
 *  `leave` lets go of a lock that work of the device may need, `enter` gets what it returned and takes the lock again.
 *  Both or none; of the whole process. */
void SetWaitScope(void* (*leave)(), void (*enter)(void* left));

/** Allocations whose stream the filter accepts come from the pool until EndPool. Counts a user of the pool. */
void BeginPool(int device, PoolId pool, StreamFilter filter);
void EndPool(int device, PoolId pool);
/** One user less. */
void ReleasePool(int device, PoolId pool);
int PoolUsers(int device, PoolId pool);
/** The starts of the pool's blocks that somebody holds, in order of address. */
std::vector<void*> LiveBlocks(int device, PoolId pool);
/** What the pool holds now, for SetPoolState. Not of pools with expandable segments. */
PoolState GetPoolState(int device, PoolId pool);
/** Sets a pool back: frees all that is held in it, then cuts its segments as they were cut and holds what was held
 *  then. Nothing is copied: what the bytes are is the caller's business, and so is that nobody uses what is freed.
 *  `released`: what the caller knows to be held and gives up; held blocks that are not among them are refused.
 *  Throws Exception: 107000 the pool has changed so that it cannot be set back, or a stream still uses a block. */
PoolChange SetPoolState(const PoolState& state, const std::vector<uint64_t>& released);

}  // namespace device_memory

namespace host_memory {

/** Pinned memory, from the pool that the calling thread's current stream belongs to. 0 bytes: null. */
void* Allocate(size_t bytes);
/** Null is ignored; never waits. */
void Free(void* block);
/** An asynchronous copy from or to this address has been submitted to `stream`. False: not memory of ours. */
bool RecordUse(const void* address, void* stream);
bool Owns(const void* address) noexcept;
void EmptyCache();
HostStats Stats();
void ResetPeakStats();
void ResetAccumulatedStats();

}  // namespace host_memory

/** A pool that lives as long as the object, and then as long as its blocks. */
class MemPool {
 public:
  struct Options {
    bool use_on_oom = false;  ///< others may use its free blocks when the device has no room
    bool no_split = false;
    /// Instead of the device's own memory; both or none.
    std::function<void*(uint64_t bytes, int device, void* stream)> allocate;
    std::function<void(void* segment, uint64_t bytes, int device, void* stream)> free;
  };
  explicit MemPool(int device = -1);
  MemPool(int device, Options options);
  ~MemPool();
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  PoolId id() const { return id_; }
  int device() const { return device_; }
  int use_count() const;
  MemorySnapshot Snapshot() const;

 private:
  PoolId id_;
  int device_;
};

/** Allocations of the calling thread come from the pool until the end of the scope. Scopes nest: the newest wins. */
class UsePool {
 public:
  explicit UsePool(const MemPool& pool);
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  PoolId id_;
  int device_;
};

}  // namespace reprise

#endif  // REPRISE_MEMORY_H_
