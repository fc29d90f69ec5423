// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace reprise::engine {

/// Adds a line to the calling thread's warnings, and to the log.
void Warn(const std::string& text);
/// The calling thread's warnings, which are then forgotten.
std::string TakeWarnings();

}  // namespace reprise::engine
