// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compiler/graph.h"

namespace reprise::compiler {

/// The graph as lines, one for each node, in an order in which it can run:
///
///     graph main
///     x = Data() : y float32 [s0, 128]
///     w = Const() : y int64 [2] = 1, -1
///     sum = ReduceSum(x = x:0, axes = w:0) {keep_dims = true} after (x) : y float32 [s0]
///     return sum:0
///
/// Constants of more than 16 elements show how many bytes they have. Subgraphs follow.
std::string ToText(const Graph& graph);

/// The graph in the language of Graphviz: nodes with types, edges with shapes, dashed edges of order.
std::string ToDot(const Graph& graph);

}  // namespace reprise::compiler
