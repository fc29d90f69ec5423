// SPDX-License-Identifier: Apache-2.0
//
// What an allocation does that finds no room while memory is parked (device/parked_memory.h).
#pragma once

#include "device/memory.h"
#include "device/parked_memory.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Calls `allocate` until it succeeds, as long as parked memory of the device is released in between. Waits for such
/// memory, 10 s in all, without a lock, unless `may_fit` says that `bytes` would have no room even if nothing were
/// parked. Returns the last refusal.
template <class Allocate, class MayFit>
auto OrReclaim(int device, uint64_t bytes, Allocate allocate, MayFit may_fit) -> decltype(allocate()) {
  const device::ParkedMemory& parked = device::ParkedMemory::Get();
  uint64_t released = parked.released();
  auto result = allocate();
  if (result.ok()) [[likely]]
    return result;
  for (const Deadline patience = DeadlineAfterMs(10'000);;) {
    Status refusal = std::move(result).status();
    if (refusal.code() != kOutOfDeviceMemory || bytes > device::MemoryRegistry::total_bytes() || !may_fit())
      return refusal;
    // Memory that was released after the refusal is reason enough for another try, also when nothing is left to wait
    // for.
    const bool may_come = parked.bytes(device) != 0 && Stream::AwaitParkedMemory(patience);
    const uint64_t now = parked.released();
    if (!may_come && now == released) return refusal;
    released = now;
    result = allocate();
    if (result.ok()) return result;
  }
}
template <class Allocate>
auto OrReclaim(int device, uint64_t bytes, Allocate allocate) -> decltype(allocate()) {
  return OrReclaim(device, bytes, allocate, [] { return true; });
}

}  // namespace reprise::runtime
