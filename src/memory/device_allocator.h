// SPDX-License-Identifier: Apache-2.0
//
// The caching allocator of device memory. Blocks belong to the stream they were taken for, so that using one again
// needs no synchronisation; pools of their own keep what a captured graph has touched away from everybody else.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "memory/config.h"
#include "memory/driver.h"
#include "reprise/memory_types.h"
#include "reprise/pool_state.h"

namespace reprise::memory {

/// Of all devices of a process. Threads: thread-safe; observers and recorders run without any lock held.
class DeviceAllocator {
 public:
  DeviceAllocator(Driver& driver, Config config);
  ~DeviceAllocator();  ///< returns everything to the driver, live blocks included
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  /// For work that is submitted to `stream` from now on. 0 bytes: null. 207001 with who holds what when there is no
  /// room.
  StatusOr<void*> Allocate(int device, uint64_t bytes, void* stream);
  /// 107000 for what is no block, or was freed before; null is fine. Never waits for the device.
  /// `context`: of whoever frees, for the history; null: that of the allocation.
  Status Free(void* block, const TraceContextPtr& context = nullptr);
  /// The block is used on `stream`, too: it is not used again before that has got there. Foreign memory: ignored.
  Status RecordStream(void* block, void* stream);
  /// Takes that back.
  Status EraseStream(void* block, void* stream);
  /// Bytes of the block; 0 for what is none.
  uint64_t SizeOf(const void* block) const;

  /// Returns unused segments of the default pool and of pools without users, or of the pool named if it has none. Waits
  /// for the device first. In a capture context it does not wait, and returns only what an earlier wait has covered, of
  /// pools without users. What streams own that are being captured stays, and so do all private pools while anything is
  /// captured: their graphs may have been launched anywhere.
  Status EmptyCache(PoolId pool = {});
  /// The device is about to take all its memory back: blocks that are held go, too. Pools keep their users.
  void ForgetDevice(int device);
  /// A capture is open on the device, and the calling thread's current stream is being captured.
  bool IsCaptureContext(int device);

  // Private pools. `device` is that of the memory.
  /// Custom memory of a pool; both or none. Called without any lock held. Only when the pool is made.
  struct PoolOptions {
    std::function<void*(uint64_t bytes, int device, void* stream)> allocate;
    std::function<void(void* segment, uint64_t bytes, int device, void* stream)> free;
  };
  Status CreateOrUsePool(int device, PoolId pool, PoolOptions options = {});
  /// Allocations whose stream the filter accepts come from `pool` until EndAllocateToPool; counts a user.
  Status BeginAllocateToPool(int device, PoolId pool, StreamFilter filter);
  Status SwapFilter(int device, PoolId pool, StreamFilter filter);
  /// Users stay.
  Status EndAllocateToPool(int device, PoolId pool);
  /// One user less; without any, EmptyCache may return what no block uses.
  Status ReleasePool(int device, PoolId pool);
  Status SetUseOnOom(int device, PoolId pool, bool use);
  /// Only before its first segment.
  Status SetNoSplit(int device, PoolId pool);
  int PoolUsers(int device, PoolId pool) const;  ///< 0: no such pool
  /// Whether exactly these blocks of the pool are held by somebody.
  std::vector<void*> LiveBlocks(int device, PoolId pool) const;  ///< by address
  bool LiveBlocksAre(int device, PoolId pool, const std::vector<const void*>& blocks) const;

  /// What a pool holds, and back to that; see device_memory::SetPoolState. 107000 when it cannot be.
  StatusOr<PoolState> GetPoolState(int device, PoolId pool) const;
  StatusOr<PoolChange> SetPoolState(const PoolState& state, const std::vector<uint64_t>& released);

  /// Around a capture of any stream of the device: begin after the runtime's, end after the runtime's.
  void MarkCaptureBegin(int device);
  void MarkCaptureEnd(int device);

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
