// SPDX-License-Identifier: Apache-2.0
//
// Graphs: made of operators, followed, copied, handed to the compiler.
#include "graph/graph.h"

#include <algorithm>
#include <unordered_set>

#include "ge/access.h"
#include "ge/graph_impl.h"
#include "ge/prototype.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;

Status EmptyGraph() { return Invalid("the graph was made empty", "the graph", "make it with a name", GRAPH_FAILED); }

Status CheckOperators(const std::vector<OperatorPtr>& ops, const char* parameter) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i]) continue;
    return Invalid(fmt::format("operator {} is empty", i), fmt::format("parameter {}", parameter),
                   "make each operator with a name and a type");
  }
  return {};
}

// For functions whose argument are operators: the roots, of a graph that still follows its operators.
Status TakeOperators(Graph::Impl* graph, const std::vector<OperatorPtr>& ops, const char* parameter) {
  if (graph == nullptr) return EmptyGraph();
  REPRISE_RETURN_IF_ERROR(CheckOperators(ops, parameter));
  if (!graph->follows && graph->has_model) {
    return Invalid(fmt::format("the graph {} was read from a model, changed as nodes, or compiled", graph->name),
                   "the graph", "make another graph of these operators", GRAPH_FAILED);
  }
  graph->follows = true;
  graph->built = 0;
  graph->Changed();
  return {};
}

}  // namespace

// ---- Impl ----

Status Graph::Impl::Update() {
  if (!follows) return {};
  const uint64_t now = LastChange();
  if (built != 0 && now == built) return {};
  if (built != 0) {
    const auto is_newer = [this](const OperatorPtr& op) { return op->changed > built; };
    if (std::none_of(members.begin(), members.end(), is_newer)) {
      built = now;
      return {};
    }
  }
  REPRISE_ASSIGN_OR_RETURN(BuiltGraph made, BuildGraph(name, roots));
  made.model->attributes = std::move(model->attributes);
  *model = std::move(*made.model);  // the object stays: others may have it
  extras = std::move(made.extras);
  members = std::move(made.members);
  has_model = true;
  built = now;
  return {};
}

Status Graph::Impl::Detach() {
  REPRISE_RETURN_IF_ERROR(Update());
  follows = false;
  members.clear();
  roots = {};
  return {};
}

// ---- Graph ----

Graph::Graph() = default;
Graph::Graph(const char* name) : impl_(std::make_shared<Impl>()) {
  impl_->name = name != nullptr ? name : "";
  impl_->model->name = impl_->name;
}
Graph::Graph(const AscendString& name) : Graph(name.GetString()) {}

Graph& Graph::SetInputs(const std::vector<Operator>& inputs) {
  Answer("ge::Graph::SetInputs", [&]() -> Status {
    std::vector<OperatorPtr> ops;
    for (const Operator& op : inputs) ops.push_back(op.impl_);
    REPRISE_RETURN_IF_ERROR(TakeOperators(impl_.get(), ops, "inputs"));
    impl_->roots.inputs = std::move(ops);
    return {};
  });
  return *this;
}
Graph& Graph::SetOutputs(const std::vector<Operator>& outputs) {
  std::vector<std::pair<Operator, std::vector<size_t>>> all;
  for (const Operator& op : outputs) all.emplace_back(op, std::vector<size_t>());
  return SetOutputs(all);
}
Graph& Graph::SetOutputs(const std::vector<std::pair<Operator, std::vector<size_t>>>& output_indexs) {
  Answer("ge::Graph::SetOutputs", [&]() -> Status {
    std::vector<OperatorPtr> ops;
    for (const auto& [op, indexes] : output_indexs) ops.push_back(op.impl_);
    REPRISE_RETURN_IF_ERROR(TakeOperators(impl_.get(), ops, "outputs"));
    std::vector<OperatorRoots::Result> results;
    for (const auto& [op, indexes] : output_indexs) {
      OperatorRoots::Result result{op.impl_, std::nullopt};
      for (const size_t index : indexes) {
        if (index >= op.impl_->outputs.size()) {
          return Invalid(fmt::format("{} has {} outputs, so that there is no {}", op.impl_->text(),
                                     op.impl_->outputs.size(), index),
                         "parameter output_indexs", "count from 0", GRAPH_PARAM_OUT_OF_RANGE);
        }
        if (!result.outputs) result.outputs.emplace();
        result.outputs->push_back(static_cast<uint32_t>(index));
      }
      results.push_back(std::move(result));
    }
    impl_->roots.results = std::move(results);
    return {};
  });
  return *this;
}
Graph& Graph::SetOutputs(const std::vector<std::pair<Operator, AscendString>>& outputs) {
  Answer("ge::Graph::SetOutputs", [&]() -> Status {
    std::vector<OperatorPtr> ops;
    for (const auto& [op, name] : outputs) ops.push_back(op.impl_);
    REPRISE_RETURN_IF_ERROR(TakeOperators(impl_.get(), ops, "outputs"));
    std::vector<OperatorRoots::Result> results;
    for (const auto& [op, name] : outputs) {
      OperatorRoots::Result result{op.impl_, std::nullopt};
      if (name.GetLength() != 0) {
        const size_t output = op.impl_->FindOutput(name.GetString());
        if (output == Prototype::kNone) {
          return Invalid(fmt::format("{} has no output {}", op.impl_->text(), name.GetString()), "parameter outputs",
                         "pass the name of an output");
        }
        result.outputs = {static_cast<uint32_t>(output)};
      }
      results.push_back(std::move(result));
    }
    impl_->roots.results = std::move(results);
    return {};
  });
  return *this;
}
Graph& Graph::SetTargets(const std::vector<Operator>& targets) {
  Answer("ge::Graph::SetTargets", [&]() -> Status {
    std::vector<OperatorPtr> ops;
    for (const Operator& op : targets) ops.push_back(op.impl_);
    REPRISE_RETURN_IF_ERROR(TakeOperators(impl_.get(), ops, "targets"));
    impl_->roots.targets = std::move(ops);
    return {};
  });
  return *this;
}
graphStatus Graph::AddOp(const Operator& op) {
  return Answer("ge::Graph::AddOp", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(TakeOperators(impl_.get(), {op.impl_}, "op"));
    for (const OperatorPtr& known : impl_->roots.others) {
      if (known->name != op.impl_->name) continue;
      return Invalid(fmt::format("the graph {} has an operator {} already", impl_->name, known->name), "parameter op",
                     "give every operator of a graph a name of its own", GRAPH_FAILED);
    }
    impl_->roots.others.push_back(op.impl_);
    return {};
  });
}

