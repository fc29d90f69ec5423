// SPDX-License-Identifier: Apache-2.0
//
// Graphs: as nodes and edges.
#include <algorithm>
#include <unordered_set>

#include "ge/access.h"
#include "ge/graph_impl.h"
#include "graph/graph.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;
using compiler::NodeId;

Status NoGraph() { return Invalid("the graph was made empty", "the graph", "make it with a name", GRAPH_FAILED); }

// The nodes of a graph, then those of graphs that they call, each graph once.
void AddNodesOf(const Graph& graph, const compiler::Graph& model, bool with_subgraphs, std::vector<GNode>& nodes,
                std::unordered_set<const compiler::Graph*>& seen) {
  if (!seen.insert(&model).second) return;
  for (NodeId id = 0; id < model.nodes.size(); ++id) {
    if (!model.at(id).is_removed) nodes.push_back(GraphAccess::MakeGNode(graph, id));
  }
  if (!model.results.empty() || !model.results_after.empty()) {
    nodes.push_back(GraphAccess::MakeGNode(graph, compiler::kNoNode));
  }
  if (!with_subgraphs) return;
  for (const compiler::Node& node : model.nodes) {
    if (node.is_removed) continue;
    for (const auto& inner : node.graphs) AddNodesOf(GraphAccess::Wrap(inner), *inner, true, nodes, seen);
  }
}

// The id of a node of this graph; kNoNode for its NetOutput.
StatusOr<NodeId> OwnNode(Graph::Impl* graph, const GNode& node, const std::shared_ptr<GNode::Impl>& impl,
                         const char* parameter) {
  if (graph == nullptr) return NoGraph();
  REPRISE_RETURN_IF_ERROR(graph->Detach());
  if (!impl || impl->graph->model.get() != graph->model.get()) {
    return Invalid(fmt::format("the node is none of the graph {}", graph->name), fmt::format("parameter {}", parameter),
                   "take nodes from GetDirectNode, FindNodeByName or AddNodeByOp of this graph");
  }
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const compiler::Node known, GraphAccess::NodeOf(node));
  return impl->id;
}

Status NoPort(const compiler::Node& node, const char* what, int32_t index, size_t count) {
  return Invalid(
      fmt::format("node {} ({}) has {} {}s, so that there is no {}", node.name, node.type, count, what, index),
      fmt::format("parameter {}", *what == 'i' ? "dst_port_index" : "src_port_index"), "count from 0",
      GRAPH_PARAM_OUT_OF_RANGE);
}

// Data nodes are numbered by their attribute where that is new and next; others come last.
void AddInput(compiler::Graph& model, NodeId id) {
  compiler::Node& node = model.at(id);
  node.attributes.insert_or_assign("index", static_cast<int64_t>(model.inputs.size()));
  model.inputs.push_back(id);
}

void DropInput(compiler::Graph& model, NodeId id) {
  model.inputs.erase(std::remove(model.inputs.begin(), model.inputs.end(), id), model.inputs.end());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    model.at(model.inputs[i]).attributes.insert_or_assign("index", static_cast<int64_t>(i));
  }
}

// Whether `first` is reached from `then` against the edges: an edge from `then` to `first` closes a circle.
bool IsBehind(const compiler::Graph& model, NodeId first, NodeId then) {
  std::vector<uint8_t> seen(model.nodes.size(), 0);
  std::vector<NodeId> waiting = {then};
  while (!waiting.empty()) {
    const NodeId id = waiting.back();
    waiting.pop_back();
    if (id == first) return true;
    if (id >= seen.size() || seen[id] != 0) continue;
    seen[id] = 1;
    for (const compiler::Input& input : model.at(id).inputs) {
      if (input.source.is_set()) waiting.push_back(input.source.node);
    }
    for (const NodeId before : model.at(id).after) waiting.push_back(before);
  }
  return false;
}

Status Circle(const compiler::Graph& model, NodeId source, NodeId target) {
  return Invalid(
      fmt::format("the edge from {} to {} would close a circle", model.at(source).name, model.at(target).name),
      "parameter dst_node", "loops are While operators with a subgraph", GRAPH_FAILED);
}

}  // namespace

