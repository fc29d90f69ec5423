// SPDX-License-Identifier: Apache-2.0
//
// Log lines in the shape that users of this stack search for:
//   [LEVEL] MODULE(pid,process):yyyy-mm-dd-hh:mm:ss.mmm.uuu [file:line]tid Function:text
// Nothing is written unless ASCEND_LOG_PRINT_TO_STDOUT=1 or ASCEND_PROCESS_LOG_PATH is set.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

namespace reprise {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kNone = 4 };

/// Levels by module out of a text like RUNTIME=1:ASCENDCL=0; parts that are none are skipped.
std::map<std::string, LogLevel, std::less<>> ParseModuleLevels(std::string_view text);

/// Modules with names as they appear in the line: RUNTIME, ASCENDCL, OP, GE.
bool LogEnabled(LogLevel level, std::string_view module) noexcept;

void WriteLog(LogLevel level, std::string_view module, const char* file, int line, const char* function,
              std::string_view text) noexcept;

#define REPRISE_LOG(level, module, ...)                                                     \
  do {                                                                                      \
    if (::reprise::LogEnabled(::reprise::LogLevel::level, module)) [[unlikely]]             \
      ::reprise::WriteLog(::reprise::LogLevel::level, module, __FILE__, __LINE__, __func__, \
                          ::fmt::format(__VA_ARGS__));                                      \
  } while (false)

}  // namespace reprise
