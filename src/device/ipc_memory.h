// SPDX-License-Identifier: Apache-2.0
//
// Device memory that processes share by key.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/share.h"

namespace reprise::device {

/// Offers [pointer, pointer + bytes) of an allocation, which may be in use. Exports of one range with one `checks_pid`
/// give one key, which has to be closed once for each of them. 107000 when the range lies in no allocation of device
/// memory.
///
/// Threads: thread-safe, as all functions of this file.
StatusOr<ShareKey> ExportMemory(void* pointer, uint64_t bytes, bool checks_pid);
/// Maps the memory that another process offers; a second import gives the same address, and needs a second close.
/// 107000 for an offer of this process.
StatusOr<void*> ImportMemory(const ShareKey& key, int device);
/// Undoes one import, or one export; the last takes the offer back. Imports of other processes stay valid.
Status CloseMemory(const ShareKey& key);
/// Withdraws the exports of an allocation that is being freed. Closing their keys afterwards has no effect.
void ForgetExports(uintptr_t begin, uint64_t bytes) noexcept;

}  // namespace reprise::device
