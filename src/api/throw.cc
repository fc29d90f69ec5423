// SPDX-License-Identifier: Apache-2.0
#include "api/throw.h"

#include <fmt/format.h>

#include <string>

#include "reprise/error.h"
#include "runtime/report.h"

namespace reprise::api {

void Throw(const char* function, const Status& status) {
  runtime::Report(function, status);
  const Status::Detail& detail = status.detail();
  const ErrorInfo& info = FindErrorInfo(detail.code);
  const std::string hint(SolutionOf(detail));
  std::string message = fmt::format("{} failed with {} ({}): {}", function, detail.code, info.name, detail.what);
  if (!detail.culprit.empty()) message += fmt::format("; culprit: {}", detail.culprit);
  message += fmt::format("; next step: {}", hint);
  if (detail.code == kOutOfDeviceMemory) throw OutOfMemory(detail.code, message, detail.what, detail.culprit, hint);
  throw Exception(detail.code, message, detail.what, detail.culprit, hint);
}

}  // namespace reprise::api
