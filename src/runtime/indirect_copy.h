// SPDX-License-Identifier: Apache-2.0
//
// Copies whose addresses lie in device memory: they are read when the task runs, so that earlier tasks, or the host
// between two replays, can change them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// What a copy descriptor is, in device memory; users treat it as opaque bytes.
constexpr uint64_t kCopyDescriptorBytes = 32;
void WriteCopyDescriptor(void* descriptor, void* dst, const void* src, uint64_t bytes);

/// Copies what the descriptor says when the task runs. The task fails with 507053 when the descriptor was never filled
/// or names memory that the device does not reach.
Status SubmitCopyByDescriptor(Stream& stream, const void* descriptor);

/// A cell that holds a base address, and what is added to it.
struct IndirectAddress {
  const void* cell;
  uint64_t offset;
};
/// Copies between the addresses that the cells hold when the task runs; 507053 as above.
Status SubmitCopyByCells(Stream& stream, IndirectAddress dst, IndirectAddress src, uint64_t bytes);

}  // namespace reprise::runtime
