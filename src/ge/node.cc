// SPDX-License-Identifier: Apache-2.0
//
// Nodes of graphs.
#include <algorithm>
#include <charconv>

#include "ge/access.h"
#include "ge/graph_impl.h"
#include "graph/gnode.h"
#include "graph/graph.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;
using compiler::NodeId;

Status Gone(const GNode::Impl& node) {
  return Invalid(fmt::format("the graph {} has no node {} any more", node.graph->name, node.name), "the node",
                 "take nodes from the graph anew after it has changed", GRAPH_FAILED);
}

// Where the node is now. NetOutput has no place.
StatusOr<NodeId> PlaceOf(const std::shared_ptr<GNode::Impl>& node) {
  if (!node) return Invalid("the node was made empty", "the node", "take nodes from a graph", GRAPH_FAILED);
  const compiler::Graph& model = *node->graph->model;
  if (node->id == compiler::kNoNode) return node->id;
  if (node->id < model.nodes.size() && !model.at(node->id).is_removed && model.at(node->id).name == node->name) {
    return node->id;
  }
  const NodeId found = model.Find(node->name);  // the compiler has put nodes elsewhere
  if (found == compiler::kNoNode) return Gone(*node);
  node->id = found;
  return found;
}

StatusOr<const compiler::Node*> Real(const std::shared_ptr<GNode::Impl>& node) {
  REPRISE_ASSIGN_OR_RETURN(const NodeId id, PlaceOf(node));
  if (id != compiler::kNoNode) return &node->graph->model->at(id);
  return Invalid("NetOutput stands for the results of the graph and has nothing of its own", "the node",
                 "ask for its inputs", GRAPH_FAILED);
}

// To be changed: the graph is detached from operators first, after which the node may be elsewhere.
StatusOr<compiler::Node*> Changeable(const std::shared_ptr<GNode::Impl>& node) {
  if (node) REPRISE_RETURN_IF_ERROR(node->graph->Detach());
  REPRISE_RETURN_IF_ERROR(Real(node).status());
  node->graph->Changed();
  return &node->graph->model->at(node->id);
}

GNodePtr Neighbour(const std::shared_ptr<GNode::Impl>& node, NodeId id) {
  return std::make_shared<GNode>(GraphAccess::MakeGNode(GraphAccess::Share(node->graph), id));
}

Status NoEntry(const compiler::Node& node, const char* what, int32_t index, size_t count) {
  return Invalid(
      fmt::format("node {} ({}) has {} {}s, so that there is no {}", node.name, node.type, count, what, index),
      "parameter index", "count from 0", GRAPH_PARAM_OUT_OF_RANGE);
}

NodeExtras* ExtrasOf(const GNode::Impl& node) {
  const auto found = node.graph->extras.find(node.name);
  return found == node.graph->extras.end() ? nullptr : &found->second;
}

TensorDesc DescOf(const compiler::Tensor& tensor, const std::vector<TensorDesc>* known, size_t index) {
  return FromCompiler(tensor, known != nullptr && index < known->size() ? (*known)[index] : TensorDesc());
}

// "x12" of the list `x`.
bool IsOfList(std::string_view name, std::string_view list) {
  if (!name.starts_with(list) || name.size() == list.size()) return false;
  return std::all_of(name.begin() + static_cast<ptrdiff_t>(list.size()), name.end(),
                     [](char letter) { return letter >= '0' && letter <= '9'; });
}

template <class Entries>
graphStatus IndexByName(const Entries& entries, const AscendString& name, int32_t& index, const compiler::Node& node,
                        const char* api) {
  return Answer(api, [&]() -> Status {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].name != name.GetString()) continue;
      index = static_cast<int32_t>(i);
      return {};
    }
    return Invalid(fmt::format("node {} ({}) has no {}", node.name, node.type, name.GetString()), "parameter name",
                   "pass the name of an operand", GRAPH_FAILED);
  });
}

template <class Entries>
void ListIndexes(const Entries& entries, const AscendString& name, std::vector<int32_t>& indexes) {
  indexes.clear();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (IsOfList(entries[i].name, name.GetString())) indexes.push_back(static_cast<int32_t>(i));
  }
}

