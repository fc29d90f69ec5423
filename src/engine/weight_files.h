// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "engine/options.h"
#include "engine/summary.h"

namespace reprise::engine {

struct CompileSite;

/// Writes the constants of a graph into files, as ge.externalWeight asks; nothing without it. One file for each value
/// (equal values share it), or one for the graph, in which values begin at multiples of 512.
StatusOr<std::vector<WeightFile>> WriteWeights(const compiler::Graph& graph, const OptionSet& options,
                                               const CompileSite& site);

/// Nodes of type FileConstant, also of graphs that it calls, become constants with what their files hold; a file_id is
/// looked up in ge.exec.value_bins. Refuses those whose file is missing or too short.
Status ReadWeights(compiler::Graph& graph, const OptionSet& options);

}  // namespace reprise::engine
