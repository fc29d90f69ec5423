// SPDX-License-Identifier: Apache-2.0
#include "api/throw.h"

#include <fmt/format.h>

#include <string>

#include "runtime/report.h"

namespace reprise::api {

Exception ToException(const char* function, const Status& status) {
  const Status::Detail& detail = status.detail();
  const ErrorInfo& info = FindErrorInfo(detail.code);
  const std::string hint(SolutionOf(detail));
  std::string message = fmt::format("{} failed with {} ({}): {}", function, detail.code, info.name, detail.what);
  if (!detail.culprit.empty()) message += fmt::format("; culprit: {}", detail.culprit);
  message += fmt::format("; next step: {}", hint);
  return {detail.code, message, detail.what, detail.culprit, hint};
}

void Throw(const char* function, const Status& status) {
  runtime::Report(function, status);
  const Exception exception = ToException(function, status);
  if (exception.code() != kOutOfDeviceMemory) throw exception;
  throw OutOfMemory(exception.code(), exception.what(), exception.cause(), exception.culprit(), exception.hint());
}

}  // namespace reprise::api
