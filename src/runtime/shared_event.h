// SPDX-License-Identifier: Apache-2.0
//
// Events between processes: the number of records that were submitted, and of the newest that has run, in memory that
// all of them see. A wait binds to the number that is current at the call.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"
#include "base/status.h"
#include "device/scheduler.h"
#include "device/shared_cell.h"

namespace reprise::runtime {

class Stream;

/// Outlives its event while tasks refer to it. Threads: thread-safe.
struct SharedEventState {
  static StatusOr<SharedEventState*> Create();
  static StatusOr<SharedEventState*> Import(const device::ShareKey& key);

  std::atomic<uint32_t> references{1};
  device::CellUse cell;
  device::WaitList waiters;  ///< streams of this process

  void Retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  /// The newest record, of whichever process.
  device::Issued Newest() const { return device::Issued::Unpack(cell->issued.load(std::memory_order_acquire)); }
  bool Done(uint64_t record) const { return cell->done.load(std::memory_order_acquire) >= record; }
  void Complete(uint64_t record) noexcept;
  /// Whether the newest record has run; 507022 when its process ended before.
  StatusOr<bool> Query(int32_t event_id) const;
  /// Waits until the newest record has run. False when the deadline passed.
  StatusOr<bool> Wait(const Deadline& deadline, int32_t event_id) const;

  /// Queue tasks, without waiting. With the order_mutex of the event.
  Status RecordOn(Stream& stream, int32_t event_id);
  Status WaitOn(Stream& stream, int32_t event_id, uint32_t timeout_s);
};

}  // namespace reprise::runtime
