// SPDX-License-Identifier: Apache-2.0
//
// REPRISE_STRICT=1: what works here and may fail on a device is refused. docs/strict.md lists each case.
#pragma once

#include <string>

#include "base/status.h"

namespace reprise {

namespace internal {
bool ReadStrict() noexcept;
}  // namespace internal

inline bool IsStrict() noexcept {
  static const bool strict = internal::ReadStrict();
  return strict;
}

/// "strict: works here, …": `what` says what the call does and what a device makes of it.
Status StrictRefusal(int code, const std::string& what, const char* function = __builtin_FUNCTION(),
                     const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace reprise
