// SPDX-License-Identifier: Apache-2.0
//
// From a Status to what a C caller sees: the number, the thread's last error, and the text of aclGetRecentErrMsg.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/call_trace.h"
#include "base/status.h"

namespace reprise::runtime {

/// The public number of `status`; for a failure also stores its text as the thread's recent message and, for numbers of
/// the runtime, as its last error. `api` is the C function that fails.
int Report(const char* api, const Status& status) noexcept;

/// Stores the words of `failure` as the thread's recent message, and nothing else: for a call that succeeds and tells
/// of what failed earlier. `what_failed` stands where messages name the function.
void Remember(const char* what_failed, const Status& failure) noexcept;

/// The text block that tools expect, with our own lines (Culprit, Call) added. The solution is the error's own hint, or
/// the error table's general advice; words that begin with a message code ("E10062: …") have that one in front:
///   EE1016[PID: 4711] 2026-11-21-10:00:00.000.000 (EE1016): Stream is being captured(107027): …
///           Solution: …
///           TraceBack (most recent call last):
///           …[FUNC:…][FILE:…][LINE:…]
std::string FormatMessage(const char* api, const Status::Detail& detail);

/// The pending message, which is then no longer pending; null when there is none. Valid until the next call by the
/// same thread (or, in process mode, by any thread).
const char* TakeRecentMessage();
/// err_msg_mode of aclInit's configuration: one message for the whole process instead of one for each thread.
void SetProcessWideMessages(bool on);

/// Body of every C function: runs `body`, turns exceptions into errors, reports.
template <class Body>
int Api(const char* api, Body body) noexcept {
  const CallScope scope(api);
  if (!scope.admitted()) [[unlikely]]
    return Report(api, WhyNoCall());
  Status status;
  try {
    status = body();
    if (status.ok()) [[likely]]
      return 0;
  } catch (const std::bad_alloc&) {
    return Report(api, Error(kOutOfHostMemory, "the host has no memory left"));
  } catch (const std::exception& error) {
    return Report(api, Error(kInternalError, std::string("unexpected: ") + error.what()));
  } catch (...) {
    return Report(api, Error(kInternalError, "unexpected exception"));
  }
  return Report(api, status);
}

/// Body of a function that cannot be had here: `number`, with the reason and what to do instead.
int Refuse(const char* api, int number, const char* reason, const char* advice) noexcept;

/// The error of a parameter that is null. Apart from the checks, so that these stay small in every function.
[[gnu::cold]] Status NullParameter(int code, const char* parameter);

/// 100000 naming the parameter when `pointer` is null.
inline Status NotNull(const void* pointer, const char* parameter) {
  if (pointer != nullptr) [[likely]]
    return {};
  return NullParameter(kInvalidArgument, parameter);
}

/// 107000 naming the parameter, for nulls that only the inner layer sees.
inline Status NotNullInner(const void* pointer, const char* parameter) {
  if (pointer != nullptr) [[likely]]
    return {};
  return NullParameter(kInvalidValue, parameter);
}

}  // namespace reprise::runtime