std::vector<GNode> Graph::GetAllNodes() const {
  std::vector<GNode> nodes;
  Answer("ge::Graph::GetAllNodes", [&]() -> Status {
    if (!impl_) return NoGraph();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    std::unordered_set<const compiler::Graph*> seen;
    AddNodesOf(*this, *impl_->model, true, nodes, seen);
    return {};
  });
  return nodes;
}
std::vector<GNode> Graph::GetDirectNode() const {
  std::vector<GNode> nodes;
  Answer("ge::Graph::GetDirectNode", [&]() -> Status {
    if (!impl_) return NoGraph();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    std::unordered_set<const compiler::Graph*> seen;
    AddNodesOf(*this, *impl_->model, false, nodes, seen);
    return {};
  });
  return nodes;
}
GNodePtr Graph::FindNodeByName(const AscendString& name) const {
  GNodePtr node;
  Answer("ge::Graph::FindNodeByName", [&]() -> Status {
    if (!impl_) return NoGraph();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    const NodeId id = impl_->model->Find(name.GetString());
    if (id != compiler::kNoNode) node = std::make_shared<GNode>(GraphAccess::MakeGNode(*this, id));
    return {};
  });
  return node;
}

GNode Graph::AddNodeByOp(const Operator& op) {
  GNode node;
  Answer("ge::Graph::AddNodeByOp", [&]() -> Status {
    if (!impl_) return NoGraph();
    if (op.IsEmpty()) return Invalid("the operator is empty", "parameter op", "make it with a name and a type");
    REPRISE_RETURN_IF_ERROR(impl_->Detach());
    if (op.impl_->type == "NetOutput") {
      return Invalid("results are no node here", "parameter op", "name them with SetOutputs");
    }
    if (impl_->model->Find(op.impl_->name) != compiler::kNoNode) {
      return Invalid(fmt::format("the graph {} has a node {} already", impl_->name, op.impl_->name), "parameter op",
                     "give every node of a graph a name of its own", GRAPH_FAILED);
    }
    NodeExtras extras;
    REPRISE_ASSIGN_OR_RETURN(compiler::Node made, MakeNode(*op.impl_, &extras));
    impl_->extras.insert_or_assign(made.name, std::move(extras));
    const NodeId id = impl_->model->Add(std::move(made));
    if (impl_->model->at(id).kind == compiler::NodeKind::kData) AddInput(*impl_->model, id);
    impl_->has_model = true;
    impl_->Changed();
    node = GraphAccess::MakeGNode(*this, id);
    return {};
  });
  return node;
}

graphStatus Graph::RemoveNode(GNode& node) { return RemoveNode(node, false); }
graphStatus Graph::RemoveNode(GNode& node, bool /*contain_subgraph*/) {
  return Answer("ge::Graph::RemoveNode", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const NodeId id, OwnNode(impl_.get(), node, node.impl_, "node"));
    compiler::Graph& model = *impl_->model;
    if (id == compiler::kNoNode) {
      model.results.clear();
      model.results_after.clear();
    } else {
      compiler::Node& removed = model.at(id);
      removed.is_removed = true;
      removed.graphs.clear();
      for (compiler::Node& other : model.nodes) {
        for (compiler::Input& input : other.inputs) {
          if (input.source.node == id) input.source = {};
        }
        other.after.erase(std::remove(other.after.begin(), other.after.end(), id), other.after.end());
      }
      const auto is_gone = [id](const compiler::Port& port) { return port.node == id; };
      model.results.erase(std::remove_if(model.results.begin(), model.results.end(), is_gone), model.results.end());
      model.results_after.erase(std::remove(model.results_after.begin(), model.results_after.end(), id),
                                model.results_after.end());
      DropInput(model, id);
      impl_->extras.erase(removed.name);
    }
    impl_->Changed();
    return {};
  });
}

