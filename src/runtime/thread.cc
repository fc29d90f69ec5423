// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace reprise::runtime {

constinit thread_local ThreadState* internal::t_state = nullptr;

namespace {

constinit thread_local int t_id __attribute__((tls_model("initial-exec"))) = 0;

struct Holder {
  ThreadState state;
  Holder() { internal::t_state = &state; }
  ~Holder() { internal::t_state = nullptr; }
};

}  // namespace

ThreadState& internal::MakeThreadState() {
  thread_local Holder holder;
  t_state = &holder.state;  // also for destructors that run behind ours
  return holder.state;
}

int ThreadId() {
  if (t_id == 0) [[unlikely]]
    t_id = static_cast<int>(syscall(SYS_gettid));
  return t_id;
}

}  // namespace reprise::runtime
