// SPDX-License-Identifier: Apache-2.0
//
// From operators to a graph of the compiler.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ge/access.h"
#include "ge/graph_impl.h"
#include "opdef/graph_op.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;
namespace opdef = reprise::opdef;

// As the row of the operator has it: callers set types as numbers, and numbers as types.
std::optional<opdef::AttributeValue> Fitting(const AttributeData& data, const opdef::AttributeDef* def) {
  if (def != nullptr) {
    int64_t number = 0;
    if (def->kind == opdef::AttributeKind::kInt && TakeValue(data, number)) return number;
    if (def->kind == opdef::AttributeKind::kType && TakeValue(data, number)) {
      return opdef::DataTypeValue{static_cast<int32_t>(number)};
    }
    std::vector<int64_t> numbers;
    if (def->kind == opdef::AttributeKind::kInts && TakeValue(data, numbers)) return numbers;
    std::vector<float> reals;
    if (def->kind == opdef::AttributeKind::kFloats && TakeValue(data, reals)) return reals;
    std::vector<bool> bools;
    if (def->kind == opdef::AttributeKind::kBools && TakeValue(data, bools)) return bools;
  }
  return ToCompiler(data);
}

constexpr int kDeepest = 200;  // graphs that call graphs

// How many builders of graphs are at work, one for the other.
struct Depth {
  Depth() { ++count; }
  ~Depth() { --count; }
  static thread_local int count;
};
thread_local int Depth::count = 0;

Status AddGraphs(const Operator::Impl& op, compiler::Node& node) {
  if (op.prototype->subgraphs.empty()) return {};
  const Depth depth;
  if (Depth::count > kDeepest) {
    return Invalid(fmt::format("{} calls a graph that calls a graph …, {} deep", op.text(), kDeepest), op.text(),
                   "a builder of a graph must not make the operator that it belongs to");
  }
  for (const Prototype::Subgraph& subgraph : op.prototype->subgraphs) {
    const auto known = op.builder_counts.find(subgraph.name);
    const uint32_t count = known != op.builder_counts.end() ? known->second : subgraph.is_dynamic ? 0 : 1;
    for (uint32_t i = 0; i < count; ++i) {
      const auto builder = op.builders.find({subgraph.name, i});
      if (builder == op.builders.end()) {
        return Invalid(fmt::format("{} has no graph {} to call", op.text(), subgraph.name), op.text(),
                       "set it with SetSubgraphBuilder");
      }
      const Graph graph = builder->second();
      REPRISE_ASSIGN_OR_RETURN(auto model, GraphAccess::ModelOf(graph));
      if (model == nullptr) {
        return Invalid(fmt::format("the builder of the graph {} of {} gives no graph", subgraph.name, op.text()),
                       op.text(), "return a graph with a name");
      }
      node.graphs.push_back(std::move(model));
    }
  }
  return {};
}

class Builder {
 public:
  Builder(const std::string& name, const OperatorRoots& roots) : roots_(roots) {
    built_.model = std::make_shared<compiler::Graph>();
    built_.model->name = name;
  }

  StatusOr<BuiltGraph> Run() {
    for (const OperatorPtr& op : roots_.inputs) Reach(op);
    for (const OperatorRoots::Result& result : roots_.results) Reach(result.op);
    for (const OperatorPtr& op : roots_.targets) Reach(op);
    for (const OperatorPtr& op : roots_.others) Reach(op);
    for (const OperatorPtr& op : built_.members) REPRISE_RETURN_IF_ERROR(AddNode(op));
    for (const OperatorPtr& op : built_.members) REPRISE_RETURN_IF_ERROR(AddEdges(op));
    REPRISE_RETURN_IF_ERROR(NumberInputs());
    REPRISE_RETURN_IF_ERROR(AddResults());
    return std::move(built_);
  }

