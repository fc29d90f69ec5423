// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "acl/acl.h"

namespace ge::testing {

/// The calling thread's message, taken.
inline std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

}  // namespace ge::testing
