// SPDX-License-Identifier: Apache-2.0
#include "compiler/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "compiler/operands.h"

namespace reprise::compiler {

Rewriter::Rewriter(Graph& graph) : graph_(graph), uses_(graph.nodes.size()) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.at(id).is_removed) continue;
    Register(id);
  }
  for (uint32_t i = 0; i < graph.results.size(); ++i) {
    PortUses& uses = At(graph.results[i]);
    uses.list.push_back({kNoNode, i});
    ++uses.count;
  }
  for (const NodeId first : graph.results_after) uses_[first].followers.push_back(kNoNode);
}

void Rewriter::Register(NodeId node) {
  const Node& added = graph_.at(node);
  for (uint32_t i = 0; i < added.inputs.size(); ++i) {
    if (!added.inputs[i].source.is_set()) continue;
    PortUses& uses = At(added.inputs[i].source);
    uses.list.push_back({node, i});
    ++uses.count;
  }
  for (const NodeId first : added.after) uses_[first].followers.push_back(node);
}

Rewriter::PortUses& Rewriter::At(Port port) {
  std::vector<PortUses>& outputs = uses_[port.node].outputs;
  if (outputs.size() <= port.output) outputs.resize(port.output + 1);
  return outputs[port.output];
}

Port& Rewriter::SourceOf(Use use) {
  return use.is_result() ? graph_.results[use.index] : graph_.at(use.node).inputs[use.index].source;
}

// ---- Who uses what ----

const std::vector<Use>& Rewriter::UsesOf(Port port) {
  PortUses& uses = At(port);
  if (uses.is_stale) {
    std::erase_if(uses.list, [&](const Use& use) {
      return (!use.is_result() && graph_.at(use.node).is_removed) || SourceOf(use) != port;
    });
    std::sort(uses.list.begin(), uses.list.end());
    uses.list.erase(std::unique(uses.list.begin(), uses.list.end()), uses.list.end());
    uses.is_stale = false;
  }
  return uses.list;
}

size_t Rewriter::UseCount(Port port) const {
  const std::vector<PortUses>& outputs = uses_[port.node].outputs;
  return port.output < outputs.size() ? outputs[port.output].count : 0;
}

size_t Rewriter::UseCount(NodeId node) const {
  size_t count = 0;
  for (const PortUses& uses : uses_[node].outputs) count += uses.count;
  return count;
}

bool Rewriter::WaitsFor(NodeId node, NodeId first) const {
  if (node != kNoNode && graph_.at(node).is_removed) return false;
  const std::vector<NodeId>& after = node == kNoNode ? graph_.results_after : graph_.at(node).after;
  return std::find(after.begin(), after.end(), first) != after.end();
}

const std::vector<NodeId>& Rewriter::FollowersOf(NodeId node) {
  NodeUses& uses = uses_[node];
  if (uses.is_stale) {
    std::erase_if(uses.followers, [&](NodeId follower) { return !WaitsFor(follower, node); });
    std::sort(uses.followers.begin(), uses.followers.end());
    uses.followers.erase(std::unique(uses.followers.begin(), uses.followers.end()), uses.followers.end());
    uses.is_stale = false;
  }
  return uses.followers;
}

bool Rewriter::HasOneReader(Port port) { return UseCount(port) == 1 && !UsesOf(port)[0].is_result(); }

bool Rewriter::IsUnused(NodeId node) { return UseCount(node) == 0 && FollowersOf(node).empty(); }

// ---- Edges ----

void Rewriter::Drop(Port port) {
  if (!port.is_set()) return;
  PortUses& uses = At(port);
  --uses.count;
  uses.is_stale = true;
}

void Rewriter::Set(Use use, Port source) {
  Port& place = SourceOf(use);
  if (place == source) return;
  Drop(place);
  place = source;
  if (!source.is_set()) return;
  PortUses& uses = At(source);
  uses.list.push_back(use);
  uses.is_stale = true;  // out of order, or there twice
  ++uses.count;
}

