// SPDX-License-Identifier: Apache-2.0
//
// A picture of a captured graph: one column per stream, tasks top-down in order, arrows where one stream waits for
// another.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"

namespace reprise::observe {

/// A complete SVG document. Graphs of more than `max_tasks` tasks show the first and the last of each stream.
std::string SvgPicture(const model::Model& model, size_t max_tasks = 400);

/// 107009 when the file cannot be written.
Status WriteSvgPicture(const model::Model& model, const std::string& path);

}  // namespace reprise::observe
