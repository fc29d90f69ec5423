// SPDX-License-Identifier: Apache-2.0
//
// From a Status to the exception that the value classes of the C++ API throw.
#pragma once

#include <utility>

#include "base/status.h"

namespace reprise::api {

/// Stores the words for aclGetRecentErrMsg, as `function`'s, and throws reprise::Exception.
[[noreturn]] void Throw(const char* function, const Status& status);

inline void Check(const char* function, Status status) {
  if (!status.ok()) [[unlikely]]
    Throw(function, status);
}

template <class T>
T Value(const char* function, StatusOr<T> result) {
  if (!result.ok()) [[unlikely]]
    Throw(function, std::move(result).status());
  return std::move(result).value();
}

}  // namespace reprise::api