graphStatus Graph::AddDataEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node,
                               const int32_t dst_port_index) {
  return Answer("ge::Graph::AddDataEdge", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const NodeId source, OwnNode(impl_.get(), src_node, src_node.impl_, "src_node"));
    REPRISE_ASSIGN_OR_RETURN(const NodeId target, OwnNode(impl_.get(), dst_node, dst_node.impl_, "dst_node"));
    compiler::Graph& model = *impl_->model;
    if (source == compiler::kNoNode) {
      return Invalid("a NetOutput has no outputs", "parameter src_node", "pass a node that has");
    }
    const compiler::Node& from = model.at(source);
    if (src_port_index < 0 || static_cast<size_t>(src_port_index) >= from.outputs.size()) {
      return NoPort(from, "output", src_port_index, from.outputs.size());
    }
    const compiler::Port port{source, static_cast<uint32_t>(src_port_index)};
    if (target == compiler::kNoNode) {
      if (dst_port_index < 0 || static_cast<size_t>(dst_port_index) > model.results.size()) {
        return Invalid(
            fmt::format("the graph has {} results, so that {} cannot be next", model.results.size(), dst_port_index),
            "parameter dst_port_index", "count from 0", GRAPH_PARAM_OUT_OF_RANGE);
      }
      if (static_cast<size_t>(dst_port_index) == model.results.size()) model.results.emplace_back();
      model.results[static_cast<size_t>(dst_port_index)] = port;
      impl_->Changed();
      return {};
    }
    compiler::Node& to = model.at(target);
    if (dst_port_index < 0 || static_cast<size_t>(dst_port_index) >= to.inputs.size()) {
      return NoPort(to, "input", dst_port_index, to.inputs.size());
    }
    if (to.inputs[static_cast<size_t>(dst_port_index)].source.is_set()) {
      return Invalid(fmt::format("input {} of node {} is connected already", dst_port_index, to.name),
                     "parameter dst_port_index", "remove the other edge first", GRAPH_FAILED);
    }
    if (IsBehind(model, target, source)) return Circle(model, source, target);
    to.inputs[static_cast<size_t>(dst_port_index)].source = port;
    impl_->Changed();
    return {};
  });
}

graphStatus Graph::AddControlEdge(GNode& src_node, GNode& dst_node) {
  return Answer("ge::Graph::AddControlEdge", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const NodeId source, OwnNode(impl_.get(), src_node, src_node.impl_, "src_node"));
    REPRISE_ASSIGN_OR_RETURN(const NodeId target, OwnNode(impl_.get(), dst_node, dst_node.impl_, "dst_node"));
    compiler::Graph& model = *impl_->model;
    if (source == compiler::kNoNode) {
      return Invalid("nothing comes behind a NetOutput", "parameter src_node", "pass another node");
    }
    if (target != compiler::kNoNode && IsBehind(model, target, source)) return Circle(model, source, target);
    auto& after = target == compiler::kNoNode ? model.results_after : model.at(target).after;
    if (std::find(after.begin(), after.end(), source) == after.end()) after.push_back(source);
    impl_->Changed();
    return {};
  });
}

graphStatus Graph::RemoveEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node,
                              const int32_t dst_port_index) {
  return Answer("ge::Graph::RemoveEdge", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const NodeId source, OwnNode(impl_.get(), src_node, src_node.impl_, "src_node"));
    REPRISE_ASSIGN_OR_RETURN(const NodeId target, OwnNode(impl_.get(), dst_node, dst_node.impl_, "dst_node"));
    compiler::Graph& model = *impl_->model;
    const auto none = [&] {
      return Invalid(fmt::format("there is no edge from {}:{} to {}:{}", src_node.impl_->name, src_port_index,
                                 dst_node.impl_->name, dst_port_index),
                     "parameter src_port_index", "pass both ends as they were connected; -1 and -1 for order",
                     GRAPH_FAILED);
    };
    const bool is_result = target == compiler::kNoNode;
    if (src_port_index == -1 && dst_port_index == -1) {
      auto& after = is_result ? model.results_after : model.at(target).after;
      const auto found = std::find(after.begin(), after.end(), source);
      if (found == after.end()) return none();
      after.erase(found);
    } else {
      const size_t count = is_result ? model.results.size() : model.at(target).inputs.size();
      if (src_port_index < 0 || dst_port_index < 0 || static_cast<size_t>(dst_port_index) >= count) return none();
      const auto place = static_cast<size_t>(dst_port_index);
      const compiler::Port wanted{source, static_cast<uint32_t>(src_port_index)};
      if ((is_result ? model.results[place] : model.at(target).inputs[place].source) != wanted) return none();
      if (is_result) {
        model.results.erase(model.results.begin() + dst_port_index);
      } else {
        model.at(target).inputs[place].source = {};
      }
    }
    impl_->Changed();
    return {};
  });
}