// Null where there is no such attribute.
std::optional<AttributeData> FindData(const GNode::Impl& impl, const compiler::Node& node, const char* name) {
  if (const auto own = node.attributes.find(std::string_view(name)); own != node.attributes.end()) {
    return FromCompiler(own->second);
  }
  if (const auto note = node.notes.find(std::string_view(name)); note != node.notes.end()) {
    return FromCompiler(note->second);
  }
  if (node.constant != nullptr && std::string_view(name) == "value") return FromConstant(*node.constant);
  if (const NodeExtras* extras = ExtrasOf(impl)) {
    if (const auto extra = extras->attributes.find(std::string_view(name)); extra != extras->attributes.end()) {
      return extra->second;
    }
  }
  return std::nullopt;
}

StatusOr<AttributeData> DataOf(const std::shared_ptr<GNode::Impl>& impl, const AscendString& name) {
  REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl));
  if (auto data = FindData(*impl, *node, name.GetString())) return std::move(*data);
  return Invalid(fmt::format("node {} ({}) has no attribute {}", node->name, node->type, name.GetString()),
                 "parameter name", "set it first", GRAPH_FAILED);
}

Status SetData(const std::shared_ptr<GNode::Impl>& impl, const AscendString& name, const AttributeData& data) {
  REPRISE_ASSIGN_OR_RETURN(compiler::Node * node, Changeable(impl));
  if (node->kind == compiler::NodeKind::kConstant && std::string_view(name.GetString()) == "value") {
    const auto* tensor = std::get_if<Tensor>(&data);
    if (tensor == nullptr) {
      return Invalid("the value of a constant is a tensor", "parameter attr_value", "pass a Tensor");
    }
    node->constant = ToConstant(*tensor);
    if (!node->outputs.empty()) {
      node->outputs[0].tensor.dtype = node->constant->dtype;
      node->outputs[0].tensor.shape = reprise::opdef::Shape::Of(node->constant->shape);
    }
    return {};
  }
  auto value = ToCompiler(data);
  if (!value) {
    impl->graph->extras[node->name].attributes.insert_or_assign(name.GetString(), data);
    return {};
  }
  const bool is_own = node->op == nullptr || node->op->FindAttribute(name.GetString()) != nullptr;
  (is_own ? node->attributes : node->notes).insert_or_assign(name.GetString(), std::move(*value));
  return {};
}

template <class T>
graphStatus GetAs(const std::shared_ptr<GNode::Impl>& impl, const AscendString& name, T& value) {
  return Answer("ge::GNode::GetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const AttributeData data, DataOf(impl, name));
    if (TakeValue(data, value)) return {};
    return Invalid(
        fmt::format("the attribute {} is of another kind, or does not fit: {}", name.GetString(), KindOf(data)),
        "parameter attr_value", "pass a variable of the attribute's kind", GRAPH_FAILED);
  });
}

template <class T>
graphStatus SetAs(const std::shared_ptr<GNode::Impl>& impl, const AscendString& name, const T& value) {
  return Answer("ge::GNode::SetAttr", [&]() -> Status {
    if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>) {
      return SetData(impl, name, static_cast<int64_t>(value));
    } else if constexpr (std::is_same_v<T, std::vector<int32_t>> || std::is_same_v<T, std::vector<uint32_t>>) {
      return SetData(impl, name, std::vector<int64_t>(value.begin(), value.end()));
    } else {
      return SetData(impl, name, value);
    }
  });
}

}  // namespace

StatusOr<compiler::Node> GraphAccess::NodeOf(const GNode& node) {
  REPRISE_ASSIGN_OR_RETURN(const NodeId id, PlaceOf(node.impl_));
  const compiler::Graph& model = *node.impl_->graph->model;
  if (id != compiler::kNoNode) return model.at(id);
  compiler::Node results;
  results.name = node.impl_->name;
  results.type = "NetOutput";
  for (size_t i = 0; i < model.results.size(); ++i) {
    results.inputs.push_back({fmt::format("input{}", i), model.results[i]});
  }
  results.after = model.results_after;
  return results;
}

GNode::GNode() = default;

