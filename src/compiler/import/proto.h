// SPDX-License-Identifier: Apache-2.0
//
// What the sources of the plugin share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/export/export.h"
#include "compiler/graph.h"

namespace reprise::compiler {

StatusOr<std::unique_ptr<Graph>> ImportModel(std::string_view bytes);
StatusOr<std::string> ExportModel(const Graph& graph, const ExportOptions& options);

/// Note of a Data node that reading has added, in the place of one that a subgraph left out. It is not written.
inline constexpr char kUnusedInput[] = "_unused_input";

/// Edges as models write them: values first, in their order, then those of order.
std::vector<std::string> EdgesOf(const Graph& graph, const std::vector<Port>& sources,
                                 const std::vector<NodeId>& after);

}  // namespace reprise::compiler
