// SPDX-License-Identifier: Apache-2.0
//
// Who called: the C function that this thread is in, and the place in the program that called it. Off unless
// REPRISE_TRACE_CALLS=1, because looking at the stack costs microseconds.
#pragma once

#include <string>

#include "base/calls.h"

namespace reprise {

namespace internal {
// Written before the first call.
extern constinit bool g_call_trace;
}  // namespace internal

inline bool CallTraceIsOn() noexcept { return internal::g_call_trace; }
/// Looks at the environment; for AtFirstCall's sake called in base/calls.cc.
void ReadCallTrace() noexcept;

/// For the time of a C function, on its thread: what it finds behind handles stays, see base/calls.h.
class CallScope {
 public:
  explicit CallScope(const char* api) {
    if (internal::g_call_trace) [[unlikely]]
      Enter(api);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    if (internal::g_call_trace) [[unlikely]]
      Leave();
  }
  bool admitted() const noexcept { return guard_.admitted(); }

 private:
  static void Enter(const char* api) noexcept;
  static void Leave() noexcept;

  const CallGuard guard_;
};

/// Who called, whether tracing is on or not.
struct Caller {
  const void* place = nullptr;  ///< in the program, within the call; null when it cannot be told
  long thread = 0;
};
Caller FindCaller();
/// "./program(main+0x2a) [0x11cf], main.cc:12 in main", without the line where nothing tells it; empty for null.
std::string DescribePlace(const void* place);

/// "aclrtMalloc, called by thread 4711 from …", with that place; empty when tracing is off.
std::string DescribeCall();

}  // namespace reprise