bool Graph::IsValid() const { return impl_ && (impl_->has_model || !impl_->roots.empty()); }
graphStatus Graph::GetName(AscendString& name) const {
  return Answer("ge::Graph::GetName", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    name = AscendString(impl_->name.c_str());
    return {};
  });
}
void Graph::SetNeedIteration(bool need_iteration) {
  if (!impl_) return;
  impl_->model->attributes.insert_or_assign("need_iteration", need_iteration);
}

graphStatus Graph::FindOpByName(const char* name, Operator& op) const {
  return Answer("ge::Graph::FindOpByName", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    if (name == nullptr) return NullArgument("name");
    if (impl_->follows) REPRISE_RETURN_IF_ERROR(impl_->Update());
    for (const OperatorPtr& member : impl_->members) {
      if (member->name != name) continue;
      op.impl_ = member;
      return {};
    }
    return Invalid(fmt::format("the graph {} has no operator {}", impl_->name, name), "parameter name",
                   impl_->follows ? "GetAllOpName lists those that there are"
                                  : "this graph consists of nodes: FindNodeByName finds these",
                   GRAPH_FAILED);
  });
}
graphStatus Graph::FindOpByType(const char* type, std::vector<Operator>& ops) const {
  return Answer("ge::Graph::FindOpByType", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    if (type == nullptr) return NullArgument("type");
    if (impl_->follows) REPRISE_RETURN_IF_ERROR(impl_->Update());
    ops.clear();
    for (const OperatorPtr& member : impl_->members) {
      if (member->type != type) continue;
      Operator op;
      op.impl_ = member;
      ops.push_back(std::move(op));
    }
    return {};
  });
}
graphStatus Graph::GetAllOpName(std::vector<AscendString>& op_name) const {
  return Answer("ge::Graph::GetAllOpName", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    if (impl_->follows) REPRISE_RETURN_IF_ERROR(impl_->Update());
    op_name.clear();
    for (const compiler::Node& node : impl_->model->nodes) {
      if (!node.is_removed) op_name.emplace_back(node.name.c_str());
    }
    return {};
  });
}

graphStatus Graph::CopyFrom(const Graph& src_graph) {
  return Answer("ge::Graph::CopyFrom", [&]() -> Status {
    if (!src_graph.impl_) return EmptyGraph();
    if (impl_ == src_graph.impl_) return {};
    if (src_graph.impl_->follows) REPRISE_RETURN_IF_ERROR(src_graph.impl_->Update());
    auto copy = std::make_shared<Impl>(*src_graph.impl_);
    copy->model = CloneModel(*copy->model);
    copy->follows = false;
    copy->members.clear();
    copy->roots = {};
    copy->subgraphs.clear();
    copy->name = impl_ ? impl_->name : copy->name;
    copy->has_model = src_graph.IsValid();
    if (!impl_) impl_ = std::make_shared<Impl>();
    *impl_ = std::move(*copy);
    return {};
  });
}
GraphPtr Graph::ConstructFromInputs(const std::vector<Operator>& inputs, const AscendString& name) {
  GraphPtr made;
  Answer("ge::Graph::ConstructFromInputs", [&]() -> Status {
    if (inputs.empty()) return Invalid("there is no input", "parameter inputs", "pass one operator at least");
    std::vector<OperatorPtr> ops;
    for (const Operator& op : inputs) ops.push_back(op.impl_);
    REPRISE_RETURN_IF_ERROR(CheckOperators(ops, "inputs"));
    auto graph = std::make_shared<Graph>(name);
    graph->SetInputs(inputs);
    made = std::move(graph);
    return {};
  });
  return made;
}

