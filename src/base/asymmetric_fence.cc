// SPDX-License-Identifier: Apache-2.0
#include "base/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace reprise {

// While the process has one thread, as when a library is loaded by the linker, this takes no time.
const bool internal::g_frequent_is_free = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void RareFence() noexcept {
  if (internal::g_frequent_is_free && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
    // A process that was forked may have to say again that it will ask.
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace reprise
