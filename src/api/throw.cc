// SPDX-License-Identifier: Apache-2.0
#include "api/throw.h"

#include <fmt/format.h>

#include <string>

#include "reprise/exception.h"
#include "runtime/report.h"

namespace reprise::api {

void Throw(const char* function, const Status& status) {
  runtime::Report(function, status);
  const Status::Detail& detail = status.detail();
  std::string text = fmt::format("{}: {} ({})", function, detail.what, detail.code);
  if (!detail.culprit.empty()) text += "; culprit: " + detail.culprit;
  text += "; next step: ";
  text += detail.hint.empty() ? FindErrorInfo(detail.code).solution : std::string_view(detail.hint);
  throw Exception(detail.code, text);
}

}  // namespace reprise::api
