// SPDX-License-Identifier: Apache-2.0
//
// The caching allocator of pinned host memory. A block is used again when every stream that used it has got past its
// use; what a captured copy reads stays as it is until the graphs of its pool are gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "memory/config.h"
#include "memory/driver.h"
#include "reprise/memory_types.h"

namespace reprise::memory {

/// Threads: thread-safe. Filters are called with its lock held; the driver records events and takes and returns memory
/// without it. A call whose current stream is being captured neither records nor queries events, and returns nothing to
/// the driver.
class HostAllocator {
 public:
  HostAllocator(Driver& driver, Config config);
  /// Returns everything to the driver, live blocks included; waits for the streams that still use blocks.
  ~HostAllocator();
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  /// A block of `bytes`, rounded up to a power of two. 0 bytes: null. The pool is the first one whose filter accepts
  /// the calling thread's current stream. 207001 when there is no room; the message says who holds how much.
  StatusOr<void*> Allocate(uint64_t bytes);
  /// Frees a block; 107000 for an address that is no block or was freed before. Never waits. Null: nothing happens.
  Status Free(void* block);
  /// A copy of the block (any address in it) has been queued on `stream`. If that stream is captured into a pool, the
  /// block belongs to the graphs of that pool until the last of them is gone, wherever it came from. False: not ours.
  /// 107000: the block has been freed.
  StatusOr<bool> RecordUse(const void* address, void* stream);
  /// Returns unused blocks of the default pool and of pools without users.
  Status EmptyCache();
  /// Whether the address lies in a block of this allocator, handed out or not.
  bool Owns(const void* address) const;

  /// Allocations whose current stream the filter accepts come from `pool` until EndAllocateToPool; counts a user. A
  /// pool that has lost its last user begins a new life, which shares nothing with the one before. 107000: "already
  /// recording", or a pool that cannot be.
  Status BeginAllocateToPool(PoolId pool, StreamFilter filter);
  Status SwapFilter(PoolId pool, StreamFilter filter);
  /// Ends BeginAllocateToPool; the count of users stays. 107000: "not currently recording".
  Status EndAllocateToPool(PoolId pool);
  /// `idle`, if given, tells whether the graph that releases has ended its last replay: blocks that its captured
  /// copies use are reclaimed only then. It is called from any thread, without a lock, until it says so; it must not
  /// wait or call the allocator. Never waits.
  Status ReleasePool(PoolId pool, std::function<bool()> idle = {});
  int PoolUsers(PoolId pool) const;  ///< 0: no such pool

  /// Takes over the settings that may change: the limit of rounding, and that of the memory that is kept.
  void SetConfig(const Config& config);

  HostStats Stats() const;
  void ResetPeakStats();
  void ResetAccumulatedStats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise::memory
