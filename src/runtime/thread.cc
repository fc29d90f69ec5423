// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace reprise::runtime {

namespace {

// Eight bytes of the static block: reached in one instruction, also from a library that was loaded late. Every call
// passes here several times.
#define REPRISE_NEAR_TLS __attribute__((tls_model("initial-exec")))
thread_local ThreadState* t_state REPRISE_NEAR_TLS = nullptr;
thread_local int t_id REPRISE_NEAR_TLS = 0;

struct Holder {
  ThreadState state;
  Holder() { t_state = &state; }
  ~Holder() { t_state = nullptr; }
};

ThreadState& MakeState() {
  thread_local Holder holder;
  t_state = &holder.state;  // also for destructors that run behind ours
  return holder.state;
}

}  // namespace

ThreadState& ThisThread() {
  if (t_state != nullptr) [[likely]]
    return *t_state;
  return MakeState();
}

int ThreadId() {
  if (t_id == 0) [[unlikely]]
    t_id = static_cast<int>(syscall(SYS_gettid));
  return t_id;
}

}  // namespace reprise::runtime
