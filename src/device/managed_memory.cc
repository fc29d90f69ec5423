// SPDX-License-Identifier: Apache-2.0
#include "device/managed_memory.h"

#include <fmt/format.h>

#include "base/mutex.h"

namespace reprise::device {

ManagedMemory& ManagedMemory::Get() {
  static auto* const memory = new ManagedMemory;  // leaked, as MemoryRegistry is
  return *memory;
}

StatusOr<void*> ManagedMemory::Allocate(int device, uint64_t bytes) {
  if (bytes > UINT64_MAX - kManagedGranule) {
    return Error(kOutOfDeviceMemory, fmt::format("{} bytes exceed the address space", bytes))
        .Hint("pass the size of the block in bytes; no block is larger than the device's memory");
  }
  const uint64_t granules = (bytes + kManagedGranule - 1) / kManagedGranule;
  MemoryRegistry& registry = MemoryRegistry::Get();
  REPRISE_ASSIGN_OR_RETURN(void* at, registry.AllocateDevice(device, granules * kManagedGranule,
                                                             static_cast<uint32_t>(kManagedGranule), false, true));
  try {
    MutexLock lock(mutex_);
    states_[reinterpret_cast<uintptr_t>(at)].resize(granules);
  } catch (...) {
    (void)registry.Free(at, MemoryKind::kDevice);
    throw;
  }
  return at;
}

Status ManagedMemory::Check(const void* pointer, uint64_t bytes) const {
  const MemoryRegistry& registry = MemoryRegistry::Get();
  const auto range = registry.Find(pointer);
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  if (range && range->managed && bytes <= range->end() - at) return {};
  return Error(kInvalidValue,
               fmt::format("{} bytes at {} are not within one block of managed memory", bytes, fmt::ptr(pointer)))
      .Culprit(fmt::format("{} {}", fmt::ptr(pointer), registry.Explain(pointer)))
      .Hint("pass memory of aclrtMemAllocManaged");
}

Status ManagedMemory::Visit(const void* pointer, uint64_t bytes, const std::function<void(ManagedState&)>& visit) {
  REPRISE_RETURN_IF_ERROR(Check(pointer, bytes));
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  MutexLock lock(mutex_);
  auto it = states_.upper_bound(at);
  if (it == states_.begin()) return {};  // freed since
  --it;
  const uint64_t first = (at - it->first) / kManagedGranule;
  const uint64_t last = (at - it->first + bytes - 1) / kManagedGranule;
  for (uint64_t i = first; i <= last && i < it->second.size(); ++i) visit(it->second[i]);
  return {};
}

Status ManagedMemory::SetAccess(const void* pointer, uint64_t bytes, int device, bool on) {
  return Visit(pointer, bytes, [&](ManagedState& state) {
    if (device == kHostAccess) {
      state.accessed_by_host = on;
    } else {
      const uint64_t bit = uint64_t{1} << device;
      state.accessed_by = on ? state.accessed_by | bit : state.accessed_by & ~bit;
    }
  });
}

StatusOr<ManagedSummary> ManagedMemory::Summarize(const void* pointer, uint64_t bytes) {
  ManagedSummary summary;
  uint64_t by_devices = UINT64_MAX;
  bool is_first = true;
  const auto agree = [&](ManagedPlace& shared, const ManagedPlace& place) {
    shared = is_first || shared == place ? place : ManagedPlace{};
  };
  REPRISE_RETURN_IF_ERROR(Visit(pointer, bytes, [&](ManagedState& state) {
    summary.read_mostly = summary.read_mostly && state.read_mostly;
    summary.accessed_by_host = summary.accessed_by_host && state.accessed_by_host;
    by_devices &= state.accessed_by;
    agree(summary.preferred, state.preferred);
    agree(summary.prefetched, state.prefetched);
    is_first = false;
  }));
  for (int device = 0; device < kMaxDevices; ++device) {
    if ((by_devices >> device & 1) != 0) summary.accessed_by.push_back(device);
  }
  return summary;
}

void ManagedMemory::Forget(uintptr_t begin) noexcept {
  MutexLock lock(mutex_);
  states_.erase(begin);
}

}  // namespace reprise::device
