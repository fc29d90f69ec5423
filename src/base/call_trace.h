// SPDX-License-Identifier: Apache-2.0
//
// Who called: the C function that this thread is in, and the place in the program that called it. Off unless
// REPRISE_TRACE_CALLS=1, because looking at the stack costs microseconds.
#pragma once

#include <string>

namespace reprise {

/// Read once; constant afterwards.
extern const bool kCallTrace;

/// For the time of a C function, on its thread.
class CallScope {
 public:
  explicit CallScope(const char* api) {
    if (kCallTrace) [[unlikely]]
      Enter(api);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    if (kCallTrace) [[unlikely]]
      Leave();
  }

 private:
  static void Enter(const char* api) noexcept;
  static void Leave() noexcept;
};

/// "aclrtStreamWaitEvent, called by thread 4711 from ./program(main+0x2a)"; empty when tracing is off.
std::string DescribeCall();

}  // namespace reprise
