// SPDX-License-Identifier: Apache-2.0
//
// Prefetching of managed memory: a task that remembers where a range was asked to go.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "device/managed_memory.h"
#include "runtime/stream.h"

namespace reprise::runtime {

struct PrefetchItem {
  const void* begin;
  uint64_t bytes;
  device::ManagedPlace place;
};

/// A hint: memory that is freed before the task runs is passed over.
Status SubmitPrefetch(Stream& stream, std::span<const PrefetchItem> items);

}  // namespace reprise::runtime
