// SPDX-License-Identifier: Apache-2.0
//
// The dump that the file of aclInit describes.
#pragma once

#include <string>

#include "base/status.h"

namespace reprise::facade {

/// Begins the dump of the key dump in `text`, the JSON of the configuration file named `file`, if it asks for one.
/// 100009 when it makes no sense.
Status StartDumpOfFile(const std::string& file, const std::string& text);
/// 100004 when something could not be written.
Status EndDumpOfFile();

}  // namespace reprise::facade
