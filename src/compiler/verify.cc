// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/graph.h"
#include "compiler/operands.h"
#include "opdef/infer.h"

namespace reprise::compiler {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::set<const Graph*>& seen) : graph_(graph), seen_(seen) {}

  Status Run() {
    REPRISE_RETURN_IF_ERROR(CheckNames());
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!graph_.at(id).is_removed) REPRISE_RETURN_IF_ERROR(CheckNode(id));
    }
    REPRISE_RETURN_IF_ERROR(CheckEnds());
    return CheckOrder();
  }

 private:
  Status Wrong(const Node& node, std::string what, std::string hint) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): {}", node.name, node.type, what))
        .Culprit(fmt::format("graph {}", graph_.name))
        .Hint(std::move(hint));
  }

  Status CheckNames() {
    std::unordered_map<std::string_view, NodeId> names;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.at(id);
      if (node.is_removed) continue;
      if (node.name.empty()) {
        return Error(kInvalidArgument, fmt::format("node {} of type {} has no name", id, node.type))
            .Culprit(fmt::format("graph {}", graph_.name))
            .Hint("name every node");
      }
      if (!names.emplace(node.name, id).second) {
        return Wrong(node, "another node has this name", "give every node of a graph a name of its own");
      }
    }
    return {};
  }

  Status CheckPort(const Node& node, std::string_view what, const Port& port) const {
    if (port.node >= graph_.nodes.size() || graph_.at(port.node).is_removed) {
      return Wrong(node, fmt::format("{} comes from a node that does not exist", what),
                   "connect it to a node of the graph");
    }
    const Node& source = graph_.at(port.node);
    if (port.output < source.outputs.size()) return {};
    return Wrong(node,
                 fmt::format("{} comes from output {} of {} ({}), which has {}", what, port.output, source.name,
                             source.type, source.outputs.size()),
                 "connect it to an output that there is");
  }

  Status CheckNode(NodeId id) const {
    const Node& node = graph_.at(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].source.is_set()) continue;
      REPRISE_RETURN_IF_ERROR(
          CheckPort(node, fmt::format("input {} ({})", i, node.inputs[i].name), node.inputs[i].source));
    }
    for (const NodeId first : node.after) {
      if (first < graph_.nodes.size() && !graph_.at(first).is_removed) continue;
      return Wrong(node, "a control edge comes from a node that does not exist", "connect it to a node of the graph");
    }
    if (node.kind == NodeKind::kConstant) REPRISE_RETURN_IF_ERROR(CheckConstant(node));
    for (const std::shared_ptr<Graph>& inner : node.graphs) {
      if (seen_.insert(inner.get()).second) REPRISE_RETURN_IF_ERROR(Verifier(*inner, seen_).Run());
    }
    if (node.op == nullptr || node.kind != NodeKind::kOperator) return {};
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Operands operands, BindOperands(graph_, id));
    if (Status status = opdef::CheckAttributes(*node.op, &node.attributes, "set the attribute on the operator");
        !status.ok()) {
      return Wrong(node, status.detail().what, status.detail().hint);
    }
    return {};
  }

  Status CheckConstant(const Node& node) const {
    if (node.constant == nullptr) return Wrong(node, "it has no value", "set the attribute value");
    const int64_t bits = opdef::TypeBits(node.constant->dtype);
    if (bits <= 0) return {};  // texts
    int64_t elements = 1;
    for (const int64_t size : node.constant->shape) {
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
        return Wrong(node, "its shape is not that of a value", "give sizes of 0 and up");
      }
    }
    int64_t wanted = 0;
    if (__builtin_mul_overflow(elements, bits, &wanted)) return Wrong(node, "it is too large", "make it smaller");
    wanted = (wanted + 7) / 8;
    if (static_cast<int64_t>(node.constant->bytes.size()) == wanted) return {};
    return Wrong(node,
                 fmt::format("its value has {} bytes, its shape and type {} ask for {}", node.constant->bytes.size(),
                             opdef::TypeName(node.constant->dtype), wanted),
                 "give as many bytes as the shape has elements");
  }

  Status CheckEnds() const {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const NodeId id = graph_.inputs[i];
      if (id < graph_.nodes.size() && !graph_.at(id).is_removed && graph_.at(id).kind == NodeKind::kData) continue;
      return Error(kInvalidArgument, fmt::format("graph {}: input {} is no Data node", graph_.name, i))
          .Hint("number the Data nodes from 0 without gaps");
    }
    Node results;
    results.name = graph_.name;
    results.type = "results";
    for (size_t i = 0; i < graph_.results.size(); ++i) {
      REPRISE_RETURN_IF_ERROR(CheckPort(results, fmt::format("result {}", i), graph_.results[i]));
    }
    return {};
  }

  Status CheckOrder() const {
    std::vector<uint8_t> is_ordered(graph_.nodes.size(), 0);
    for (const NodeId id : TopologicalOrder(graph_)) is_ordered[id] = 1;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (is_ordered[id] == 0 && !graph_.at(id).is_removed) {
        return Wrong(graph_.at(id), "it waits for itself, through a circle of edges, or for such a node",
                     "cut the circle; loops are While operators with a subgraph");
      }
    }
    return {};
  }

  const Graph& graph_;
  std::set<const Graph*>& seen_;  // several nodes may call one
};

}  // namespace

Status Verify(const Graph& graph) {
  std::set<const Graph*> seen = {&graph};
  return Verifier(graph, seen).Run();
}

}  // namespace reprise::compiler
