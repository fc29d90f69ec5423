// SPDX-License-Identifier: Apache-2.0
//
// Who watches the program's accesses to memory: AddressSanitizer, when the program was compiled with it, or valgrind's
// memcheck around it. Both are found at run time; these libraries are not compiled for either. Device memory then has
// red zones, so that kernels of the program that run over their arguments are found at the access.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

enum class MemoryChecker : uint8_t { kNone, kAddressSanitizer, kMemcheck };

/// Found at the first call. kNone with REPRISE_RED_ZONES=0.
MemoryChecker TheMemoryChecker() noexcept;
inline bool IsMemoryChecked() noexcept { return TheMemoryChecker() != MemoryChecker::kNone; }

/// At least so many bytes behind an allocation are closed.
inline constexpr uint64_t kRedZone = 64;

/// From now on an access to the bytes is reported. Nothing without a checker, or for no bytes.
void ForbidAccess(const void* begin, uint64_t bytes) noexcept;
/// And is not any more. The content is as it was.
void AllowAccess(const void* begin, uint64_t bytes) noexcept;

/// Memory that does not come from the heap is, and then is no longer, an allocation of the program's: memcheck's
/// reports name it and who made it.
void NoteAllocation(const void* begin, uint64_t bytes) noexcept;
void NoteRelease(const void* begin) noexcept;

/// "main program.cc:17" as the checker tells it; empty when it does not.
std::string NamePlace(const void* place);

/// What is known of an address, without a newline; empty: nothing. Must not wait for a lock for ever: the thread that
/// made the access may hold it.
using ExplainAddress = std::string (*)(uintptr_t address);
/// Reports of AddressSanitizer end with what the function says; at most a few functions in a process, each once.
void AddToMemoryReports(ExplainAddress explain) noexcept;

}  // namespace reprise
