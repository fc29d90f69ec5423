// SPDX-License-Identifier: Apache-2.0
//
// What is behind a Graph and a GNode: a graph of the compiler, made of operators or of a model, and what the compiler's
// graph does not have.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph.h"
#include "ge/data.h"
#include "ge/operator_impl.h"
#include "graph/gnode.h"
#include "graph/graph.h"

namespace ge {

using OperatorPtr = std::shared_ptr<Operator::Impl>;

/// The operators that a graph was made of, which it follows until it is changed as nodes.
struct OperatorRoots {
  struct Result {
    OperatorPtr op;
    std::optional<std::vector<uint32_t>> outputs;  ///< nothing: all
  };
  std::vector<OperatorPtr> inputs;
  std::vector<Result> results;
  std::vector<OperatorPtr> targets;
  std::vector<OperatorPtr> others;

  bool empty() const { return inputs.empty() && results.empty() && targets.empty() && others.empty(); }
};

/// What a node has beside that which the compiler knows.
struct NodeExtras {
  AttributeMap attributes;  ///< tensors, functions, bytes
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
};

struct Graph::Impl {
  std::string name;
  std::shared_ptr<reprise::compiler::Graph> model = std::make_shared<reprise::compiler::Graph>();
  std::map<std::string, NodeExtras, std::less<>> extras;  ///< by the name of the node
  std::string bytes;       ///< the serialised model that it was read from, as long as it is the same
  bool has_model = false;  ///< it was read, or set by the compiler: an empty graph is valid, too

  OperatorRoots roots;
  std::vector<OperatorPtr> members;  ///< operators that `model` was made of
  bool follows = false;              ///< `model` is made of `roots`
  uint64_t built = 0;                ///< LastChange() when it was

  std::map<std::string, AttrValue> attributes;
  std::map<std::string, std::shared_ptr<Graph>> subgraphs;  ///< added by name, or asked for

  /// Makes `model` anew where operators have changed.
  Status Update();
  /// As Update; then operators no longer count.
  Status Detach();
  void Changed() { bytes.clear(); }
};

/// The operators that are reached from the roots, made into a graph of the compiler. `Build` gives the operators of its
/// nodes, too.
struct BuiltGraph {
  std::shared_ptr<reprise::compiler::Graph> model;
  std::map<std::string, NodeExtras, std::less<>> extras;
  std::vector<OperatorPtr> members;
};
StatusOr<BuiltGraph> BuildGraph(const std::string& name, const OperatorRoots& roots);

/// A node for an operator, without edges. Graphs that it calls are built.
StatusOr<reprise::compiler::Node> MakeNode(const Operator::Impl& op, NodeExtras* extras);
/// With subgraphs, which several nodes may share; constants are shared.
std::shared_ptr<reprise::compiler::Graph> CloneModel(const reprise::compiler::Graph& model);

struct GNode::Impl {
  std::shared_ptr<Graph::Impl> graph;
  reprise::compiler::NodeId id = reprise::compiler::kNoNode;  ///< kNoNode: the results of the graph, as a NetOutput
  std::string name;
};

}  // namespace ge
