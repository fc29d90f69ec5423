// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
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
/// Constants of more than 16 elements show how many bytes they have, or "0.5 ..." where all are 0.5. A format that is
/// not ND stands behind the shape: "format 0". Subgraphs follow.
enum class Notes : uint8_t { kLeaveOut, kShow };  ///< kShow: `notes {_mark = true}` behind the attributes
std::string ToText(const Graph& graph, Notes notes = Notes::kLeaveOut);

/// Reads what ToText writes, notes included, and shorter forms:
///
///     x = Data() : float32 [s0, 128]       outputs need no names
///     y = Relu(x) : float32 [s0, 128]      "x" is "x:0"; inputs without names are bound in order
///     z = Relu(y)                          operators need no outputs: InferShapes works them out
///     w = Const() : float32 [100] = 1, 2 ...   the last element is repeated
///     # a comment
///
/// Data nodes are inputs in their order. Nodes may be used before their line. Refuses (100000) with the line. The graph
/// is not verified.
StatusOr<std::unique_ptr<Graph>> FromText(std::string_view text);

/// The graph in the language of Graphviz: nodes with types, edges with shapes, dashed edges of order.
std::string ToDot(const Graph& graph);

}  // namespace reprise::compiler