graphStatus GNode::GetType(AscendString& type) const {
  return Answer("ge::GNode::GetType", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node node, GraphAccess::NodeOf(*this));
    type = AscendString(node.type.c_str());
    return {};
  });
}
graphStatus GNode::GetName(AscendString& name) const {
  return Answer("ge::GNode::GetName", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const NodeId id, PlaceOf(impl_));
    name = AscendString(impl_->name.c_str());
    return {};
  });
}

// ---- Edges ----

std::pair<GNodePtr, int32_t> GNode::GetInDataNodesAndPortIndexs(const int32_t index) const {
  std::pair<GNodePtr, int32_t> edge(nullptr, -1);
  Answer("ge::GNode::GetInDataNodesAndPortIndexs", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node node, GraphAccess::NodeOf(*this));
    if (index < 0 || static_cast<size_t>(index) >= node.inputs.size()) {
      return NoEntry(node, "input", index, node.inputs.size());
    }
    const compiler::Port port = node.inputs[static_cast<size_t>(index)].source;
    if (port.is_set()) edge = {Neighbour(impl_, port.node), static_cast<int32_t>(port.output)};
    return {};
  });
  return edge;
}
std::vector<GNodePtr> GNode::GetInControlNodes() const {
  std::vector<GNodePtr> nodes;
  Answer("ge::GNode::GetInControlNodes", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node node, GraphAccess::NodeOf(*this));
    for (const NodeId id : node.after) nodes.push_back(Neighbour(impl_, id));
    return {};
  });
  return nodes;
}
std::vector<std::pair<GNodePtr, int32_t>> GNode::GetOutDataNodesAndPortIndexs(const int32_t index) const {
  std::vector<std::pair<GNodePtr, int32_t>> edges;
  Answer("ge::GNode::GetOutDataNodesAndPortIndexs", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    if (index < 0 || static_cast<size_t>(index) >= node->outputs.size()) {
      return NoEntry(*node, "output", index, node->outputs.size());
    }
    const compiler::Graph& model = *impl_->graph->model;
    const compiler::Port port{impl_->id, static_cast<uint32_t>(index)};
    for (NodeId id = 0; id < model.nodes.size(); ++id) {
      const auto& inputs = model.at(id).inputs;
      for (size_t i = 0; i < inputs.size() && !model.at(id).is_removed; ++i) {
        if (inputs[i].source == port) edges.emplace_back(Neighbour(impl_, id), static_cast<int32_t>(i));
      }
    }
    for (size_t i = 0; i < model.results.size(); ++i) {
      if (model.results[i] == port) edges.emplace_back(Neighbour(impl_, compiler::kNoNode), static_cast<int32_t>(i));
    }
    return {};
  });
  return edges;
}
std::vector<GNodePtr> GNode::GetOutControlNodes() const {
  std::vector<GNodePtr> nodes;
  Answer("ge::GNode::GetOutControlNodes", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(Real(impl_).status());
    const compiler::Graph& model = *impl_->graph->model;
    const auto has = [&](const std::vector<NodeId>& after) {
      return std::find(after.begin(), after.end(), impl_->id) != after.end();
    };
    for (NodeId id = 0; id < model.nodes.size(); ++id) {
      if (!model.at(id).is_removed && has(model.at(id).after)) nodes.push_back(Neighbour(impl_, id));
    }
    if (has(model.results_after)) nodes.push_back(Neighbour(impl_, compiler::kNoNode));
    return {};
  });
  return nodes;
}

// ---- Inputs and outputs ----

