// SPDX-License-Identifier: Apache-2.0
//
// Device memory that processes share by key.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/share.h"

namespace reprise::device {

/// Offers [pointer, pointer + bytes) of an allocation; the same range gives the same key until it is closed. Nothing
/// may write to the allocation meanwhile. 107000 when the range lies in no allocation of device memory.
///
/// Threads: thread-safe, as all of these.
StatusOr<ShareKey> ExportMemory(void* pointer, uint64_t bytes, bool checks_pid);
/// Maps what another process offers; a second import gives the same address, and wants a second close. 107000 for an
/// offer of this process.
StatusOr<void*> ImportMemory(const ShareKey& key, int device);
/// Takes an offer back, or ends an import. Imports of other processes stay valid.
Status CloseMemory(const ShareKey& key);

}  // namespace reprise::device
