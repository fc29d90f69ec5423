// SPDX-License-Identifier: Apache-2.0
//
// A picture of a captured graph: one column per stream, tasks top-down in order, arrows where one stream waits for
// another, bodies of conditional tasks as frames in them.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"

namespace reprise::observe {

/// A complete SVG document. Tasks of long streams share boxes, by the line of the program or by name, and of endless
/// ones the middle is left out, unless `every_task` wants a box for each.
std::string SvgPicture(const model::Model& model, bool every_task = false);

/// 107009 when the file cannot be written.
Status WriteSvgPicture(const model::Model& model, const std::string& path, bool every_task = false);

}  // namespace reprise::observe
