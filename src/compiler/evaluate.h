// SPDX-License-Identifier: Apache-2.0
//
// Values of nodes, computed while a graph is compiled: by the kernels that would run later, on the calling thread, in
// host memory, without a device or a stream.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

using ConstantPtr = std::shared_ptr<const Constant>;

/// Whether there are kernels for the operator.
bool CanEvaluate(const Node& node);

/// The outputs of an operator. `inputs` as Node::inputs, null for those that are left out. The shapes of the outputs are
/// known. Operators that write an input write a copy of it. Refuses (100024) operators without kernels, and what the
/// kernels refuse.
StatusOr<std::vector<ConstantPtr>> EvaluateNode(const Graph& graph, NodeId node, std::span<const ConstantPtr> inputs);

/// The results of a graph without loops. `inputs` by the index of Graph::inputs. Shapes are inferred and known. Follows
/// PartitionedCall, If and Case; types that have no kernels and only move memory (Shape, Size, Rank) are computed, too.
StatusOr<std::vector<ConstantPtr>> EvaluateGraph(const Graph& graph, std::span<const ConstantPtr> inputs);

/// What Shape, ShapeN, Size and Rank give for output `index`, from the shapes of their inputs; null where these are not
/// known, and for other types.
ConstantPtr DimensionOf(const Graph& graph, NodeId node, uint32_t index);

}  // namespace reprise::compiler