 private:
  // Everything on the way to it and, where the graph has no ends yet, from it.
  void Reach(const OperatorPtr& root) {
    std::vector<OperatorPtr> waiting = {root};
    while (!waiting.empty()) {
      const OperatorPtr op = std::move(waiting.back());
      waiting.pop_back();
      if (op == nullptr || !seen_.insert(op.get()).second) continue;
      built_.members.push_back(op);
      if (roots_.results.empty() && roots_.targets.empty()) {
        for (const auto& user : op->users) waiting.push_back(user.lock());
      }
      for (const auto& before : op->after) waiting.push_back(before);
      for (auto input = op->inputs.rbegin(); input != op->inputs.rend(); ++input) waiting.push_back(input->source);
    }
  }

  Status AddNode(const OperatorPtr& op) {
    if (op->type == "NetOutput") return {};  // its inputs are the results
    NodeExtras extras;
    REPRISE_ASSIGN_OR_RETURN(compiler::Node node, MakeNode(*op, &extras));
    if (!ids_.emplace(op.get(), static_cast<compiler::NodeId>(built_.model->nodes.size())).second) return {};
    if (!built_.extras.emplace(op->name, std::move(extras)).second) {
      return Invalid(fmt::format("two operators of the graph have the name {}", op->name), op->text(),
                     "give every operator of a graph a name of its own");
    }
    built_.model->nodes.push_back(std::move(node));
    return {};
  }

  Status AddEdges(const OperatorPtr& op) {
    std::vector<compiler::NodeId> after;
    for (const OperatorPtr& before : op->after) {
      if (const auto found = ids_.find(before.get()); found != ids_.end()) after.push_back(found->second);
    }
    if (op->type == "NetOutput") {
      for (const Operator::Impl::Input& input : op->inputs) {
        if (input.source) built_.model->results.push_back({ids_.at(input.source.get()), input.output});
      }
      built_.model->results_after.insert(built_.model->results_after.end(), after.begin(), after.end());
      return {};
    }
    compiler::Node& node = built_.model->at(ids_.at(op.get()));
    node.after = std::move(after);
    if (node.kind == compiler::NodeKind::kData) return {};
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      const Operator::Impl::Input& input = op->inputs[i];
      if (!input.source) continue;
      const auto source = ids_.find(input.source.get());
      if (source == ids_.end()) {
        return Invalid(fmt::format("the input {} of {} comes from a NetOutput", input.name, op->text()), op->text(),
                       "connect it to an operator that has outputs");
      }
      node.inputs[i].source = {source->second, input.output};
    }
    return {};
  }

  // By their attributes `index`, if these are 0, 1, 2 …; else in the order of SetInputs, others behind.
  Status NumberInputs() {
    std::vector<compiler::NodeId> inputs;
    std::set<compiler::NodeId> listed;
    const auto add = [&](const OperatorPtr& op) {
      const auto found = ids_.find(op.get());
      if (found == ids_.end() || built_.model->at(found->second).kind != compiler::NodeKind::kData) return;
      if (listed.insert(found->second).second) inputs.push_back(found->second);
    };
    for (const OperatorPtr& op : roots_.inputs) add(op);
    for (const OperatorPtr& op : built_.members) add(op);
    std::vector<compiler::NodeId> numbered(inputs.size(), compiler::kNoNode);
    bool is_numbered = true;
    for (const compiler::NodeId id : inputs) {
      const auto found = built_.model->at(id).attributes.find("index");
      const int64_t* index =
          found == built_.model->at(id).attributes.end() ? nullptr : std::get_if<int64_t>(&found->second);
      if (index == nullptr || *index < 0 || static_cast<size_t>(*index) >= inputs.size() ||
          numbered[static_cast<size_t>(*index)] != compiler::kNoNode) {
        is_numbered = false;
        break;
      }
      numbered[static_cast<size_t>(*index)] = id;
    }
    if (is_numbered) inputs = std::move(numbered);
    for (size_t i = 0; i < inputs.size(); ++i) {
      built_.model->at(inputs[i]).attributes.insert_or_assign("index", static_cast<int64_t>(i));
    }
    built_.model->inputs = std::move(inputs);
    return {};
  }

  Status AddResults() {
    for (const OperatorRoots::Result& result : roots_.results) {
      const auto found = ids_.find(result.op.get());
      if (found == ids_.end()) continue;  // a NetOutput, whose inputs are there already
      std::vector<uint32_t> outputs;
      if (result.outputs) {
        outputs = *result.outputs;
      } else {
        for (uint32_t i = 0; i < result.op->outputs.size(); ++i) outputs.push_back(i);
      }
      for (const uint32_t output : outputs) built_.model->results.push_back({found->second, output});
      if (outputs.empty()) built_.model->results_after.push_back(found->second);
    }
    for (const OperatorPtr& op : roots_.targets) {
      if (const auto found = ids_.find(op.get()); found != ids_.end()) {
        built_.model->results_after.push_back(found->second);
      }
    }
    return {};
  }

  const OperatorRoots& roots_;
  BuiltGraph built_;
  std::unordered_set<const Operator::Impl*> seen_;
  std::unordered_map<const Operator::Impl*, compiler::NodeId> ids_;
};

