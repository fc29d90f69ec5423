// SPDX-License-Identifier: Apache-2.0
//
// Device memory for a program: which pages a block gets, and how large it becomes.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/device.h"

namespace reprise::runtime {

/// Pages that a program asks for. kAny: as the size suggests.
enum class PageWish : uint8_t { kAny, kSmall, kHuge, kGiant };

/// Allocates `bytes`, rounded up to 32; `adds_room`: with the 32 bytes that a device puts behind a block, unless its
/// pages are giant. Waits for parked memory when there is no room (OrReclaim). 207001 when there is none.
///
/// Threads: thread-safe.
StatusOr<void*> AllocateBlock(Device& device, uint64_t bytes, PageWish pages, bool adds_room);

}  // namespace reprise::runtime
