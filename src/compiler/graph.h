// SPDX-License-Identifier: Apache-2.0
//
// The graph that the compiler works on: operators of opdef with their values, whatever program or file it came from.
//
// A node has inputs, each an output of another node or left out, and outputs, each of a type and a shape that may be
// partly known. Order without a value is a control edge. What a graph takes and gives are lists of outputs of nodes:
// there are no nodes for results. Nodes are never moved: a NodeId stays what it is until Compact().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "opdef/attribute.h"
#include "opdef/graph_op.h"
#include "opdef/shape.h"

namespace reprise::compiler {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = ~NodeId{0};

/// An output of a node.
struct Port {
  NodeId node = kNoNode;
  uint32_t output = 0;

  bool is_set() const { return node != kNoNode; }
  friend bool operator==(const Port&, const Port&) = default;
};

/// Numbers of formats, those of ge::Format.
inline constexpr int32_t kFormatNd = 2;

struct Tensor {
  int32_t dtype = -1;  ///< aclDataType; -1: not known
  int32_t format = kFormatNd;
  opdef::Shape shape = opdef::Shape::UnknownRank();

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// What a model said of something here and there is no field for, in the encoding of api/ge.proto: kept for whoever
/// writes the graph as a model again. Empty: nothing was left over; null: it comes from no model.
using Unread = std::shared_ptr<const std::string>;

/// The bytes of a constant; row-major, shared by all graphs that use it.
struct Constant {
  int32_t dtype = -1;
  std::vector<int64_t> shape;
  std::string bytes;
};

struct Input {
  std::string name;  ///< of the operand: "x1", "x0" for the first tensor of a list `x`
  Port source;       ///< not set: left out
  Unread unread = nullptr;
};

struct Output {
  std::string name;
  Tensor tensor;
  Unread unread = nullptr;
  bool is_type_open = false;  ///< front ends that know no type write float32: inference decides
};

/// What a node is, beyond operators of opdef.
enum class NodeKind : uint8_t {
  kOperator,
  kData,      ///< an input of the graph
  kConstant,  ///< `constant` is set
  kCall,      ///< PartitionedCall, If, Case, While, For: `graphs` are called
  kOrder,     ///< NoOp, ControlTrigger
};

NodeKind KindOfType(std::string_view type);

struct Graph;

struct Node {
  std::string name;
  std::string type;
  NodeKind kind = NodeKind::kOperator;
  bool is_removed = false;
  const opdef::GraphOp* op = nullptr;  ///< null for those that have no row
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<NodeId> after;  ///< control edges: nodes that come first
  opdef::Attributes attributes;
  opdef::Attributes notes;  ///< of front ends and passes: attributes that the operator does not have
  std::shared_ptr<const Constant> constant;
  std::vector<std::shared_ptr<Graph>> graphs;
  Unread unread;
};

/// Threads: thread-compatible.
struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<NodeId> inputs;  ///< nodes of kData, by their index
  std::vector<Port> results;
  std::vector<NodeId> results_after;  ///< what has to have run, although no result needs it
  opdef::Attributes attributes;       ///< of the graph: _input_placements, _output_dtypes …
  Unread unread;
  Unread model;  ///< root graphs: of the model around it

  Node& at(NodeId id) { return nodes[id]; }
  const Node& at(NodeId id) const { return nodes[id]; }
  const Tensor& TensorOf(const Port& port) const { return nodes[port.node].outputs[port.output].tensor; }
  /// "add:0", as edges are written.
  std::string TextOf(const Port& port) const;

  /// The node behind all others. Its name must be new; empty: the type, with a number if that is taken.
  NodeId Add(Node node);
  /// kNoNode when there is none.
  NodeId Find(std::string_view node_name) const;
};

/// Nodes so that each stands behind those it needs; those that stand in circles are left out. Stable: nodes that are
/// not ordered stay as they were.
std::vector<NodeId> TopologicalOrder(const Graph& graph);

/// Whether a graph is one: names are there and differ, edges lead to outputs that exist, there are no circles, operands
/// and attributes are those of the operators, constants have as many bytes as their shapes say; subgraphs, too. Refuses
/// (100000) with node, port and reason.
Status Verify(const Graph& graph);

/// Works out types and shapes of all outputs, in order, from those of the inputs. What front ends said of outputs is
/// held against it. Nodes without a row keep what they have.
Status InferShapes(Graph& graph, opdef::Facts& facts);

}  // namespace reprise::compiler
