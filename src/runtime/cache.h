// SPDX-License-Identifier: Apache-2.0
//
// Cache operations. Memory is coherent here, so the operations are tasks that only keep their place in the order of the
// stream: each is complete as soon as it begins, and a barrier never waits.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::runtime {

Status SubmitCacheOperation(Stream& stream, const void* begin, uint64_t bytes);
/// Waits for earlier operations with barriers.
Status SubmitCacheBarrier(Stream& stream);

/// What a descriptor is, in device memory; users treat it as opaque bytes.
constexpr uint64_t kCacheDescriptorBytes = 64;
void WriteCacheDescriptor(void* descriptor, const void* begin, uint64_t bytes);
/// Reads the descriptor when the task runs; the task fails with 507053 when it was never filled.
Status SubmitCacheOperationByDescriptor(Stream& stream, const void* descriptor);

}  // namespace reprise::runtime
