// SPDX-License-Identifier: Apache-2.0
//
// What belongs to a thread of the user: its current context, its last error, its capture mode.
#pragma once

#include <memory>
#include <string>

#include "runtime/context.h"

namespace reprise::runtime {

struct ThreadState {
  void* context = nullptr;  ///< handle; checked at each use, because another thread may destroy it
  int last_error = 0;
  std::string recent_message;    ///< pending for aclGetRecentErrMsg
  std::string returned_message;  ///< what aclGetRecentErrMsg returned last; its pointer stays valid until the next
  CaptureMode exchange_mode = CaptureMode::kGlobal;
  /// Captures begun by this thread; shared because another thread may end a relaxed one.
  std::shared_ptr<CaptureCounts> captures = std::make_shared<CaptureCounts>();
  /// Id of the task that this thread submitted last: its number in the stream, or for a captured task its place in the
  /// stream of the model, as dumps show it.
  uint32_t last_task_id = 0;
  void* last_task_stream = nullptr;  ///< handle
  void* limits_stream = nullptr;     ///< handle; aclrtUseStreamResInCurrentThread
};

namespace internal {
// Eight bytes of the static block: reached in one instruction, also from a library that was loaded late. Every call
// passes here several times.
extern constinit thread_local ThreadState* t_state __attribute__((tls_model("initial-exec")));
ThreadState& MakeThreadState();
}  // namespace internal

inline ThreadState& ThisThread() {
  if (internal::t_state != nullptr) [[likely]]
    return *internal::t_state;
  return internal::MakeThreadState();
}

/// The thread's current context, or null when it has none or it was destroyed.
inline Context* LiveContext() { return Contexts().Find(ThisThread().context); }

/// Kernel thread id, as debuggers and logs show it.
int ThreadId();

}  // namespace reprise::runtime
