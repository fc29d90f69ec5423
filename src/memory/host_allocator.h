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

/// Threads: thread-safe.
class HostAllocator {
 public:
  HostAllocator(Driver& driver, Config config);
  ~HostAllocator();
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  /// Rounded up to a power of two. 0 bytes: null. Which pool: decided by the calling thread's current stream.
  StatusOr<void*> Allocate(uint64_t bytes);
  /// 107000 for what is no block, or was freed before. Never waits.
  Status Free(void* block);
  /// A copy of the block (any address in it) has been queued on `stream`. False: not ours.
  StatusOr<bool> RecordUse(const void* address, void* stream);
  /// Returns unused blocks of the default pool and of pools without users.
  Status EmptyCache();
  bool Owns(const void* address) const;

  Status BeginAllocateToPool(PoolId pool, StreamFilter filter);
  Status SwapFilter(PoolId pool, StreamFilter filter);
  Status EndAllocateToPool(PoolId pool);
  /// `idle`, if given, tells whether the graph that releases has ended its last replay: blocks that its captured
  /// copies use are reclaimed only then. Never waits.
  Status ReleasePool(PoolId pool, std::function<bool()> idle = {});
  int PoolUsers(PoolId pool) const;

  HostStats Stats() const;
  void ResetPeakStats();
  void ResetAccumulatedStats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise::memory
