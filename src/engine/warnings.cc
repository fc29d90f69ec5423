// SPDX-License-Identifier: Apache-2.0
#include "engine/warnings.h"

#include <utility>

#include "base/log.h"
#include "engine/numbers.h"

namespace reprise::engine {
namespace {

thread_local std::string t_warnings;

}  // namespace

void Warn(const std::string& text) {
  REPRISE_LOG(kWarning, "GE", "{}", text);
  t_warnings += text + "\n";
}

std::string TakeWarnings() { return std::exchange(t_warnings, {}); }

Status As(int number, std::string_view id, Status failure) {
  if (failure.ok() || (failure.code() & 0xFFF00000) == 0x50100000 || failure.code() == kFailed) return failure;
  Status::Detail detail = failure.detail();
  detail.code = number;
  if (!detail.what.starts_with('E')) detail.what = std::string(id) + ": " + detail.what;
  return Status(std::move(detail));
}

}  // namespace reprise::engine
