// SPDX-License-Identifier: Apache-2.0
//
// The edge of the C++ interface: a Status becomes an exception here, and nowhere else.
#pragma once

#include <utility>

#include "base/call_trace.h"
#include "base/status.h"
#include "reprise/error.h"

namespace reprise::api {

/// The error as the C++ interface has it.
Exception ToException(const char* function, const Status& status);

/// Reports the error as a C function would (last error, recent message, logs) and throws it as reprise::Exception, or
/// OutOfMemory for 207001.
[[noreturn, gnu::cold]] void Throw(const char* function, const Status& status);

/// The body of a function of the C++ interface that returns nothing.
template <class Body>
void Call(const char* function, Body body) {
  const CallScope scope(function);
  if (!scope.admitted()) [[unlikely]]
    Throw(function, WhyNoCall());
  if (Status status = body(); !status.ok()) [[unlikely]]
    Throw(function, status);
}

/// As Call, for a `body` that returns StatusOr: returns its value.
template <class Body>
auto Value(const char* function, Body body) {
  const CallScope scope(function);
  if (!scope.admitted()) [[unlikely]]
    Throw(function, WhyNoCall());
  auto result = body();
  if (!result.ok()) [[unlikely]]
    Throw(function, std::move(result).status());
  return std::move(result).value();
}

}  // namespace reprise::api
