// SPDX-License-Identifier: Apache-2.0
//
// Orders in which the nodes of a graph can run.
#pragma once

#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// By the numbers of ge.topoSortingMode.
enum class OrderMode : uint8_t {
  kBreadthFirst = 0,
  kDepthFirst = 1,         ///< behind a node those that it was the last to wait for
  kReverseDepthFirst = 2,  ///< each node right in front of the first that needs it
  kStable = 3,             ///< nodes stay in their order where they can; those that were added stand in front of their user
};

/// Every node stands behind those it needs, by values and by control edges. Refuses (100000) a circle, with one of its
/// nodes.
StatusOr<std::vector<NodeId>> OrderOf(const Graph& graph, OrderMode mode);

/// Numbers the nodes in that order, without those that are removed.
Status Sort(Graph& graph, OrderMode mode);

/// Whether `last` runs behind `first` in any order. Costs time by the number of nodes between the two.
bool RunsBehind(const Graph& graph, NodeId first, NodeId last);

}  // namespace reprise::compiler
