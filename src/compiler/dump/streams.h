// SPDX-License-Identifier: Apache-2.0
//
// Which stream runs what, as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace reprise::compiler {

struct StreamGraph {
  struct Node {
    std::string name;
    std::string type;
    uint32_t stream = 0;
  };
  std::string name;
  std::vector<Node> nodes;                           ///< in the order in which they are submitted
  std::vector<std::pair<uint32_t, uint32_t>> waits;  ///< (node, node on another stream that waits for it)
};

/// In the language of Graphviz: a cluster for each stream, its nodes in their order, dashed edges for waits.
std::string ToStreamGraph(const StreamGraph& graph);

}  // namespace reprise::compiler
