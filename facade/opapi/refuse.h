// SPDX-License-Identifier: Apache-2.0
//
// Operators that are there by name and compute nothing: calls of them tell why.
#pragma once

#include <fmt/format.h>

#include "runtime/report.h"

namespace reprise::opapi {

inline aclnnStatus Refuse(const char* api, const char* name, const char* reason, const char* advice) noexcept {
  return runtime::Api(api, [&]() -> Status {
    return Error(kOperatorArgumentInvalid, fmt::format("{}: {}", name, reason)).Hint(advice);
  });
}

}  // namespace reprise::opapi