// ---- Subgraphs ----

namespace {

// Graphs that nodes call, by name, as graphs of the caller that stay the same objects.
void FindSubgraphs(const compiler::Graph& model, std::map<std::string, GraphPtr>& found,
                   std::unordered_set<const compiler::Graph*>& seen) {
  for (const compiler::Node& node : model.nodes) {
    if (node.is_removed) continue;
    for (const auto& inner : node.graphs) {
      if (!seen.insert(inner.get()).second) continue;
      if (found.find(inner->name) == found.end()) {
        found.emplace(inner->name, std::make_shared<Graph>(GraphAccess::Wrap(inner)));
      }
      FindSubgraphs(*inner, found, seen);
    }
  }
}

}  // namespace

graphStatus Graph::AddSubgraph(const Graph& subgraph) {
  return Answer("ge::Graph::AddSubgraph", [&]() -> Status {
    if (!impl_ || !subgraph.impl_) return NoGraph();
    if (GraphAccess::Holds(subgraph, *this)) {
      return Invalid(fmt::format("the graph {} would hold itself", impl_->name), "parameter subgraph",
                     "loops are While operators with a subgraph", GRAPH_FAILED);
    }
    if (!impl_->subgraphs.emplace(subgraph.impl_->name, std::make_shared<Graph>(subgraph)).second) {
      return Invalid(fmt::format("the graph {} has a subgraph {} already", impl_->name, subgraph.impl_->name),
                     "parameter subgraph", "give every graph a name of its own", GRAPH_FAILED);
    }
    return {};
  });
}
GraphPtr Graph::GetSubgraph(const char* name) const {
  GraphPtr graph;
  Answer("ge::Graph::GetSubgraph", [&]() -> Status {
    if (!impl_) return NoGraph();
    if (name == nullptr) return NullArgument("name");
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    std::unordered_set<const compiler::Graph*> seen;
    FindSubgraphs(*impl_->model, impl_->subgraphs, seen);
    const auto found = impl_->subgraphs.find(name);
    if (found != impl_->subgraphs.end()) graph = found->second;
    return {};
  });
  return graph;
}
std::vector<GraphPtr> Graph::GetAllSubgraphs() const {
  std::vector<GraphPtr> graphs;
  Answer("ge::Graph::GetAllSubgraphs", [&]() -> Status {
    if (!impl_) return NoGraph();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    std::unordered_set<const compiler::Graph*> seen;
    FindSubgraphs(*impl_->model, impl_->subgraphs, seen);
    for (const auto& [name, graph] : impl_->subgraphs) graphs.push_back(graph);
    return {};
  });
  return graphs;
}
graphStatus Graph::RemoveSubgraph(const char* name) {
  return Answer("ge::Graph::RemoveSubgraph", [&]() -> Status {
    if (!impl_) return NoGraph();
    if (name == nullptr) return NullArgument("name");
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    for (const compiler::Node& node : impl_->model->nodes) {
      for (const auto& inner : node.graphs) {
        if (node.is_removed || inner->name != name) continue;
        return Invalid(fmt::format("node {} calls the graph {}", node.name, name), "parameter name",
                       "remove the node first", GRAPH_FAILED);
      }
    }
    if (impl_->subgraphs.erase(name) == 0) {
      return Invalid(fmt::format("the graph {} has no subgraph {}", impl_->name, name), "parameter name",
                     "GetAllSubgraphs lists those that there are", GRAPH_FAILED);
    }
    return {};
  });
}

}  // namespace ge
