// SPDX-License-Identifier: Apache-2.0
//
// Address ranges and the memory behind them, apart from each other. A reservation is address space that nothing can
// touch; physical memory is a memory file; mapping puts one into the other. Mapped memory is registered like any other.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/handle_table.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/memory.h"
#include "device/share.h"

namespace reprise::device {

/// Where physical memory lives and what it is; the numbers are those of aclrtPhysicalMemProp.
struct PhysicalProperties {
  uint32_t attribute = 0;      ///< aclrtMemAttr
  uint32_t location_type = 0;  ///< aclrtMemLocationType
  uint32_t location_id = 0;
  int device = 0;        ///< whose memory it is; for host memory, the device that was current
  bool on_host = false;  ///< not charged to a device
};

/// Who may use mapped memory: type and id of an aclrtMemLocation.
struct AccessLocation {
  uint32_t type;
  uint32_t id;
  auto operator<=>(const AccessLocation&) const = default;
};

/// A memory file. Lives while the user has references or it is mapped. Guarded by the lock of VirtualMemory.
struct PhysicalMemory {
  void* handle = nullptr;
  PhysicalProperties properties;
  uint64_t bytes = 0;
  int fd = -1;
  uint32_t references = 1;  ///< of the user
  uint32_t mappings = 0;
  bool imported = false;
  std::optional<ShareKey> key;  ///< once exported
};

HandleTable<PhysicalMemory, HandleKind::kPhysicalMemory>& PhysicalMemories();

/// Threads: thread-safe. Memory that is unmapped, closed or released while streams have work is kept until that work
/// has ended (parked_memory.h). If other memory is mapped at its addresses meanwhile, that work finds the other memory.
class VirtualMemory {
 public:
  static VirtualMemory& Get();

  /// Address space of `bytes`, rounded up to pages; at `expected` if that is possible and not null.
  StatusOr<void*> Reserve(uint64_t bytes, void* expected);
  Status Release(void* begin);
  /// Whether the address lies in a reservation, mapped or not.
  bool IsReserved(const void* address);

  StatusOr<void*> Create(uint64_t bytes, const PhysicalProperties& properties);
  /// Drops one reference; the memory goes with the last reference and the last mapping.
  Status Free(void* handle);
  StatusOr<PhysicalProperties> Describe(void* handle);
  /// One more reference to what is mapped at the address.
  StatusOr<void*> Retain(void* address);

  /// Maps the whole of the memory at `begin`, which lies in a reservation.
  Status Map(void* begin, uint64_t bytes, void* handle, bool accessible);
  /// Ends the mapping. `unused`: the caller knows that no work uses it.
  Status Unmap(void* begin, bool unused = false);
  /// `flags` as aclrtMemAccessFlags: 0 none, 1 read, 3 read and write. The CPU device does not tell the last two apart.
  Status SetAccess(void* begin, uint64_t bytes, AccessLocation location, uint32_t flags);
  StatusOr<uint32_t> GetAccess(void* address, AccessLocation location);

  /// 107000 for imported memory, and for a second export.
  StatusOr<ShareKey> Export(void* handle, bool checks_pid);
  /// 107000 for an export of this process.
  StatusOr<void*> Import(const ShareKey& key, int device);

 private:
  struct Mapping {
    uint64_t bytes;
    PhysicalMemory* memory;
    std::map<AccessLocation, uint32_t> access;
    bool open;  // can be touched
  };
  struct Reservation {
    uint64_t bytes;
    std::map<uintptr_t, Mapping> mappings;
  };

  StatusOr<PhysicalMemory*> Find(void* handle);
  StatusOr<void*> Keep(const PhysicalMemory& memory);
  void DropIfUnused(PhysicalMemory* memory) noexcept;
  Reservation* Around(uintptr_t address) REPRISE_REQUIRES(mutex_);
  Mapping* MappingAround(uintptr_t address) REPRISE_REQUIRES(mutex_);
  StatusOr<Mapping*> MappingAt(void* begin, uint64_t bytes) REPRISE_REQUIRES(mutex_);
  Status Open(uintptr_t begin, Mapping& mapping, bool open, bool protect = true);

  // A mapping that was ended while work was in flight.
  struct Leaving {
    uintptr_t begin;
    uint64_t bytes;
    PhysicalMemory* memory;
    bool is_reserved = true;  // in the reservation that it was mapped in
  };
  static void SettleUnmapped(const MemoryRange& range);
  static void SettleClosed(const MemoryRange& range);
  void ReserveAgain(uintptr_t begin, uint64_t bytes) REPRISE_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<uintptr_t, Reservation> reservations_ REPRISE_GUARDED_BY(mutex_);
  std::list<Leaving> leaving_ REPRISE_GUARDED_BY(mutex_);  // in the order of their unmapping
};

}  // namespace reprise::device