size_t GNode::GetInputsSize() const {
  StatusOr<compiler::Node> node = GraphAccess::NodeOf(*this);
  return node.ok() ? node->inputs.size() : 0;
}
size_t GNode::GetOutputsSize() const {
  StatusOr<compiler::Node> node = GraphAccess::NodeOf(*this);
  return node.ok() ? node->outputs.size() : 0;
}
graphStatus GNode::GetInputDesc(const int32_t index, TensorDesc& tensor_desc) const {
  return Answer("ge::GNode::GetInputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node node, GraphAccess::NodeOf(*this));
    if (index < 0 || static_cast<size_t>(index) >= node.inputs.size()) {
      return NoEntry(node, "input", index, node.inputs.size());
    }
    const auto place = static_cast<size_t>(index);
    const NodeExtras* extras = ExtrasOf(*impl_);
    const compiler::Port port = node.inputs[place].source;
    if (port.is_set()) {
      tensor_desc = DescOf(impl_->graph->model->TensorOf(port), extras != nullptr ? &extras->inputs : nullptr, place);
    } else {
      tensor_desc = extras != nullptr && place < extras->inputs.size() ? extras->inputs[place] : TensorDesc();
    }
    return {};
  });
}
graphStatus GNode::UpdateInputDesc(const int32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::GNode::UpdateInputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Changeable(impl_));
    if (index < 0 || static_cast<size_t>(index) >= node->inputs.size()) {
      return NoEntry(*node, "input", index, node->inputs.size());
    }
    auto& inputs = impl_->graph->extras[node->name].inputs;
    if (inputs.size() < node->inputs.size()) inputs.resize(node->inputs.size());
    inputs[static_cast<size_t>(index)] = tensor_desc;
    return {};
  });
}
graphStatus GNode::GetOutputDesc(const int32_t index, TensorDesc& tensor_desc) const {
  return Answer("ge::GNode::GetOutputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    if (index < 0 || static_cast<size_t>(index) >= node->outputs.size()) {
      return NoEntry(*node, "output", index, node->outputs.size());
    }
    const auto place = static_cast<size_t>(index);
    const NodeExtras* extras = ExtrasOf(*impl_);
    tensor_desc = DescOf(node->outputs[place].tensor, extras != nullptr ? &extras->outputs : nullptr, place);
    return {};
  });
}
graphStatus GNode::UpdateOutputDesc(const int32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::GNode::UpdateOutputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(compiler::Node * node, Changeable(impl_));
    if (index < 0 || static_cast<size_t>(index) >= node->outputs.size()) {
      return NoEntry(*node, "output", index, node->outputs.size());
    }
    const auto place = static_cast<size_t>(index);
    node->outputs[place].tensor = ToCompiler(tensor_desc);
    auto& outputs = impl_->graph->extras[node->name].outputs;
    if (outputs.size() < node->outputs.size()) outputs.resize(node->outputs.size());
    outputs[place] = tensor_desc;
    return {};
  });
}
graphStatus GNode::GetInputIndexByName(const AscendString& name, int32_t& index) {
  StatusOr<compiler::Node> node = GraphAccess::NodeOf(*this);
  if (!node.ok()) return Answer("ge::GNode::GetInputIndexByName", [&] { return std::move(node).status(); });
  return IndexByName(node->inputs, name, index, *node, "ge::GNode::GetInputIndexByName");
}
graphStatus GNode::GetOutputIndexByName(const AscendString& name, int32_t& index) {
  StatusOr<compiler::Node> node = GraphAccess::NodeOf(*this);
  if (!node.ok()) return Answer("ge::GNode::GetOutputIndexByName", [&] { return std::move(node).status(); });
  return IndexByName(node->outputs, name, index, *node, "ge::GNode::GetOutputIndexByName");
}
graphStatus GNode::GetDynamicInputIndexesByName(const AscendString& name, std::vector<int32_t>& indexes) {
  return Answer("ge::GNode::GetDynamicInputIndexesByName", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    ListIndexes(node->inputs, name, indexes);
    return {};
  });
}
graphStatus GNode::GetDynamicOutputIndexesByName(const AscendString& name, std::vector<int32_t>& indexes) {
  return Answer("ge::GNode::GetDynamicOutputIndexesByName", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    ListIndexes(node->outputs, name, indexes);
    return {};
  });
}
graphStatus GNode::GetInputConstData(const int32_t index, Tensor& data) const {
  return Answer("ge::GNode::GetInputConstData", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node node, GraphAccess::NodeOf(*this));
    if (index < 0 || static_cast<size_t>(index) >= node.inputs.size()) {
      return NoEntry(node, "input", index, node.inputs.size());
    }
    const compiler::Port port = node.inputs[static_cast<size_t>(index)].source;
    const auto constant = port.is_set() ? impl_->graph->model->at(port.node).constant : nullptr;
    if (constant == nullptr) {
      return Invalid(fmt::format("input {} of node {} is no constant", index, node.name), "parameter index",
                     "its value is known when the graph runs", GRAPH_FAILED);
    }
    data = FromConstant(*constant);
    return {};
  });
}