void Rewriter::ReplaceUses(Port from, Port to) {
  if (from == to) return;
  const std::vector<Use> uses = UsesOf(from);
  for (const Use& use : uses) Set(use, to);
}

void Rewriter::AddOrder(NodeId first, NodeId then) {
  if (first == then || WaitsFor(then, first)) return;
  (then == kNoNode ? graph_.results_after : graph_.at(then).after).push_back(first);
  uses_[first].followers.push_back(then);
  uses_[first].is_stale = true;
}

void Rewriter::RemoveOrder(NodeId first, NodeId then) {
  std::erase(then == kNoNode ? graph_.results_after : graph_.at(then).after, first);
  uses_[first].is_stale = true;
}

void Rewriter::MoveFollowers(NodeId from, NodeId to) {
  const std::vector<NodeId> followers = FollowersOf(from);
  for (const NodeId follower : followers) {
    RemoveOrder(from, follower);
    AddOrder(to, follower);
  }
}

void Rewriter::CopyOrderBefore(NodeId from, NodeId to) {
  const std::vector<NodeId> after = graph_.at(from).after;
  for (const NodeId first : after) AddOrder(first, to);
}

// ---- Nodes ----

std::string Rewriter::FreshName(std::string_view base) {
  if (names_.empty()) {  // most passes of most graphs add nothing
    names_.reserve(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      if (!node.is_removed) names_.insert(node.name);
    }
  }
  std::string name(base);
  if (names_.find(name) == names_.end()) return name;
  uint32_t& number = numbers_[name];
  std::string numbered;
  do {
    numbered = fmt::format("{}_{}", base, ++number);
  } while (names_.find(numbered) != names_.end());
  return numbered;
}

NodeId Rewriter::Add(Node node) {
  node.name = FreshName(node.name.empty() ? node.type : node.name);
  names_.insert(node.name);
  graph_.nodes.push_back(std::move(node));
  uses_.emplace_back();
  const auto id = static_cast<NodeId>(graph_.nodes.size() - 1);
  Register(id);
  for (const Input& input : graph_.at(id).inputs) {
    if (input.source.is_set()) At(input.source).is_stale = true;  // results come last
  }
  for (const NodeId first : graph_.at(id).after) uses_[first].is_stale = true;
  return id;
}

NodeId Rewriter::AddConstant(std::string name, std::shared_ptr<const Constant> constant) {
  Node node;
  node.name = std::move(name);
  node.type = "Const";
  node.kind = NodeKind::kConstant;
  node.op = opdef::FindGraphOp(node.type);
  node.outputs.push_back({"y", {constant->dtype, kFormatNd, opdef::Shape::Of(constant->shape)}});
  node.constant = std::move(constant);
  return Add(std::move(node));
}

NodeId Rewriter::AddOperator(std::string name, std::string_view type, const std::vector<Port>& inputs,
                             const Tensor& result, opdef::Attributes attributes) {
  Node node;
  node.name = std::move(name);
  node.type = type;
  node.op = opdef::FindGraphOp(type);
  std::span<const opdef::Operand> operands;
  if (node.op != nullptr) operands = node.op->inputs;
  const bool has_lists = std::any_of(operands.begin(), operands.end(), [](const auto& o) { return o.is_list(); });
  for (size_t i = 0; i < inputs.size(); ++i) {
    // Lists are bound by position.
    const bool is_named = !has_lists && i < operands.size();
    node.inputs.push_back({is_named ? std::string(operands[i].name) : std::string(), inputs[i]});
  }
  const bool is_named = node.op != nullptr && !node.op->outputs.empty();
  node.outputs.push_back({is_named ? std::string(node.op->outputs[0].name) : std::string("y"), result});
  node.attributes = std::move(attributes);
  return Add(std::move(node));
}

