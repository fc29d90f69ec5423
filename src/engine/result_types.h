// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::engine {

/// Casts the results of a graph to the type that ge.outputDatatype names; empty: leaves them. Refuses names that it
/// does not know, and types that no kernel computes.
Status CastResults(compiler::Graph& graph, std::string_view type);

}  // namespace reprise::engine
