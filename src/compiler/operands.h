// SPDX-License-Identifier: Apache-2.0
//
// Which inputs of a node are which operands of its operator.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// By operand of the row: indexes into Node::inputs; empty for one that is left out.
using Operands = std::vector<std::vector<uint32_t>>;

/// By names where the inputs have names ("x1"; "x0", "x1" … of a list `x`), else by position. Refuses (100000) names
/// that the operator does not have, operands twice, and missing ones that it needs. \pre the node has a row.
StatusOr<Operands> BindOperands(const Graph& graph, NodeId node);

/// By operand of the row: how many outputs of the node are its own; a list has those that the others leave. \pre the
/// node has a row.
std::vector<size_t> OutputCounts(const Node& node);

/// Which input of the calling node a Data node of a called graph stands for: what its note _parent_node_index says,
/// less the inputs that are no arguments; else its own place.
size_t CallerInput(const Graph& callee, size_t place, size_t skipped);

}  // namespace reprise::compiler