graphStatus Graph::SetAttr(const AscendString& name, const AttrValue& attr_value) {
  return Answer("ge::Graph::SetAttr", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    if (auto value = ToCompiler(attr_value.impl_->data)) {
      impl_->model->attributes.insert_or_assign(name.GetString(), std::move(*value));
      impl_->attributes.erase(name.GetString());
      impl_->Changed();
    } else {
      impl_->attributes[name.GetString()] = attr_value;
    }
    return {};
  });
}
graphStatus Graph::GetAttr(const AscendString& name, AttrValue& attr_value) const {
  return Answer("ge::Graph::GetAttr", [&]() -> Status {
    if (!impl_) return EmptyGraph();
    const auto known = impl_->model->attributes.find(std::string_view(name.GetString()));
    if (known != impl_->model->attributes.end()) {
      attr_value.impl_->data = FromCompiler(known->second);
      return {};
    }
    const auto found = impl_->attributes.find(name.GetString());
    if (found == impl_->attributes.end()) {
      return Invalid(fmt::format("the graph {} has no attribute {}", impl_->name, name.GetString()), "parameter name",
                     "set it first", GRAPH_FAILED);
    }
    attr_value = found->second;
    return {};
  });
}

// ---- The compiler's side ----

StatusOr<std::shared_ptr<compiler::Graph>> GraphAccess::ModelOf(const Graph& graph) {
  if (!graph.impl_) return std::shared_ptr<compiler::Graph>();
  REPRISE_RETURN_IF_ERROR(graph.impl_->Detach());
  graph.impl_->has_model = true;
  REPRISE_RETURN_IF_ERROR(compiler::Verify(*graph.impl_->model));
  return graph.impl_->model;
}
const void* GraphAccess::IdentityOf(const Graph& graph) { return graph.impl_.get(); }
void GraphAccess::SetModel(const Graph& graph, std::shared_ptr<compiler::Graph> model) {
  if (!graph.impl_ || !model) return;
  graph.impl_->follows = false;
  graph.impl_->members.clear();
  graph.impl_->roots = {};
  graph.impl_->Changed();
  graph.impl_->model = std::move(model);
  graph.impl_->has_model = true;
}
Graph GraphAccess::Wrap(std::shared_ptr<compiler::Graph> model) {
  Graph graph(model ? model->name.c_str() : "");
  SetModel(graph, std::move(model));
  return graph;
}
Graph GraphAccess::Share(std::shared_ptr<Graph::Impl> impl) {
  Graph graph;
  graph.impl_ = std::move(impl);
  return graph;
}
bool GraphAccess::Calls(const compiler::Graph& model, const compiler::Graph& other) {
  std::unordered_set<const compiler::Graph*> seen;
  std::vector<const compiler::Graph*> waiting = {&model};
  while (!waiting.empty()) {
    const compiler::Graph* graph = waiting.back();
    waiting.pop_back();
    if (graph == &other) return true;
    if (!seen.insert(graph).second) continue;
    for (const compiler::Node& node : graph->nodes) {
      for (const auto& inner : node.graphs) waiting.push_back(inner.get());
    }
  }
  return false;
}
bool GraphAccess::Holds(const Graph& graph, const Graph& other) {
  if (!graph.impl_) return false;
  if (graph.impl_ == other.impl_) return true;
  for (const auto& [name, inner] : graph.impl_->subgraphs) {
    if (Holds(*inner, other)) return true;
  }
  return false;
}
GNode GraphAccess::MakeGNode(const Graph& graph, compiler::NodeId id) {
  GNode node;
  if (!graph.impl_) return node;
  const auto& nodes = graph.impl_->model->nodes;
  if (id != compiler::kNoNode && id >= nodes.size()) return node;
  node.impl_ = std::make_shared<GNode::Impl>(
      GNode::Impl{graph.impl_, id, id == compiler::kNoNode ? "NetOutput" : nodes[id].name});
  return node;
}
StatusOr<IrDefinition> GraphAccess::DefinitionOf(std::string_view type) {
  auto prototype = FindPrototype(type);
  std::shared_ptr<const Prototype> own;
  if (prototype == nullptr) {
    if (const auto creator = CreatorOf(type)) {
      const Operator op = creator(AscendString(""));
      if (op.impl_) own = op.impl_->prototype;
    }
    prototype = own;
  }
  if (prototype == nullptr) {
    return Error(reprise::kInvalidArgument, fmt::format("there is no operator type {}", type))
        .Culprit("parameter type")
        .Hint("OperatorFactory::GetOpsTypeList lists those that there are");
  }
  IrDefinition definition;
  const auto word = [](OperandKind kind) {
    return kind == OperandKind::kDynamic ? "dynamic" : kind == OperandKind::kOptional ? "optional" : "required";
  };
  for (const auto& operand : prototype->inputs) definition.inputs.emplace_back(operand.name, word(operand.kind));
  for (const auto& operand : prototype->outputs) definition.outputs.emplace_back(operand.name, word(operand.kind));
  for (const auto& attribute : prototype->attributes)
    definition.attributes.emplace_back(attribute.name, attribute.kind);
  return definition;
}

}  // namespace ge
