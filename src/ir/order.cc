// SPDX-License-Identifier: Apache-2.0
#include "ir/order.h"

#include <algorithm>

#include "ir/dag.h"

namespace reprise::ir {

// Nodes come in the order of submission: a wait after its record.
void Order::CatchUp(const Graph& graph) {
  const NodeRange nodes = graph.nodes();
  if (lanes_.size() < graph.lanes().size()) lanes_.resize(graph.lanes().size());
  for (; seen_ < nodes.size(); ++seen_) {
    const Node node = nodes[seen_];
    Lane& lane = lanes_[node.lane];
    if (lane.before.size() <= node.lane) lane.before.resize(node.lane + 1, 0);
    if (const NodeId before = RecordBefore(graph, node); before != kNoNode) {
      const std::vector<uint32_t>& record = records_[before];
      if (lane.before.size() < record.size()) lane.before.resize(record.size(), 0);
      for (size_t i = 0; i < record.size(); ++i) lane.before[i] = std::max(lane.before[i], record[i]);
    }
    lane.before[node.lane] = node.position + 1;
    if (node.type == &kEdgeRecord) {
      records_[seen_] = lane.before;
    } else if (node.type != &kEdgeWait) {
      lane.tasks = node.position + 1;
    }
  }
}

}  // namespace reprise::ir
