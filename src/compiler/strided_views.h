// SPDX-License-Identifier: Apache-2.0
//
// Values that are read where another value lies, element by element at a distance: what transposes, cuts and reshapes
// give, where all who read them take operands of any strides. Such nodes have no task.
//
//     qkv [s, 3 * n * d] -> Reshape [s, 3, n, d] -> Transpose [3, n, s, d] -> Unpack -> query, key, value [n, s, d]
//
// are five nodes and no copy in front of attention. Indices of gathers may lie at any distance, too: columns of a table
// of indices.
//
// And where values are joined along other dims than the first, their producers write them where the result lies, if
// their kernels write at any distance.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/graph.h"

namespace reprise::compiler {

/// Where the elements of an output lie in the memory of another output, which is row-major.
struct StridedValue {
  Port source;
  int64_t offset = 0;            ///< in elements
  std::vector<int64_t> strides;  ///< in elements, one for each dim
};

/// By node and output. Nothing whose memory somebody writes, no results of the graph, and no heads of attention whose
/// elements do not lie back to back.
std::map<std::pair<NodeId, uint32_t>, StridedValue> FindStridedValues(const Graph& graph);

/// Whether the operator of the node writes an output of that type at any strides as it does row-major.
bool WritesStrides(const Node& node, int32_t dtype);

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes);
/// Strides of the same elements in the same order under other sizes. Nothing where a dim would need two strides.
std::optional<std::vector<int64_t>> ReshapedStrides(const std::vector<int64_t>& sizes,
                                                    const std::vector<int64_t>& strides,
                                                    const std::vector<int64_t>& to);

}  // namespace reprise::compiler
