// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <algorithm>
#include <array>

namespace reprise {
namespace {

constexpr auto kErrors = [] {
  std::array table = {
#define REPRISE_ERROR(number, code, name, category, title, solution) ErrorInfo{code, name, category, title, solution},
#include "base/errors.def"
#undef REPRISE_ERROR
#define REPRISE_LIBRARY_ERROR(code, name, category, title, solution) ErrorInfo{code, name, category, title, solution},
#include "base/library_errors.def"
#undef REPRISE_LIBRARY_ERROR
  };
  std::sort(table.begin(), table.end(), [](const ErrorInfo& a, const ErrorInfo& b) { return a.code < b.code; });
  return table;
}();

constexpr ErrorInfo kUnlisted = {0, "UNLISTED", "EE9999", "Error", ""};

}  // namespace

Status Error(int code, std::string what, const char* function, const char* file, int line) {
  return Status(Status::Detail{code, std::move(what), {}, {}, function, file, line});
}

const ErrorInfo& FindErrorInfo(int code) noexcept {
  const auto it = std::lower_bound(kErrors.begin(), kErrors.end(), code,
                                   [](const ErrorInfo& row, int wanted) { return row.code < wanted; });
  return it != kErrors.end() && it->code == code ? *it : kUnlisted;
}

std::string_view SolutionOf(const Status::Detail& detail) noexcept {
  if (!detail.hint.empty()) return detail.hint;
  const std::string_view general = FindErrorInfo(detail.code).solution;
  return general.empty() ? "look the number up in docs/errors.md" : general;
}

}  // namespace reprise
