// SPDX-License-Identifier: Apache-2.0
//
// Nodes that call graphs: If, Case, While, For, PartitionedCall. They run on the host, between waits for the stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// The graphs that the nodes of a graph call, compiled once.
///
/// Threads: Compile first; then thread-safe.
class CalledGraphs {
 public:
  /// All that `graph` calls.
  Status Compile(const Graph& graph, const CompileOptions& options);
  /// Null for one that was not compiled.
  Executable* Find(const Graph* graph) const;

 private:
  std::map<const Graph*, std::shared_ptr<Executable>> by_graph_;
};

/// Memory that lives until the stream has passed the end of the run.
using AllocateForRun = std::function<StatusOr<void*>(uint64_t bytes)>;

/// Runs a node that calls graphs. The stream has nothing to do when it begins. `inputs` by Data node of `graph`, which
/// holds the node and its inputs. Refuses (100000) predicates that are no number, and graphs that take or give other
/// tensors than the node.
StatusOr<std::vector<RunTensor>> RunCall(const Graph& graph, NodeId node, std::span<const RunTensor> inputs,
                                         runtime::Stream& stream, const CalledGraphs& called,
                                         const AllocateForRun& allocate);

}  // namespace reprise::compiler
