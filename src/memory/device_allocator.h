// SPDX-License-Identifier: Apache-2.0
//
// The caching allocator of device memory. Blocks belong to the stream they were taken for, so that using one again
// needs no synchronisation; pools of their own keep what a captured graph has touched away from everybody else.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "memory/captured_blocks.h"
#include "memory/config.h"
#include "memory/driver.h"
#include "reprise/memory_types.h"
#include "reprise/pool_state.h"

namespace reprise::memory {

/// The allocator of all devices of a process. Threads: thread-safe; observers and recorders run without any lock held.
class DeviceAllocator {
 public:
  DeviceAllocator(Driver& driver, Config config);
  ~DeviceAllocator();  ///< returns everything to the driver, live blocks included
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  /// A block for work that is submitted to `stream` from now on. 0 bytes: null. 207001 when there is no room; the
  /// message says who holds how much.
  StatusOr<void*> Allocate(int device, uint64_t bytes, void* stream);
  /// Frees a block; 107000 for an address that is no block or was freed before; null is fine. Never waits for the
  /// device. `context`: the place of this call, for the history; null: the place of the allocation.
  Status Free(void* block, const TraceContextPtr& context = nullptr);
  /// The block is used on `stream`, too: after its free it is not given out again before `stream` has run the work that
  /// it has then. Memory of others is ignored.
  Status RecordStream(void* block, void* stream);
  /// Undoes RecordStream.
  Status EraseStream(void* block, void* stream);
  /// Bytes of the block; 0 for an address that is no block.
  uint64_t SizeOf(const void* block) const;

  /// Returns unused segments of the default pool and of pools without users, or of the pool named if it has none. Waits
  /// for the device first. In a capture context it does not wait, and returns only segments of pools without users that
  /// an earlier wait has covered. Segments of streams that are being captured stay, and so do all private pools while
  /// anything is captured: their graphs may have been launched on any stream.
  Status EmptyCache(PoolId pool = {});
  /// The device is about to free all its memory: blocks that the program holds are forgotten, too. Pools keep their
  /// users.
  void ForgetDevice(int device);
  /// Several threads are about to allocate and free a lot: as if they had been seen to wait for each other already.
  void ExpectThreads(int device);
  /// Whether a capture is open on the device and the calling thread's current stream is being captured.
  bool IsCaptureContext(int device);

  // Private pools. `device` is that of the memory.
  /// Functions of the program that allocate and free the memory of a pool: both or none, given when the pool is made.
  /// Called without any lock held.
  struct PoolOptions {
    std::function<void*(uint64_t bytes, int device, void* stream)> allocate;
    std::function<void(void* segment, uint64_t bytes, int device, void* stream)> free;
  };
  Status CreateOrUsePool(int device, PoolId pool, PoolOptions options = {});
  /// Allocations whose stream the filter accepts come from `pool` until EndAllocateToPool; counts a user.
  Status BeginAllocateToPool(int device, PoolId pool, StreamFilter filter);
  Status SwapFilter(int device, PoolId pool, StreamFilter filter);
  /// Ends BeginAllocateToPool; the count of users stays.
  Status EndAllocateToPool(int device, PoolId pool);
  /// Removes a user; of a pool without users EmptyCache may return unused segments.
  Status ReleasePool(int device, PoolId pool);
  Status SetUseOnOom(int device, PoolId pool, bool use);
  /// Blocks of the pool are not split; only before the pool has its first segment.
  Status SetNoSplit(int device, PoolId pool);
  int PoolUsers(int device, PoolId pool) const;  ///< 0: no such pool
  /// Whether exactly these blocks of the pool are held by the program.
  std::vector<void*> LiveBlocks(int device, PoolId pool) const;  ///< by address
  bool LiveBlocksAre(int device, PoolId pool, const std::vector<const void*>& blocks) const;

  /// The state of a pool, and the return to it; see device_memory::SetPoolState. 107000 when the state cannot be
  /// restored.
  StatusOr<PoolState> GetPoolState(int device, PoolId pool) const;
  StatusOr<PoolChange> SetPoolState(const PoolState& state, const std::vector<uint64_t>& released);

  /// Around a capture of any stream of the device: begin after the runtime's, end after the runtime's.
  void MarkCaptureBegin(int device);
  void MarkCaptureEnd(int device);
  /// Blocks that were freed while the capture with this id was open, and that it has used again or passed over
  /// (captured_blocks.h). Asked once, before its MarkCaptureEnd.
  std::vector<ReusedBlock> TakeReusedBlocks(int device, uint64_t capture);

  // Limits and policy.
  /// 0 to 1 of the device's memory; above, allocations are refused.
  Status SetMemoryFraction(int device, double fraction);
  double MemoryFraction(int device) const;
  Status SetConfig(const Config& config);
  Config GetConfig() const;

  // Insight.
  DeviceStats Stats(int device) const;
  void ResetPeakStats(int device);
  void ResetAccumulatedStats(int device);
  /// Of all pools, or of one; without the history when `with_trace` is false. A range of addresses with holes shows as
  /// one segment for each part that has memory.
  MemorySnapshot Snapshot(PoolId pool = {}, bool with_trace = true) const;
  /// `recorder` may be null: no contexts. entries: of the ring buffer of each device; 0 switches it off. What was
  /// recorded before is forgotten. A context may end with the lock held: it must not call the allocator then.
  /// `skipped`: a bit (1 << action) for each kind of event that is not kept.
  void RecordHistory(ContextRecorder recorder, uint64_t entries, uint32_t skipped = 0);
  using OomObserver = std::function<void(int device, uint64_t bytes, uint64_t total, uint64_t free)>;
  void AddOomObserver(OomObserver observer);
  /// Called once before memory is taken from the device; true when it has freed something. Without the lock.
  void AddFreeMemoryCallback(std::function<bool()> callback);
  /// For reports of a memory checker: of which block the address is, and what has become of it. Empty when it is of
  /// none, or the allocator is in use.
  std::string ExplainReport(uintptr_t address) const;
  /// Words for a pool in messages: "graph 7". Empty: forget it.
  void NamePool(PoolId pool, std::string owner);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise::memory
