// SPDX-License-Identifier: Apache-2.0
#include "engine/graph_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "compiler/storage.h"
#include "engine/numbers.h"

namespace reprise::engine {
namespace {

using compiler::Graph;
using compiler::Node;
using compiler::NodeId;
using compiler::NodeKind;
using compiler::Port;

bool IsVariable(const Node& node) {
  return !node.is_removed && node.kind == NodeKind::kOperator && (node.type == "Variable" || node.type == "VariableV2");
}

bool IsCollected(const Node& node) {
  return !node.is_removed && node.kind == NodeKind::kOperator && (node.type == "Summary" || node.type == "Save");
}

const Node* FindVariable(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (IsVariable(node)) return &node;
    for (const auto& inner : node.graphs) {
      if (const Node* const found = node.is_removed ? nullptr : FindVariable(*inner)) return found;
    }
  }
  return nullptr;
}

std::string NameOf(const Node& node) {
  const auto found = node.attributes.find("shared_name");
  const auto* const name = found == node.attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  return name != nullptr && !name->empty() ? *name : node.name;
}

void Replace(Graph& graph, NodeId from, NodeId to) {
  const auto replace = [&](Port& port) {
    if (port.node == from) port.node = to;
  };
  for (Node& node : graph.nodes) {
    for (compiler::Input& input : node.inputs) replace(input.source);
    std::ranges::replace(node.after, from, to);
  }
  for (Port& port : graph.results) replace(port);
  std::ranges::replace(graph.results_after, from, to);
}

Status NoSize(const Node& node) {
  return Fail(kParamInvalid, kBadInput,
              fmt::format("node {} ({}) has the type {} and the shape {}, which have no size", node.name, node.type,
                          opdef::TypeName(node.outputs[0].tensor.dtype), node.outputs[0].tensor.shape.text()))
      .Culprit(fmt::format("node {}", node.name))
      .Hint("describe the output of a variable with its type and all sizes");
}

bool IsLoop(const Node& node) { return node.type == "While" || node.type == "StatelessWhile" || node.type == "For"; }

void NameVariables(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (!IsVariable(node)) continue;
    if (node.outputs.empty()) node.outputs.push_back({"y", {}});
    node.attributes.insert_or_assign("shared_name", NameOf(node));
  }
}

// The variable of that name in the graph; one that is like `like`, where it has none.
NodeId VariableOf(Graph& graph, const Node& like) {
  const std::string name = NameOf(like);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (IsVariable(graph.at(id)) && NameOf(graph.at(id)) == name) return id;
  }
  Node variable = like;
  variable.after.clear();
  variable.name = name;
  for (int number = 1; graph.Find(variable.name) != compiler::kNoNode; ++number) {
    variable.name = fmt::format("{}_{}", name, number);
  }
  return graph.Add(std::move(variable));
}

// Variables of called graphs become variables of the graph that calls, which hands them over. The called graphs are
// copied: the program's stay as they are.
Status HandOver(Graph& graph) {
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    if (graph.at(id).is_removed) continue;
    for (size_t g = 0; g < graph.at(id).graphs.size(); ++g) {
      const Node* const found = FindVariable(*graph.at(id).graphs[g]);
      if (found == nullptr) continue;
      if (IsLoop(graph.at(id))) {
        return Fail(kParamInvalid, kBadInput,
                    fmt::format("node {} is a variable of the loop {}", found->name, graph.at(id).name))
            .Culprit(fmt::format("graph {}", graph.at(id).graphs[g]->name))
            .Hint("put it into the graph around the loop: hand its value to the loop, and assign what comes out");
      }
      auto callee = std::make_shared<Graph>(*graph.at(id).graphs[g]);
      REPRISE_RETURN_IF_ERROR(HandOver(*callee));
      NameVariables(*callee);
      std::map<std::string, NodeId> known;
      for (NodeId inner = 0; inner < callee->nodes.size(); ++inner) {
        Node& node = callee->at(inner);
        if (!IsVariable(node)) continue;
        if (const auto [first, is_new] = known.try_emplace(NameOf(node), inner); !is_new) {
          Replace(*callee, inner, first->second);
          node.is_removed = true;
          continue;
        }
        const Port source{VariableOf(graph, node), 0};
        std::vector<compiler::Input>& inputs = graph.at(id).inputs;
        auto place = std::ranges::find(inputs, source, &compiler::Input::source);
        if (place == inputs.end()) {
          inputs.push_back({fmt::format("input{}", inputs.size()), source});
          place = inputs.end() - 1;
        }
        node.type = "RefData";
        node.kind = NodeKind::kData;
        node.inputs.clear();
        node.unread = nullptr;
        node.attributes.insert_or_assign("index", static_cast<int64_t>(callee->inputs.size()));
        node.notes.insert_or_assign("_parent_node_index", static_cast<int64_t>(place - inputs.begin()));
        callee->inputs.push_back(inner);
      }
      graph.at(id).graphs[g] = std::move(callee);
    }
  }
  return {};
}