NodeId Rewriter::Clone(NodeId node, std::string name) {
  Node clone = graph_.at(node);
  clone.name = std::move(name);
  return Add(std::move(clone));
}

NodeId Rewriter::InsertOnEdge(Use use, Node node) {
  const Port source = SourceOf(use);
  if (node.inputs.empty()) node.inputs.push_back({"x", {}});
  node.inputs[0].source = source;
  if (node.outputs.empty()) node.outputs.push_back({"y", {}});
  node.outputs[0].tensor = graph_.TensorOf(source);
  const NodeId id = Add(std::move(node));
  Set(use, {id, 0});
  return id;
}

void Rewriter::Remove(NodeId node) {
  // Whoever waited for the node waits for what it waited for; that order is there without it.
  std::vector<NodeId> before = graph_.at(node).after;
  for (const Input& input : graph_.at(node).inputs) {
    if (input.source.is_set()) before.push_back(input.source.node);
  }
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  const std::vector<NodeId> followers = FollowersOf(node);
  for (const NodeId follower : followers) {
    RemoveOrder(node, follower);
    for (const NodeId first : before) AddOrder(first, follower);
  }
  Node& removed = graph_.at(node);
  for (Input& input : removed.inputs) Drop(input.source);
  for (const NodeId first : removed.after) uses_[first].is_stale = true;
  names_.erase(removed.name);
  removed.inputs.clear();
  removed.after.clear();
  removed.constant.reset();
  removed.graphs.clear();
  removed.is_removed = true;
}

void Rewriter::RemoveWithSources(NodeId node) {
  std::vector<NodeId> left = {node};
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    if (graph_.at(id).is_removed || UseCount(id) != 0) continue;
    if (id != node && (!FollowersOf(id).empty() || HasEffect(graph_, id) || graph_.at(id).kind == NodeKind::kData)) {
      continue;
    }
    std::vector<NodeId> sources;
    for (const Input& input : graph_.at(id).inputs) {
      if (input.source.is_set()) sources.push_back(input.source.node);
    }
    Remove(id);
    left.insert(left.end(), sources.rbegin(), sources.rend());
  }
}

void Rewriter::Splice(NodeId node, uint32_t input) {
  const Port source = graph_.at(node).inputs[input].source;
  const std::vector<NodeId> before = graph_.at(node).after;
  if (!before.empty()) {
    for (const Use& use : std::vector<Use>(UsesOf({node, 0}))) {
      for (const NodeId first : before) AddOrder(first, use.node);
    }
  }
  ReplaceUses({node, 0}, source);
  Remove(node);
}

void Rewriter::Replace(NodeId node, NodeId replacement) {
  for (uint32_t output = 0; output < graph_.at(node).outputs.size(); ++output) {
    ReplaceUses({node, output}, {replacement, output});
  }
  CopyOrderBefore(node, replacement);
  MoveFollowers(node, replacement);
  Remove(node);
}

// ---- What a node is to passes ----

const opdef::AttributeValue* FindNote(const Node& node, std::string_view name) {
  for (const opdef::Attributes* attributes : {&node.notes, &node.attributes}) {
    if (const auto found = attributes->find(name); found != attributes->end()) return &found->second;
  }
  return nullptr;
}

bool HasNote(const Node& node, std::string_view name) {
  const opdef::AttributeValue* value = FindNote(node, name);
  if (value == nullptr) return false;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  if (const auto* number = std::get_if<int64_t>(value)) return *number != 0;
  if (const auto* text = std::get_if<std::string>(value)) return *text == "1" || *text == "true" || *text == "True";
  return false;
}

