// SPDX-License-Identifier: Apache-2.0
//
// A graph for Graphviz: one box a task, one cluster a stream, arrows for the order that the graph keeps.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"

namespace reprise::observe {

std::string Dot(const model::Model& model);

/// 107009 when the file cannot be written.
Status WriteDot(const model::Model& model, const std::string& path);

}  // namespace reprise::observe
