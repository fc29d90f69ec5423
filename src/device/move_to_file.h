// SPDX-License-Identifier: Apache-2.0
//
// Private memory that becomes shared memory under the hands of those who use it: the same addresses, the same content,
// and no write of another thread gets lost on the way.
//
// While the content is copied, threads of this process that touch the pages are held in the page fault, and then go on
// with the shared ones. The kernel does that where it offers userfaultfd; elsewhere the pages become read-only for the
// time, and a handler of SIGSEGV holds the writers. The handler stays, and hands on whatever is not of its making.
// A system call that touches the pages meanwhile is held by a userfaultfd of a process that may have one for the
// kernel's faults, too. With one for its own faults alone it may fail with EFAULT; with the handler, if it writes into
// the pages.
#pragma once

#include <atomic>
#include <cstdint>

namespace reprise::device {

/// Puts the first `bytes` of the memory file in the place of the pages at `begin`, with their content; both are whole
/// pages, the file is empty. 0; or an errno, and nothing has changed.
///
/// Threads: thread-safe. Other threads may read and write the pages; none may free them.
int MoveToFile(void* begin, uint64_t bytes, int fd) noexcept;

/// Whether moves do without userfaultfd, as where a sandbox forbids it. For tests.
std::atomic<bool>& MovesWithSignals() noexcept;

/// Odd while pages are being moved; another number after each move.
uint32_t MovesOfPages() noexcept;
/// Waits for the end of the move that is going on, if any; the number after it.
uint32_t AwaitMovesOfPages() noexcept;

}  // namespace reprise::device
