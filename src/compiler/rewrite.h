// SPDX-License-Identifier: Apache-2.0
//
// Rewriter: a graph while it is rewritten. It knows who uses which output, and keeps that up to date with each change.
//
//     Rewriter rewriter(graph);
//     for (NodeId id = 0; id < graph.nodes.size(); ++id) {
//       if (!graph.at(id).is_removed && graph.at(id).type == "Identity") rewriter.Splice(id);
//     }
//
// Each change costs time by what it changes, not by the size of the graph: a pass that visits every node once is
// linear. Nodes that are added stand behind all others; references to nodes do not survive an Add.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph.h"

namespace reprise::compiler {

/// A place where an output is used: input `index` of a node; of kNoNode: result `index` of the graph.
struct Use {
  NodeId node = kNoNode;
  uint32_t index = 0;

  bool is_result() const { return node == kNoNode; }
  friend bool operator==(const Use&, const Use&) = default;
  friend bool operator<(const Use& a, const Use& b) { return a.node != b.node ? a.node < b.node : a.index < b.index; }
};

/// Changes of `graph` that do not go through the rewriter, but for types, attributes and notes, make it invalid.
///
/// Threads: thread-compatible.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }

  // ---- Who uses what ----

  /// In the order of nodes, results last.
  const std::vector<Use>& UsesOf(Port port);
  size_t UseCount(Port port) const;
  /// All outputs together.
  size_t UseCount(NodeId node) const;
  /// Nodes with a control edge from this one; kNoNode where the graph's results wait for it.
  const std::vector<NodeId>& FollowersOf(NodeId node);
  /// One node reads it, at one input, and it is no result.
  bool HasOneReader(Port port);
  /// Neither uses nor followers.
  bool IsUnused(NodeId node);

  // ---- Edges ----

  void Set(Use use, Port source);
  void ReplaceUses(Port from, Port to);
  /// `then` waits for `first`; kNoNode: the results do. Once is enough.
  void AddOrder(NodeId first, NodeId then);
  void RemoveOrder(NodeId first, NodeId then);
  /// Whoever waits for `from` waits for `to` instead.
  void MoveFollowers(NodeId from, NodeId to);
  /// `to` waits for all that `from` waits for by control edges.
  void CopyOrderBefore(NodeId from, NodeId to);

  // ---- Nodes ----

  /// A name that is taken gets a number. Outputs keep the types that they have.
  NodeId Add(Node node);
  NodeId AddConstant(std::string name, std::shared_ptr<const Constant> constant);
  /// An operator of a known type with these inputs, named by the row's operands, and one output like `result`.
  NodeId AddOperator(std::string name, std::string_view type, const std::vector<Port>& inputs, const Tensor& result,
                     opdef::Attributes attributes = {});
  /// A copy of the node, which nobody uses.
  NodeId Clone(NodeId node, std::string name);
  /// Puts the node, whose input 0 is read and output 0 is used, in the place of an edge. Gives the output the type of
  /// the edge.
  NodeId InsertOnEdge(Use use, Node node);
  /// Its followers wait for what it waited for. \pre no output has uses
  void Remove(NodeId node);
  /// Removes it and what only it needed; not the inputs of the graph, and nothing with effects.
  void RemoveWithSources(NodeId node);
  /// Removes a node whose output 0 is input `input`. Users and followers wait for what it waited for. \pre the other
  /// outputs have no uses
  void Splice(NodeId node, uint32_t input = 0);
  /// `replacement` in the place of a node: uses of its outputs by index, followers, what it waited for.
  void Replace(NodeId node, NodeId replacement);

  /// A name that no node has: `base`, or with a number.
  std::string FreshName(std::string_view base);

 private:
  struct PortUses {
    std::vector<Use> list;  // with some that are no more, once is_stale
    uint32_t count = 0;
    bool is_stale = false;
  };
  struct NodeUses {
    std::vector<PortUses> outputs;
    std::vector<NodeId> followers;
    bool is_stale = false;
  };

  PortUses& At(Port port);
  Port& SourceOf(Use use);
  void Drop(Port port);
  void Register(NodeId node);
  bool WaitsFor(NodeId node, NodeId first) const;

  Graph& graph_;
  std::vector<NodeUses> uses_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

// ---- What a node is to passes ----

/// An attribute or a note of this name, or null.
const opdef::AttributeValue* FindNote(const Node& node, std::string_view name);
/// Whether a note is there and true.
bool HasNote(const Node& node, std::string_view name);

/// Inputs that the node writes, with the output that is the same memory: pairs (input, output).
std::vector<std::pair<uint32_t, uint32_t>> WrittenInputs(const Graph& graph, NodeId node);
/// Its outputs follow from inputs and attributes alone: it may be dropped, merged with an equal one, and computed when
/// its inputs are known. Operators without a row are not.
bool IsPure(const Graph& graph, NodeId node);
/// It does something beside its outputs, writes an input, or nobody knows what it does: it must not be dropped.
bool HasEffect(const Graph& graph, NodeId node);

/// Removes nodes that are marked as removed, and numbers the others anew, in their order.
void Compact(Graph& graph);
/// For edges, inputs and results behind nodes that have moved: by old number the new one, kNoNode for removed ones.
void Renumber(Graph& graph, const std::vector<NodeId>& numbers);

}  // namespace reprise::compiler
