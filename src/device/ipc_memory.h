// SPDX-License-Identifier: Apache-2.0
//
// Device memory that processes share by key.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/share.h"

namespace reprise::device {

/// Offers [pointer, pointer + bytes) of an allocation, which may be in use. Exports of the same range with the same
/// check give the same key, which then wants as many closes. 107000 when the range lies in no allocation of device
/// memory.
///
/// Threads: thread-safe, as all of these.
StatusOr<ShareKey> ExportMemory(void* pointer, uint64_t bytes, bool checks_pid);
/// Maps what another process offers; a second import gives the same address, and wants a second close. 107000 for an
/// offer of this process.
StatusOr<void*> ImportMemory(const ShareKey& key, int device);
/// Undoes one import, or one export; the last takes the offer back. Imports of other processes stay valid.
Status CloseMemory(const ShareKey& key);
/// Takes back what was exported of an allocation that is freed. Its keys may still be closed, with no effect.
void ForgetExports(uintptr_t begin, uint64_t bytes) noexcept;

}  // namespace reprise::device
