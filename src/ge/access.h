// SPDX-License-Identifier: Apache-2.0
//
// For libge_runner.so: from the classes to the compiler and back. libgraph.so exports it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "graph/gnode.h"
#include "graph/graph.h"

#pragma GCC visibility push(default)

namespace ge {

/// What a type asks for: names with "required", "optional", "dynamic", and of attributes with "VT_INT" …; in the order
/// in which they are declared.
struct IrDefinition {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  Entries inputs;
  Entries outputs;
  Entries attributes;
};

struct GraphAccess {
  /// The graph, verified; the same object each time. From here on it no longer follows the operators that it was made
  /// of, and what is changed in it is seen by GetAllNodes. Refuses (100000) what compiler::Verify refuses; null where
  /// the graph was made empty.
  static reprise::StatusOr<std::shared_ptr<reprise::compiler::Graph>> ModelOf(const Graph& graph);
  /// Equal for copies of one graph, and for nothing else while one of them is alive.
  static const void* IdentityOf(const Graph& graph);
  /// Another model in the place of the first one: what compiling made of it.
  static void SetModel(const Graph& graph, std::shared_ptr<reprise::compiler::Graph> model);
  static Graph Wrap(std::shared_ptr<reprise::compiler::Graph> model);
  static Graph Share(std::shared_ptr<Graph::Impl> impl);
  /// Whether `model` is `other`, or calls it.
  static bool Calls(const reprise::compiler::Graph& model, const reprise::compiler::Graph& other);
  /// The node; of the results (NetOutput) one that is made for the call.
  static reprise::StatusOr<reprise::compiler::Node> NodeOf(const GNode& node);
  /// Whether `graph` is `other`, or has it among its subgraphs.
  static bool Holds(const Graph& graph, const Graph& other);
  static GNode MakeGNode(const Graph& graph, reprise::compiler::NodeId id);
  /// 100000 for a type that has no prototype. Threads: thread-safe.
  static reprise::StatusOr<IrDefinition> DefinitionOf(std::string_view type);
};

}  // namespace ge

#pragma GCC visibility pop
