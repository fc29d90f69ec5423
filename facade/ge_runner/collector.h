// SPDX-License-Identifier: Apache-2.0
//
// Callbacks of sessions, without types that differ between the two std::string.
#pragma once

#include <functional>
#include <map>

#include "ge/ge_api.h"

namespace reprise::ge_runner {

using CollectorCallback = std::function<ge::Status(uint32_t, const std::map<ge::AscendString, ge::Tensor>&)>;

/// Empty callbacks are refused.
ge::Status RegisterCollector(uint64_t session, const char* key, const CollectorCallback& callback);

}  // namespace reprise::ge_runner