// ---- Attributes ----

bool GNode::HasAttr(const AscendString& name) {
  StatusOr<const compiler::Node*> node = Real(impl_);
  return node.ok() && FindData(*impl_, **node, name.GetString()).has_value();
}
graphStatus GNode::GetAttr(const AscendString& name, AttrValue& attr_value) const {
  return Answer("ge::GNode::GetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(AttributeData data, DataOf(impl_, name));
    attr_value.impl_->data = std::move(data);
    return {};
  });
}
graphStatus GNode::SetAttr(const AscendString& name, AttrValue& attr_value) const {
  return Answer("ge::GNode::SetAttr", [&] { return SetData(impl_, name, attr_value.impl_->data); });
}

#define REPRISE_GE_NODE_ATTRIBUTE(Type)                                          \
  graphStatus GNode::GetAttr(const AscendString& name, Type& attr_value) const { \
    return GetAs(impl_, name, attr_value);                                       \
  }                                                                              \
  graphStatus GNode::SetAttr(const AscendString& name, Type& attr_value) const { \
    return SetAs(impl_, name, attr_value);                                       \
  }
REPRISE_GE_NODE_ATTRIBUTE(int64_t)
REPRISE_GE_NODE_ATTRIBUTE(int32_t)
REPRISE_GE_NODE_ATTRIBUTE(uint32_t)
REPRISE_GE_NODE_ATTRIBUTE(float)
REPRISE_GE_NODE_ATTRIBUTE(bool)
REPRISE_GE_NODE_ATTRIBUTE(AscendString)
REPRISE_GE_NODE_ATTRIBUTE(Tensor)
REPRISE_GE_NODE_ATTRIBUTE(DataType)
REPRISE_GE_NODE_ATTRIBUTE(OpBytes)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<int64_t>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<int32_t>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<uint32_t>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<float>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<bool>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<AscendString>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<Tensor>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<DataType>)
REPRISE_GE_NODE_ATTRIBUTE(std::vector<std::vector<int64_t>>)
#undef REPRISE_GE_NODE_ATTRIBUTE

// ---- Graphs that it calls ----

graphStatus GNode::GetSubgraph(uint32_t index, GraphPtr& graph) const {
  return Answer("ge::GNode::GetSubgraph", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    if (index >= node->graphs.size()) {
      return Invalid(fmt::format("node {} ({}) calls {} graphs, so that there is no {}", node->name, node->type,
                                 node->graphs.size(), index),
                     "parameter index", "count from 0", GRAPH_PARAM_OUT_OF_RANGE);
    }
    graph = std::make_shared<Graph>(GraphAccess::Wrap(node->graphs[index]));
    return {};
  });
}
graphStatus GNode::GetALLSubgraphs(std::vector<GraphPtr>& graph_list) const {
  return Answer("ge::GNode::GetALLSubgraphs", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::Node* node, Real(impl_));
    graph_list.clear();
    for (const auto& inner : node->graphs) graph_list.push_back(std::make_shared<Graph>(GraphAccess::Wrap(inner)));
    return {};
  });
}
graphStatus GNode::SetSubgraph(uint32_t index, const Graph& graph) {
  return Answer("ge::GNode::SetSubgraph", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(compiler::Node * node, Changeable(impl_));
    if (index > node->graphs.size() || node->kind != compiler::NodeKind::kCall) {
      return Invalid(fmt::format("node {} ({}) calls {} graphs, so that {} cannot be set", node->name, node->type,
                                 node->graphs.size(), index),
                     "parameter index", "set them in order, of nodes that call graphs", GRAPH_PARAM_OUT_OF_RANGE);
    }
    REPRISE_ASSIGN_OR_RETURN(auto model, GraphAccess::ModelOf(graph));
    if (model == nullptr || GraphAccess::Calls(*model, *impl_->graph->model)) {
      return Invalid("the graph is empty, or would call itself", "parameter graph",
                     "loops are While operators with a subgraph");
    }
    if (index == node->graphs.size()) node->graphs.emplace_back();
    node->graphs[index] = std::move(model);
    return {};
  });
}

}  // namespace ge
