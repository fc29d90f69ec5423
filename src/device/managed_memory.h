// SPDX-License-Identifier: Apache-2.0
//
// Managed memory: device memory that host and device use under one address. Here all memory is like that, so hints and
// prefetches are only remembered, granule by granule, for queries.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/memory.h"

namespace reprise::device {

constexpr uint64_t kManagedGranule = kHugePage;

/// The numbers of `type` are those of aclrtMemManagedLocationType; 0 is no place.
struct ManagedPlace {
  uint32_t type = 0;
  int32_t id = -2;
  bool operator==(const ManagedPlace&) const = default;
};

struct ManagedState {
  bool read_mostly = false;
  bool accessed_by_host = false;
  uint64_t accessed_by = 0;  ///< one bit for each device
  ManagedPlace preferred;
  ManagedPlace prefetched;
};
static_assert(kMaxDevices <= 64, "ManagedState::accessed_by has one bit for each device");

/// What all granules of a range share; no place where they differ.
struct ManagedSummary {
  bool read_mostly = true;
  bool accessed_by_host = true;
  std::vector<int> accessed_by;  ///< devices, ascending
  ManagedPlace preferred;
  ManagedPlace prefetched;
};

/// Threads: thread-safe.
class ManagedMemory {
 public:
  static ManagedMemory& Get();

  /// Rounds up to granules. Freed as any device memory.
  StatusOr<void*> Allocate(int device, uint64_t bytes);
  /// 107000 unless the range lies in one managed allocation.
  Status Check(const void* pointer, uint64_t bytes) const;
  /// As Check, then calls `visit` for each granule that the range touches.
  Status Visit(const void* pointer, uint64_t bytes, const std::function<void(ManagedState&)>& visit);

  /// Notes whether `device` accesses the range; kHostAccess: the host.
  static constexpr int kHostAccess = -1;
  Status SetAccess(const void* pointer, uint64_t bytes, int device, bool on);
  StatusOr<ManagedSummary> Summarize(const void* pointer, uint64_t bytes);

  /// Forgets an allocation that is being freed; called by MemoryRegistry under its lock.
  void Forget(uintptr_t begin) noexcept;

 private:
  Mutex mutex_;  // below that of MemoryRegistry
  std::map<uintptr_t, std::vector<ManagedState>> states_ REPRISE_GUARDED_BY(mutex_);
};

}  // namespace reprise::device
