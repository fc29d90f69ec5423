// SPDX-License-Identifier: Apache-2.0
//
// Memory of communicators. On a CPU every rank of the machine reaches all device memory, so that most of this keeps
// books; a symmetric window also tells each rank where it sees the memory of the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "collective/communicator.h"

namespace reprise::collective {

/// Ranges of addresses and memory mapped in them, for all communicators of the process. 1 for what overlaps or is not
/// there, 6 for what is unknown.
Status SetMemoryRange(uintptr_t base, uint64_t bytes);
Status UnsetMemoryRange(uintptr_t base);
Status ActivateMemory(uintptr_t base, uint64_t bytes);
Status DeactivateMemory(uintptr_t base);

/// A window of one rank. 6 for handles that are not live.
StatusOr<void*> RegisterWindow(Communicator& communicator, void* base, uint64_t bytes);
Status DeregisterWindow(const Communicator& communicator, void* window);
Status CheckWindow(const Communicator& communicator, void* window);

/// Windows of one size on all ranks. Waits for the other ranks.
StatusOr<void*> RegisterSymmetric(Communicator& communicator, void* base, uint64_t bytes);
Status DeregisterSymmetric(void* window);
/// The window that [pointer, pointer + bytes) lies in.
StatusOr<void*> FindSymmetric(const Communicator& communicator, const void* pointer, uint64_t bytes, size_t* offset);
/// Where this process sees byte `offset` of the window of a rank.
StatusOr<void*> PeerPointer(void* window, size_t offset, uint32_t peer);

}  // namespace reprise::collective
