// SPDX-License-Identifier: Apache-2.0
//
// The numbers that functions of the graph engine return, and how a failure is written.
//
// A text begins with a message id ("E10062"), which callers look for: it says of which kind a failure is, where the
// number says in which state it happened. runtime/report.h puts it in front of the message.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::engine {

inline constexpr int kFailed = -1;  ///< 0xFFFFFFFF to callers
#define REPRISE_GE_NUMBER(name, public_name, number) inline constexpr int name = number;
#include "engine/numbers.def"
#undef REPRISE_GE_NUMBER

// Message ids.
inline constexpr std::string_view kBadValue = "E10001";     ///< a parameter or option has a bad value
inline constexpr std::string_view kBadOption = "E10003";    ///< an option is malformed
inline constexpr std::string_view kStageFailed = "E10055";  ///< a stage of a compilation
inline constexpr std::string_view kNullValue = "E10058";    ///< a parameter is null
inline constexpr std::string_view kWrongOrder = "E10062";   ///< calls in the wrong order, or misused
inline constexpr std::string_view kBadInput = "E13025";     ///< an input is described badly
inline constexpr std::string_view kInner = "E19999";        ///< the engine cannot
inline constexpr std::string_view kTooSmall = "E19025";     ///< a buffer

/// A failed Status whose text begins with the id.
inline Status Fail(int number, std::string_view id, std::string_view what, const char* function = __builtin_FUNCTION(),
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return Error(number, std::string(id) + ": " + std::string(what), function, file, line);
}

/// A failure under the number of a call of the engine, for failures of layers below. One that is the engine's
/// stays.
Status As(int number, std::string_view id, Status failure);

}  // namespace reprise::engine
