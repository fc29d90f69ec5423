// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace reprise::runtime {

ThreadState& ThisThread() {
  thread_local ThreadState state;
  return state;
}

int ThreadId() {
  thread_local const int id = static_cast<int>(syscall(SYS_gettid));
  return id;
}

}  // namespace reprise::runtime
