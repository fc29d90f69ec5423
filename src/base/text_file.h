// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise {

/// Writes the whole file anew. 107009 with the system's reason when that fails, and then nothing of it is left.
Status WriteTextFile(const std::string& path, std::string_view text);

}  // namespace reprise
