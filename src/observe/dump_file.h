// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"

namespace reprise::observe {

/// Writes what the ending of the path asks for: .json, .svg (see SvgPicture for `every_task`), .dot. 107000 for any
/// other; 107009 when the file cannot be written, 107000 for .json.
Status WriteDump(const model::Model& model, const std::string& path, bool every_task);

/// The refusal of an ending, or nothing: for those who would only find out later.
Status CheckDumpEnding(const std::string& path);

}  // namespace reprise::observe
