// SPDX-License-Identifier: Apache-2.0
//
// What an allocation does that finds no room while memory is parked (device/parked_memory.h).
#pragma once

#include "device/parked_memory.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Calls `allocate` until it succeeds. In between it waits, 10 s in all, for the work that keeps freed memory of the
/// device. With no lock held; the last refusal is the answer.
template <class Allocate>
auto OrReclaim(int device, Allocate allocate) -> decltype(allocate()) {
  auto result = allocate();
  if (result.ok()) [[likely]]
    return result;
  for (const Deadline patience = DeadlineAfterMs(10'000);;) {
    Status refusal = std::move(result).status();
    if (refusal.code() != 207001 || device::ParkedMemory::Get().bytes(device) == 0 ||
        !Stream::AwaitParkedMemory(patience)) {
      return refusal;
    }
    result = allocate();
    if (result.ok()) return result;
  }
}

}  // namespace reprise::runtime