Status TakeVariables(Graph& graph, GraphState& state) {
  REPRISE_RETURN_IF_ERROR(HandOver(graph));
  std::map<std::string, NodeId> known;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    Node& node = graph.at(id);
    if (!IsVariable(node)) continue;
    if (node.outputs.empty()) node.outputs.push_back({"y", {}});
    const std::string name = NameOf(node);
    if (const auto [first, is_new] = known.try_emplace(name, id); !is_new) {
      Replace(graph, id, first->second);
      node.is_removed = true;
      continue;
    }
    const std::optional<uint64_t> bytes = compiler::BytesOf(node.outputs[0].tensor);
    if (!bytes) return NoSize(node);
    state.variables.push_back({name, node.type, node.outputs[0].tensor, *bytes});
    node.type = "RefData";
    node.kind = NodeKind::kData;
    node.inputs.clear();
    node.unread = nullptr;
    node.attributes.insert_or_assign("index", static_cast<int64_t>(graph.inputs.size()));
    graph.inputs.push_back(id);
  }
  return {};
}

void TakeCollected(Graph& graph, GraphState& state) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    Node& node = graph.at(id);
    if (!IsCollected(node)) continue;
    const size_t values = static_cast<size_t>(
        std::ranges::count_if(node.inputs, [](const compiler::Input& input) { return input.source.is_set(); }));
    for (const compiler::Input& input : node.inputs) {
      if (!input.source.is_set()) continue;
      const Node& source = graph.at(input.source.node);
      const std::string name = node.type == "Save" ? NameOf(source) : values == 1 ? node.name : source.name;
      state.collected.push_back({node.type, name});
      graph.results.push_back(input.source);
    }
    // Who came behind it comes behind what it waited for.
    for (Node& other : graph.nodes) {
      if (std::erase(other.after, id) != 0) other.after.insert(other.after.end(), node.after.begin(), node.after.end());
    }
    if (std::erase(graph.results_after, id) != 0) {
      graph.results_after.insert(graph.results_after.end(), node.after.begin(), node.after.end());
    }
    node.is_removed = true;
  }
}

}  // namespace

bool HasVariables(const Graph& graph) { return FindVariable(graph) != nullptr; }

StatusOr<GraphState> TakeState(Graph& graph) {
  GraphState state;
  TakeCollected(graph, state);  // first: they carry the names of variables
  REPRISE_RETURN_IF_ERROR(TakeVariables(graph, state));
  return state;
}

void PutStateBack(const GraphState& state, Graph& graph) {
  const size_t inputs = graph.inputs.size() - state.variables.size();
  for (size_t i = 0; i < state.variables.size(); ++i) {
    Node& node = graph.at(graph.inputs[inputs + i]);
    node.type = state.variables[i].type;
    node.kind = NodeKind::kOperator;
    node.attributes.erase("index");
  }
  graph.inputs.resize(inputs);
  graph.results.resize(graph.results.size() - state.collected.size());
}

StatusOr<Variables::Value> Variables::Use(const VariableUse& use, void* stream) {
  MutexLock lock(mutex_);
  streams_.insert(stream);
  Kept& kept = kept_[use.name];
  const std::vector<int64_t> shape = use.tensor.shape.numbers();
  if (kept.memory.address != nullptr) {
    if (kept.value.dtype == use.tensor.dtype && kept.value.shape == shape) return kept.value;
    return Fail(kParamInvalid, kBadInput,
                fmt::format("the variable {} is {} [{}] in one graph of the session and {} [{}] in another one",
                            use.name, opdef::TypeName(kept.value.dtype), fmt::join(kept.value.shape, ", "),
                            opdef::TypeName(use.tensor.dtype), fmt::join(shape, ", ")))
        .Culprit(fmt::format("variable {}", use.name))
        .Hint("give a variable one type and one shape, or two names");
  }
  REPRISE_ASSIGN_OR_RETURN(kept.memory, TakeMemory(nullptr, std::max<uint64_t>(use.bytes, 1), stream));
  kept.value = {use.tensor.dtype, shape, use.bytes, kept.memory.address};
  WaitForStream(stream);  // which may use what was there before
  std::memset(kept.memory.address, 0, use.bytes);
  return kept.value;
}

StatusOr<std::vector<Variables::Value>> Variables::Read(std::span<const std::string> names) {
  std::vector<Value> values;
  std::set<void*> streams;
  {
    MutexLock lock(mutex_);
    for (const std::string& name : names) {
      const auto found = kept_.find(name);
      if (found == kept_.end() || found->second.memory.address == nullptr) {
        return Fail(kParamInvalid, kBadValue, fmt::format("the session has no variable {}", name))
            .Culprit(fmt::format("variable {}", name))
            .Hint("run a graph that has it first");
      }
      values.push_back(found->second.value);
    }
    streams = streams_;
  }
  for (void* const stream : streams) WaitForStream(stream);
  return values;
}

}  // namespace reprise::engine
