// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory: a block is taken for later work of one stream and given back behind earlier work, so that the
// host never waits. A block that came back is used again at once in its own stream, in another one when the work in
// front of its return has run, or, where that is allowed, by letting the new stream wait for that work.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "device/memory.h"
#include "runtime/objects.h"

namespace reprise::runtime {

class Device;
class Stream;

/// Attributes of a pool; the numbers are those of aclrtMemPoolAttr.
enum class PoolAttribute : uint32_t {
  kFollowEvents = 1,
  kOpportunistic,
  kInternalDependencies,
  kReleaseThreshold,
  kReservedNow,
  kReservedMost,
  kUsedNow,
  kUsedMost
};

/// Threads: thread-safe.
class MemoryPool {
 public:
  static StatusOr<MemoryPool*> Create(Device& device, uint64_t most_bytes);
  /// Destroys the pool, whose memory goes with its last block. False when another thread was faster.
  static bool Destroy(MemoryPool* pool);

  void* handle() const { return handle_; }
  int device() const { return device_; }
  std::string Describe() const;

  /// A block for work that is submitted to the stream from now on. 207001 when the pool or the device has no room.
  StatusOr<void*> Take(Stream& stream, uint64_t bytes);
  /// Gives a block of any pool back, behind the work that the stream has now; 107000 for an address that is no block,
  /// or a block that is back already.
  static Status GiveBack(void* block, Stream& stream);

  /// Whether the limit of the pool leaves no room for a fresh block.
  bool IsFullFor(uint64_t bytes) const;

  uint64_t Get(PoolAttribute attribute) const;
  /// 107000 for what can only be read, and for marks other than 0.
  Status Set(PoolAttribute attribute, uint64_t value);
  /// Returns idle memory to the device until at most `keep` bytes, or those in use, are left.
  void TrimTo(uint64_t keep);

  /// Trims every pool to its threshold and releases parked memory: what a synchronisation does.
  static void TrimAll();
  /// The device's memory has been freed as a whole.
  static void ForgetDevice(int device, device::Users users);

 private:
  struct Block;
  struct All;
  static All& TheAll();
  MemoryPool(int device, uint64_t most_bytes) : device_(device), most_bytes_(most_bytes) {}
  void TrimLocked(All& all, uint64_t keep) REPRISE_NOT_ANALYSED;
  void DeleteIfEmpty(All& all)
      REPRISE_NOT_ANALYSED;  // as TrimLocked, with the lock of `all`, whose type is not known here
  static void Free(void* pool) { delete static_cast<MemoryPool*>(pool); }

  const int device_;
  const uint64_t most_bytes_;  // 0: no limit
  void* handle_ = nullptr;
  int32_t id_ = 0;
  uint64_t birth_ = 0;  // when it is destroyed
  bool destroyed_ = false;
  // All guarded by the one lock of pools.
  bool follow_events_ = true;
  bool opportunistic_ = true;
  bool internal_dependencies_ = true;
  uint64_t release_threshold_ = 0;
  uint64_t reserved_ = 0, reserved_most_ = 0;
  uint64_t used_ = 0, used_most_ = 0;
};

HandleTable<MemoryPool, HandleKind::kMemoryPool>& MemoryPools();

}  // namespace reprise::runtime