std::vector<std::pair<uint32_t, uint32_t>> WrittenInputs(const Graph& graph, NodeId node) {
  const Node& writer = graph.at(node);
  if (writer.kind != NodeKind::kOperator || writer.op == nullptr) return {};
  const std::span<const opdef::Operand> outputs = writer.op->outputs;
  if (std::none_of(outputs.begin(), outputs.end(), [](const auto& o) { return o.is_ref(); })) return {};
  StatusOr<Operands> operands = BindOperands(graph, node);
  if (!operands.ok()) return {};
  std::vector<std::pair<uint32_t, uint32_t>> written;
  const std::vector<size_t> counts = OutputCounts(writer);
  uint32_t output = 0;
  for (size_t o = 0; o < counts.size(); ++o) {
    const opdef::Operand& result = outputs[o];
    for (size_t i = 0; i < counts[o]; ++i, ++output) {
      if (!result.is_ref() || result.like < 0) continue;
      const std::vector<uint32_t>& inputs = (*operands)[static_cast<size_t>(result.like)];
      if (i < inputs.size()) written.emplace_back(inputs[i], output);
    }
  }
  return written;
}

namespace {

bool WritesNothing(const opdef::GraphOp& op) {
  return std::none_of(op.outputs.begin(), op.outputs.end(), [](const auto& output) { return output.is_ref(); });
}

// Types without rows that do nothing beside their outputs.
bool IsHarmless(std::string_view type) {
  for (const std::string_view known :
       {"Variable", "VariableV2", "ConstPlaceHolder", "FileConstant", "Switch", "Merge", "StopGradient",
        "PreventGradient", "Snapshot", "GuaranteeConst", "PlaceholderWithDefault", "GatherShapes"}) {
    if (type == known) return true;
  }
  return false;
}

}  // namespace

bool IsPure(const Graph& graph, NodeId node) {
  const Node& asked = graph.at(node);
  if (asked.kind == NodeKind::kConstant) return true;
  if (asked.kind != NodeKind::kOperator || asked.op == nullptr || !asked.graphs.empty()) return false;
  const opdef::Repeatability repeatability = asked.op->repeatability;
  return (repeatability == opdef::Repeatability::kFixed || repeatability == opdef::Repeatability::kOrder) &&
         WritesNothing(*asked.op) && !HasNote(asked, "_input_mutable");
}

bool HasEffect(const Graph& graph, NodeId node) {
  const Node& asked = graph.at(node);
  if (asked.kind == NodeKind::kData || asked.kind == NodeKind::kConstant || asked.kind == NodeKind::kOrder)
    return false;
  if (asked.kind == NodeKind::kCall) {
    for (const std::shared_ptr<Graph>& inner : asked.graphs) {
      for (NodeId id = 0; id < inner->nodes.size(); ++id) {
        if (!inner->at(id).is_removed && HasEffect(*inner, id)) return true;
      }
    }
    return false;
  }
  if (asked.op == nullptr) return !IsHarmless(asked.type);
  return asked.op->repeatability == opdef::Repeatability::kEffect || !WritesNothing(*asked.op) ||
         HasNote(asked, "_input_mutable");
}

void Compact(Graph& graph) {
  std::vector<NodeId> numbers(graph.nodes.size(), kNoNode);
  NodeId next = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.at(id).is_removed) continue;
    numbers[id] = next;
    if (next != id) graph.at(next) = std::move(graph.at(id));
    ++next;
  }
  graph.nodes.resize(next);
  Renumber(graph, numbers);
}

void Renumber(Graph& graph, const std::vector<NodeId>& numbers) {
  const auto renumber = [&](NodeId& id) { id = id < numbers.size() ? numbers[id] : kNoNode; };
  for (Node& node : graph.nodes) {
    for (Input& input : node.inputs) renumber(input.source.node);
    for (NodeId& first : node.after) renumber(first);
    std::erase(node.after, kNoNode);
  }
  for (NodeId& id : graph.inputs) renumber(id);
  for (Port& port : graph.results) renumber(port.node);
  for (NodeId& first : graph.results_after) renumber(first);
  std::erase(graph.results_after, kNoNode);
}

}  // namespace reprise::compiler
