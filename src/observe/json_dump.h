// SPDX-License-Identifier: Apache-2.0
//
// What a captured graph looks like from outside: the JSON dump (opens in trace viewers) and log lines.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"

namespace reprise::observe {

/// The dump of aclmdlRIDebugJsonPrint: one object per task, streams with the origin last, then the bodies of
/// conditional tasks. `verbose` adds kernel arguments.
std::string JsonDump(const model::Model& model, bool verbose);

/// Writes the dump; 107000 when the file cannot be written.
Status WriteJsonDump(const model::Model& model, const std::string& path, bool verbose);

/// One log line per task, those of bodies included (aclmdlRIDebugPrint).
void LogTasks(const model::Model& model);

}  // namespace reprise::observe
