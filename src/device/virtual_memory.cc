// SPDX-License-Identifier: Apache-2.0
#include "device/virtual_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fault.h"
#include "base/memory_checker.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "device/parked_memory.h"

namespace reprise::device {
namespace {

uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

MemoryRange RangeOf(uintptr_t begin, uint64_t bytes, const PhysicalProperties* properties) {
  MemoryRange range;
  range.begin = begin;
  range.bytes = bytes;
  range.kind = properties != nullptr && !properties->on_host ? MemoryKind::kDevice : MemoryKind::kPinnedHost;
  range.device = properties != nullptr ? properties->device : 0;
  range.origin = MemoryOrigin::kMapped;
  return range;
}

Status NoMapping(const void* address) {
  return Error(kInvalidValue, fmt::format("{} is not the start of mapped memory: it {}", fmt::ptr(address),
                                          MemoryRegistry::Get().Explain(address)))
      .Hint("pass the address that aclrtMapMem was called with");
}

}  // namespace

HandleTable<PhysicalMemory, HandleKind::kPhysicalMemory>& PhysicalMemories() {
  return TheTable<PhysicalMemory, HandleKind::kPhysicalMemory>();
}

VirtualMemory& VirtualMemory::Get() {
  static auto* const memory = new VirtualMemory;
  return *memory;
}

// ---- Address space ----

StatusOr<void*> VirtualMemory::Reserve(uint64_t bytes, void* expected) {
  if (bytes > uint64_t{PTRDIFF_MAX} / 2) {
    return Error(kOutOfDeviceMemory, fmt::format("there is no address space of {} bytes", bytes))
        .Hint("pass the size of the range in bytes, and reserve no more than is going to be mapped");
  }
  // Aligned to huge pages, as the device does; the part before and behind is given back.
  bytes = RoundUp(bytes, kHugePage);
  const uint64_t with_room = bytes + kHugePage;
  void* raw = FaultPoint("memory.reserve")
                  ? MAP_FAILED
                  : mmap(expected, with_room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    return Error(kOutOfDeviceMemory, fmt::format("the host has no address space of {} bytes left", bytes))
        .Hint(
            "release reservations with aclrtReleaseMemAddress, or raise the process's limit of address space (ulimit "
            "-v)");
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t begin = RoundUp(start, kHugePage);
  if (begin != start) munmap(raw, begin - start);
  munmap(reinterpret_cast<void*>(begin + bytes), start + with_room - begin - bytes);
  MutexLock lock(mutex_);
  reservations_.emplace(begin, Reservation{bytes, {}});
  return reinterpret_cast<void*>(begin);
}

Status VirtualMemory::Release(void* begin) {
  UniqueLock lock(mutex_);
  const auto it = reservations_.find(reinterpret_cast<uintptr_t>(begin));
  if (it == reservations_.end()) {
    return Error(kInvalidValue, fmt::format("{} is not the start of a reservation", fmt::ptr(begin)))
        .Hint("pass the address that aclrtReserveMemAddress gave, once");
  }
  if (!it->second.mappings.empty()) {
    return Error(kInvalidValue, fmt::format("{} ranges of the reservation at {} are mapped", it->second.mappings.size(),
                                            fmt::ptr(begin)))
        .Culprit(fmt::format("the mapping at {:#x}", it->second.mappings.begin()->first))
        .Hint("unmap all of it with aclrtUnmapMem first");
  }
  const MemoryRange range = RangeOf(it->first, it->second.bytes, nullptr);
  reservations_.erase(it);
  bool has_leaving = false;
  for (Leaving& leaving : leaving_) {
    if (leaving.begin < range.begin || leaving.begin >= range.end()) continue;
    leaving.is_reserved = false;
    has_leaving = true;
  }
  lock.unlock();
  const auto unmap = [](const MemoryRange& gone) { munmap(reinterpret_cast<void*>(gone.begin), gone.bytes); };
  if (has_leaving) {
    ParkedMemory::Get().Park(range, unmap);
  } else {
    unmap(range);
  }
  return {};
}

bool VirtualMemory::IsReserved(const void* address) {
  MutexLock lock(mutex_);
  return Around(reinterpret_cast<uintptr_t>(address)) != nullptr;
}

VirtualMemory::Reservation* VirtualMemory::Around(uintptr_t address) {
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? &it->second : nullptr;
}

// ---- Physical memory ----

StatusOr<PhysicalMemory*> VirtualMemory::Find(void* handle) {
  if (PhysicalMemory* memory = PhysicalMemories().Find(handle)) return memory;
  const HandleState state = PhysicalMemories().Classify(handle);
  return Error(kInvalidHandle, DescribeBadHandle(state, handle, "physical memory"))
      .Hint(HintForBadHandle(state, "physical memory"));
}

StatusOr<void*> VirtualMemory::Keep(const PhysicalMemory& memory) {
  auto* const kept = new PhysicalMemory(memory);
  kept->handle = PhysicalMemories().Insert(kept);
  if (kept->handle != nullptr) return kept->handle;
  kept->references = 0;
  DropIfUnused(kept);
  return Error(kOutOfDeviceMemory, "the process has too many pieces of physical memory")
      .Hint("free pieces with aclrtFreePhysical, or allocate fewer and larger ones");
}

void VirtualMemory::DropIfUnused(PhysicalMemory* memory) noexcept {
  if (memory->references != 0 || memory->mappings != 0) return;
  if (memory->key) Withdraw(*memory->key);
  close(memory->fd);
  if (!memory->imported && !memory->properties.on_host) {
    MemoryRegistry::Get().Unbook(memory->properties.device, memory->bytes);
  }
  delete memory;
}

StatusOr<void*> VirtualMemory::Create(uint64_t bytes, const PhysicalProperties& properties) {
  if (!properties.on_host) REPRISE_RETURN_IF_ERROR(MemoryRegistry::Get().Book(properties.device, bytes));
  PhysicalMemory memory;
  memory.properties = properties;
  memory.bytes = bytes;
  memory.fd = bytes > uint64_t{PTRDIFF_MAX} ? -1 : MakeMemoryFile("reprise-physical", bytes);
  if (memory.fd < 0) {
    if (!properties.on_host) MemoryRegistry::Get().Unbook(properties.device, bytes);
    return Error(kOutOfDeviceMemory, fmt::format("the host refused a memory file of {} bytes", bytes))
        .Hint("free memory of the host, or raise the limit of open files (ulimit -n)");
  }
  MutexLock lock(mutex_);
  return Keep(memory);
}

Status VirtualMemory::Free(void* handle) {
  MutexLock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(PhysicalMemory * memory, Find(handle));
  if (--memory->references != 0) return {};
  PhysicalMemories().Erase(handle);
  DropIfUnused(memory);
  return {};
}

StatusOr<PhysicalProperties> VirtualMemory::Describe(void* handle) {
  MutexLock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(const PhysicalMemory* memory, Find(handle));
  return memory->properties;
}

StatusOr<void*> VirtualMemory::Retain(void* address) {
  MutexLock lock(mutex_);
  const Mapping* mapping = MappingAround(reinterpret_cast<uintptr_t>(address));
  if (mapping == nullptr) return NoMapping(address);
  PhysicalMemory& memory = *mapping->memory;
  if (memory.references == 0) {  // freed by the user, alive because it is mapped: it gets a new handle
    memory.handle = PhysicalMemories().Insert(&memory);
    if (memory.handle == nullptr)
      return Error(kOutOfDeviceMemory, "the process has too many pieces of physical memory")
          .Hint("free pieces with aclrtFreePhysical, or allocate fewer and larger ones");
  }
  ++memory.references;
  return memory.handle;
}

// ---- Mapping ----

VirtualMemory::Mapping* VirtualMemory::MappingAround(uintptr_t address) {
  Reservation* reservation = Around(address);
  if (reservation == nullptr) return nullptr;
  auto it = reservation->mappings.upper_bound(address);
  if (it == reservation->mappings.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? &it->second : nullptr;
}

StatusOr<VirtualMemory::Mapping*> VirtualMemory::MappingAt(void* begin, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Reservation* reservation = Around(address);
  const auto it =
      reservation != nullptr ? reservation->mappings.find(address) : decltype(reservation->mappings.end()){};
  if (reservation == nullptr || it == reservation->mappings.end()) return NoMapping(begin);
  if (bytes != it->second.bytes) {
    return Error(kInvalidValue,
                 fmt::format("size is {}, the mapping at {} has {} bytes", bytes, fmt::ptr(begin), it->second.bytes))
        .Culprit("parameter size")
        .Hint("pass the whole mapping");
  }
  return &it->second;
}

// Memory that may be touched is registered; what is closed is as unknown as a wild address.
Status VirtualMemory::Open(uintptr_t begin, Mapping& mapping, bool open, bool protect) {
  if (mapping.open == open) return {};
  if (protect &&
      mprotect(reinterpret_cast<void*>(begin), mapping.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    return Error(kOutOfDeviceMemory,
                 fmt::format("the host refused to change the access of {} bytes at {:#x}", mapping.bytes, begin))
        .Hint("use fewer and larger mappings: the host limits their number (vm.max_map_count)");
  }
  mapping.open = open;
  const PhysicalProperties& properties = mapping.memory->properties;
  if (open) {
    MemoryRegistry::Get().AddMapped(begin, mapping.bytes, properties.device, properties.on_host);
  } else {
    MemoryRegistry::Get().RemoveMapped(begin);
  }
  return {};
}

Status VirtualMemory::Map(void* begin, uint64_t bytes, void* handle, bool accessible) {
  UniqueLock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(PhysicalMemory * memory, Find(handle));
  if (bytes != memory->bytes) {
    return Error(kInvalidValue, fmt::format("size is {}, the physical memory has {} bytes", bytes, memory->bytes))
        .Culprit("parameter size")
        .Hint("map the whole of it");
  }
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Reservation* reservation = Around(address);
  if (reservation == nullptr) {
    return Error(kInvalidValue, fmt::format("{} lies in no reservation", fmt::ptr(begin)))
        .Culprit("parameter virPtr")
        .Hint("reserve address space with aclrtReserveMemAddress first");
  }
  uintptr_t end_of_reservation = 0;
  for (const auto& [at, each] : reservations_) {
    if (&each == reservation) end_of_reservation = at + each.bytes;
  }
  if (bytes > end_of_reservation - address) {
    return Error(kInvalidValue, fmt::format("{} bytes at {} end behind the reservation", bytes, fmt::ptr(begin)))
        .Culprit("parameter size")
        .Hint("reserve a larger range with aclrtReserveMemAddress, or map at a lower address");
  }
  if (address % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) != 0) {
    return Error(kInvalidValue, fmt::format("{} is not at a page boundary", fmt::ptr(begin)))
        .Culprit("parameter virPtr")
        .Hint(fmt::format("pass an address that is a multiple of {}", sysconf(_SC_PAGESIZE)));
  }
  const auto next = reservation->mappings.lower_bound(address);
  if (MappingAround(address) != nullptr || (next != reservation->mappings.end() && next->first < address + bytes)) {
    return Error(kInvalidValue,
                 fmt::format("[{:#x}, {:#x}) is mapped already, in part or as a whole", address, address + bytes))
        .Culprit("parameter virPtr")
        .Hint("unmap it with aclrtUnmapMem first");
  }
  // What work in flight may still touch stays open for it, whatever lies there.
  const bool in_use = std::any_of(leaving_.begin(), leaving_.end(), [&](const Leaving& leaving) {
    return leaving.begin < address + bytes && address < leaving.begin + leaving.bytes;
  });
  const int protection = accessible || in_use ? PROT_READ | PROT_WRITE : PROT_NONE;
  auto [it, inserted] = reservation->mappings.try_emplace(address, Mapping{bytes, memory, {}, false});
  void* at =
      FaultPoint("memory.map") ? MAP_FAILED : mmap(begin, bytes, protection, MAP_SHARED | MAP_FIXED, memory->fd, 0);
  if (at == MAP_FAILED) {
    reservation->mappings.erase(it);
    return Error(kOutOfDeviceMemory, fmt::format("the host refused to map {} bytes at {}", bytes, fmt::ptr(begin)))
        .Hint("use fewer and larger mappings: the host limits their number (vm.max_map_count)");
  }
  ++memory->mappings;
  if (!accessible) {
    lock.unlock();
    if (in_use) ParkedMemory::Get().Park(RangeOf(address, bytes, nullptr), SettleClosed);
    return {};
  }
  it->second.access[{memory->properties.location_type, memory->properties.location_id}] = 3;
  return Open(address, it->second, true);
}

// Reserved again, so that nothing else gets the addresses; what has been mapped there since stays, and what is yet to
// leave, too.
void VirtualMemory::ReserveAgain(uintptr_t begin, uint64_t bytes) {
  const uintptr_t end = begin + bytes;
  const auto next_taken = [&](uintptr_t from, uintptr_t* taken_end) REPRISE_REQUIRES(mutex_) {
    uintptr_t first = end;
    const auto look = [&](uintptr_t at, uint64_t size) {
      if (at + size <= from || at >= end || std::max(at, from) >= first) return;
      first = std::max(at, from);
      *taken_end = at + size;
    };
    if (const Reservation* reservation = Around(begin)) {
      for (const auto& [at, mapping] : reservation->mappings) look(at, mapping.bytes);
    }
    for (const Leaving& leaving : leaving_) look(leaving.begin, leaving.bytes);
    return first;
  };
  while (begin < end) {
    uintptr_t after = end;
    const uintptr_t taken = next_taken(begin, &after);
    // Should the host refuse, the pages stay where they are until the reservation goes.
    if (taken != begin) {
      (void)mmap(reinterpret_cast<void*>(begin), taken - begin, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    begin = after;
  }
}

Status VirtualMemory::Unmap(void* begin, bool unused) {
  ParkedMemory& parked = ParkedMemory::Get();
  parked.Sweep();
  const bool in_flight = !unused && parked.InFlight();
  UniqueLock lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Reservation* reservation = Around(address);
  const auto it =
      reservation != nullptr ? reservation->mappings.find(address) : decltype(reservation->mappings.end()){};
  if (reservation == nullptr || it == reservation->mappings.end()) return NoMapping(begin);
  PhysicalMemory* const memory = it->second.memory;
  const MemoryRange range = RangeOf(address, it->second.bytes, &memory->properties);
  if (in_flight) {
    leaving_.push_back({address, range.bytes, memory});
    (void)Open(address, it->second, false, false);
    reservation->mappings.erase(it);
    lock.unlock();
    parked.Park(range, SettleUnmapped);
    return {};
  }
  REPRISE_RETURN_IF_ERROR(Open(address, it->second, false));
  AllowAccess(begin, range.bytes);  // for whoever gets the addresses next
  if (mmap(begin, range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return Error(kOutOfDeviceMemory, fmt::format("the host refused to unmap {}", fmt::ptr(begin)))
        .Hint("use fewer and larger mappings: the host limits their number (vm.max_map_count)");
  }
  reservation->mappings.erase(it);
  --memory->mappings;
  DropIfUnused(memory);
  return {};
}

void VirtualMemory::SettleUnmapped(const MemoryRange& range) {
  VirtualMemory& all = Get();
  MutexLock lock(all.mutex_);
  const auto it = std::find_if(all.leaving_.begin(), all.leaving_.end(), [&range](const Leaving& leaving) {
    return leaving.begin == range.begin && leaving.bytes == range.bytes;
  });
  PhysicalMemory* const memory = it->memory;
  const bool is_reserved = it->is_reserved;
  all.leaving_.erase(it);
  // Without its reservation, which goes as a whole, the addresses may be somebody else's by now.
  if (is_reserved) all.ReserveAgain(range.begin, range.bytes);
  --memory->mappings;
  all.DropIfUnused(memory);
}

void VirtualMemory::SettleClosed(const MemoryRange& range) {
  VirtualMemory& all = Get();
  MutexLock lock(all.mutex_);
  Reservation* const reservation = all.Around(range.begin);
  if (reservation == nullptr) return;
  const auto it = reservation->mappings.find(range.begin);
  if (it == reservation->mappings.end() || it->second.bytes != range.bytes || it->second.open) return;
  (void)mprotect(reinterpret_cast<void*>(range.begin), range.bytes, PROT_NONE);
}

Status VirtualMemory::SetAccess(void* begin, uint64_t bytes, AccessLocation location, uint32_t flags) {
  ParkedMemory& parked = ParkedMemory::Get();
  parked.Sweep();
  const bool in_flight = parked.InFlight();
  UniqueLock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(Mapping * mapping, MappingAt(begin, bytes));
  mapping->access[location] = flags;
  bool open = false;
  for (const auto& [where, allowed] : mapping->access) open |= allowed != 0;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  if (open || !mapping->open || !in_flight) return Open(address, *mapping, open);
  const MemoryRange range = RangeOf(address, bytes, nullptr);
  (void)Open(address, *mapping, false, false);
  lock.unlock();
  parked.Park(range, SettleClosed);
  return {};
}

StatusOr<uint32_t> VirtualMemory::GetAccess(void* address, AccessLocation location) {
  MutexLock lock(mutex_);
  const Mapping* mapping = MappingAround(reinterpret_cast<uintptr_t>(address));
  if (mapping == nullptr) return NoMapping(address);
  const auto it = mapping->access.find(location);
  return it != mapping->access.end() ? it->second : 0u;
}

// ---- Between processes ----

StatusOr<ShareKey> VirtualMemory::Export(void* handle, bool checks_pid) {
  MutexLock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(PhysicalMemory * memory, Find(handle));
  if (memory->imported || memory->key) {
    return Error(kInvalidValue, memory->imported ? "the physical memory was imported from another process"
                                                 : "the physical memory is exported already")
        .Culprit("parameter handle")
        .Hint(memory->imported ? "export it in the process that allocated it" : "use the handle of the first export");
  }
  ShareOffer offer;
  offer.kind = ShareKind::kPhysical;
  offer.fd = memory->fd;
  offer.file_bytes = memory->bytes;
  offer.bytes = memory->bytes;
  offer.extra = uint64_t{memory->properties.attribute} | (uint64_t{memory->properties.location_type} << 32);
  offer.checks_pid = checks_pid;
  REPRISE_ASSIGN_OR_RETURN(memory->key, Offer(offer));
  return *memory->key;
}

StatusOr<void*> VirtualMemory::Import(const ShareKey& key, int device) {
  if (key.pid == getpid()) {
    return Error(kInvalidValue, "the physical memory was exported by this very process")
        .Culprit("parameter shareableHandle")
        .Hint("use the handle of aclrtMallocPhysical; importing is for other processes");
  }
  REPRISE_ASSIGN_OR_RETURN(Taken taken, Take(key, ShareKind::kPhysical, "physical memory"));
  PhysicalMemory memory;
  memory.bytes = taken.offer().bytes;
  memory.imported = true;
  memory.properties.attribute = static_cast<uint32_t>(taken.offer().extra);
  memory.properties.location_type = static_cast<uint32_t>(taken.offer().extra >> 32);
  memory.properties.location_id = static_cast<uint32_t>(device);
  memory.properties.device = device;
  memory.properties.on_host = memory.properties.location_type != 1;
  memory.fd = taken.Release();
  MutexLock lock(mutex_);
  return Keep(memory);
}

}  // namespace reprise::device
