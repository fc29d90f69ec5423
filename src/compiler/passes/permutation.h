// SPDX-License-Identifier: Apache-2.0
//
// Nodes that reorder dims, whichever type they have: Transpose (from an input), TransposeD and Permute (from an
// attribute).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

/// Output dim d is dim p[d] of the input. Nothing for other nodes, and where it is not known.
std::optional<std::vector<int64_t>> PermutationOf(const Graph& graph, NodeId node);

/// A node that reorders `source` like this, of the kind of `like`; its name is that of `like`, with a number.
NodeId AddTranspose(Rewriter& rewriter, NodeId like, Port source, const std::vector<int64_t>& permutation);

}  // namespace reprise::compiler
