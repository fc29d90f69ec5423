// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace reprise {

/// Makes the folder and those above it, unless they exist. 100003 when files cannot be made in it.
Status MakeFolder(const std::string& folder);

}  // namespace reprise
