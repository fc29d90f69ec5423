// SPDX-License-Identifier: Apache-2.0
//
// REPRISE_STRICT=1: what works here and may fail on a device is refused. docs/strict.md lists each case.
#pragma once

#include <string>

#include "base/status.h"

namespace reprise {

namespace internal {
// Written before the first call.
extern constinit bool g_strict;
}  // namespace internal

inline bool IsStrict() noexcept { return internal::g_strict; }
/// Looks at the environment; called in base/calls.cc.
void ReadStrict() noexcept;

/// "strict: works here, …": `what` says what the call does and what a device makes of it.
Status StrictRefusal(int code, const std::string& what, const char* function = __builtin_FUNCTION(),
                     const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace reprise