std::shared_ptr<compiler::Graph> CloneInto(const compiler::Graph& model,
                                           std::map<const compiler::Graph*, std::shared_ptr<compiler::Graph>>& clones) {
  auto& clone = clones[&model];
  if (clone != nullptr) return clone;
  auto copy = std::make_shared<compiler::Graph>(model);
  clone = copy;
  for (compiler::Node& node : copy->nodes) {
    for (auto& inner : node.graphs) inner = CloneInto(*inner, clones);
  }
  return copy;
}

}  // namespace

StatusOr<compiler::Node> MakeNode(const Operator::Impl& op, NodeExtras* extras) {
  compiler::Node node;
  node.name = op.name;
  node.type = op.type;
  node.kind = compiler::KindOfType(op.type);
  node.op = opdef::FindGraphOp(op.type);
  for (const auto& [name, data] : op.attributes) {
    const opdef::AttributeDef* def = node.op != nullptr ? node.op->FindAttribute(name) : nullptr;
    if (node.kind == compiler::NodeKind::kConstant && name == "value") {
      if (const auto* tensor = std::get_if<Tensor>(&data)) node.constant = ToConstant(*tensor);
      continue;
    }
    auto value = Fitting(data, def);
    if (!value) {
      extras->attributes.emplace(name, data);
      continue;
    }
    const bool is_own = node.op == nullptr || def != nullptr;
    (is_own ? node.attributes : node.notes).emplace(name, std::move(*value));
  }
  for (const Operator::Impl::Input& input : op.inputs) {
    extras->inputs.push_back(input.desc);
    if (node.kind != compiler::NodeKind::kData) node.inputs.push_back({input.name, {}});
  }
  for (const Operator::Impl::Output& output : op.outputs) {
    extras->outputs.push_back(output.desc);
    compiler::Tensor tensor;
    if (output.has_desc) tensor = ToCompiler(output.desc);
    node.outputs.push_back({output.name, tensor});
  }
  if (node.kind == compiler::NodeKind::kData && !op.outputs[0].has_desc && op.inputs[0].has_desc) {
    node.outputs[0].tensor = ToCompiler(op.inputs[0].desc);
    extras->outputs[0] = op.inputs[0].desc;
  }
  if (node.constant != nullptr) {
    node.outputs[0].tensor.dtype = node.constant->dtype;
    node.outputs[0].tensor.shape = opdef::Shape::Of(node.constant->shape);
  }
  REPRISE_RETURN_IF_ERROR(AddGraphs(op, node));
  return node;
}

StatusOr<BuiltGraph> BuildGraph(const std::string& name, const OperatorRoots& roots) {
  return Builder(name, roots).Run();
}

std::shared_ptr<compiler::Graph> CloneModel(const compiler::Graph& model) {
  std::map<const compiler::Graph*, std::shared_ptr<compiler::Graph>> clones;
  return CloneInto(model, clones);
}

}  // namespace ge
