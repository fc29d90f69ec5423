// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory inside of captures: it belongs to the model, at one address for all replays, and goes with it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::capture {

/// Null when the stream is not being captured. 207001 when the device has no room.
StatusOr<void*> TakeGraphMemory(runtime::Stream& stream, uint64_t bytes);
/// Whether the stream is being captured, and the block belongs to its model: then nothing is to be done. 207000 when
/// it is being captured and the block comes from elsewhere.
StatusOr<bool> GiveBackGraphMemory(runtime::Stream& stream, void* block);

}  // namespace reprise::capture
