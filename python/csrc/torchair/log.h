// SPDX-License-Identifier: Apache-2.0
//
// Lines of torchair's own, on standard error and in a file that may be set. TNG_LOG_LEVEL says which: 0 all, 1 info,
// 2 warnings, 3 errors (if unset), 4 events and errors.
#pragma once

#include <c10/util/StringUtil.h>

#include <string>

namespace torchair {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kEvent };

/// Whether a line of this level is written. Reads the environment anew.
bool Logs(LogLevel level);
/// Threads: thread-safe; lines do not mix.
void WriteLog(LogLevel level, const char* file, int line, const std::string& text);
/// Lines are appended to this file, too; empty: to none.
void SetLogFile(const std::string& path);

}  // namespace torchair

#define TORCHAIR_LOG(level, ...)                                                                    \
  do {                                                                                              \
    if (::torchair::Logs(::torchair::LogLevel::level)) {                                            \
      ::torchair::WriteLog(::torchair::LogLevel::level, __FILE__, __LINE__, c10::str(__VA_ARGS__)); \
    }                                                                                               \
  } while (false)
