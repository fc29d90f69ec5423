// SPDX-License-Identifier: Apache-2.0
//
// GEGetErrorMsg returns a std::string as it was before C++11, for callers that are compiled so. This file is, too.
#include <string>

#include "message.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0);

namespace ge {

[[gnu::visibility("default")]] std::string GEGetErrorMsg();
std::string GEGetErrorMsg() { return reprise_ge_message(); }

}  // namespace ge
