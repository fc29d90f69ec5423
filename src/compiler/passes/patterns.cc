// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/constant.h"
#include "compiler/operands.h"

namespace reprise::compiler {
namespace {

bool IsAmong(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// Attributes that place a node: those of one pattern must not differ.
constexpr std::string_view kPlaces[] = {"_user_stream_label", "_stream_label", "_batch_label"};
// Attributes that keep a node where it is.
constexpr std::string_view kKeeps[] = {"_force_skip_prune", "_cannot_be_deleted"};

}  // namespace

// ---- Walking ----

Port Match::In(NodeId node, std::string_view operand) const {
  const Node& reader = graph().at(node);
  for (const Input& input : reader.inputs) {
    if (input.name == operand) return input.source;
  }
  if (reader.op == nullptr) return {};
  // By position, as operands are bound where some have no name. A list takes what those behind it leave.
  const auto has_name = [](const Input& input) { return !input.name.empty(); };
  if (std::all_of(reader.inputs.begin(), reader.inputs.end(), has_name)) return {};
  const std::span<const opdef::Operand> operands = reader.op->inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_list()) return {};
    if (operands[i].name == operand) return i < reader.inputs.size() ? reader.inputs[i].source : Port{};
  }
  return {};
}

std::vector<Port> Match::List(NodeId node, std::string_view operand) const {
  StatusOr<Operands> operands = BindOperands(graph(), node);
  if (!operands.ok()) return {};
  std::vector<Port> ports;
  const Node& reader = graph().at(node);
  for (size_t i = 0; i < reader.op->inputs.size(); ++i) {
    if (reader.op->inputs[i].name != operand) continue;
    for (const uint32_t index : (*operands)[i]) ports.push_back(reader.inputs[index].source);
  }
  return ports;
}

bool Match::IsPlain(NodeId node) const {
  const Node& maker = graph().at(node);
  return maker.kind == NodeKind::kOperator && maker.op != nullptr && !maker.is_removed;
}

bool Match::IsMadeBy(Port port, std::initializer_list<std::string_view> types) const {
  return port.is_set() && port.output == 0 && IsPlain(port.node) && IsAmong(graph().at(port.node).type, types);
}

NodeId Match::Maker(Port port, std::initializer_list<std::string_view> types) {
  if (!IsMadeBy(port, types)) return kNoNode;
  inner_.push_back(port.node);
  return port.node;
}

Port Match::BeforeCast(Port port) {
  if (!IsMadeBy(port, {"Cast"}) || !rewriter_.HasOneReader(port)) return port;
  return In(Maker(port, {"Cast"}), "x");
}

Port Match::BeforeFlattening(Port port, size_t rank) {
  const NodeId flat = Maker(port, {"Reshape"});
  if (flat == kNoNode) return {};
  // Front ends broadcast to the shape that is there.
  const Port x = In(flat, "x");
  const opdef::Shape& from = TensorOf(x).shape;
  const opdef::Shape& to = TensorOf(port).shape;
  if (!from.has_rank() || !to.has_rank() || from.rank() != rank || to.rank() != 3) return {};
  if (!AreEqual(from[rank - 2], to[1]) || !AreEqual(from[rank - 1], to[2])) return {};
  const NodeId expanded = IsMadeBy(x, {"Expand", "BroadcastTo"}) ? x.node : kNoNode;
  if (expanded == kNoNode) return x;
  const Port source = In(expanded, "x");
  const opdef::Shape& narrow = TensorOf(source).shape;
  if (!narrow.has_rank() || narrow.rank() != rank) return x;
  for (size_t d = 0; d < rank; ++d) {
    if (!AreEqual(narrow[d], from[d])) return x;
  }
  Maker(x, {"Expand", "BroadcastTo"});
  return source;
}

bool Match::IsConstant(Port port) const {
  return port.is_set() && graph().at(port.node).kind == NodeKind::kConstant &&
         graph().at(port.node).constant != nullptr;
}

std::optional<std::vector<double>> Match::Numbers(Port port) const {
  if (!IsConstant(port)) return std::nullopt;
  return RealsOf(*graph().at(port.node).constant);
}

std::optional<double> Match::Number(Port port) const {
  if (!IsConstant(port)) return std::nullopt;
  const Constant& constant = *graph().at(port.node).constant;
  if (constant.shape.size() > 1 || ElementsOf(constant) != 1) return std::nullopt;
  return UniformValueOf(constant);
}

std::optional<std::vector<int64_t>> Match::Integers(Port port) const {
  if (!IsConstant(port)) return std::nullopt;
  return IntegersOf(*graph().at(port.node).constant);
}

// ---- Attributes ----

std::optional<double> Match::Real(NodeId node, std::string_view attribute) const {
  const Node& reader = graph().at(node);
  if (const auto found = reader.attributes.find(attribute); found != reader.attributes.end()) {
    if (const auto* real = std::get_if<float>(&found->second)) return *real;
    if (const auto* number = std::get_if<int64_t>(&found->second)) return static_cast<double>(*number);
    return std::nullopt;
  }
  const opdef::AttributeDef* row = reader.op == nullptr ? nullptr : reader.op->FindAttribute(attribute);
  return row != nullptr && row->has_default ? std::optional(row->real) : std::nullopt;
}

int64_t Match::Int(NodeId node, std::string_view attribute) const {
  const Node& reader = graph().at(node);
  if (const auto found = reader.attributes.find(attribute); found != reader.attributes.end()) {
    if (const auto* number = std::get_if<int64_t>(&found->second)) return *number;
    if (const auto* type = std::get_if<opdef::DataTypeValue>(&found->second)) return type->number;
    if (const auto* flag = std::get_if<bool>(&found->second)) return *flag ? 1 : 0;
  }
  const opdef::AttributeDef* row = reader.op == nullptr ? nullptr : reader.op->FindAttribute(attribute);
  return row == nullptr ? 0 : row->number;
}

bool Match::Flag(NodeId node, std::string_view attribute) const { return Int(node, attribute) != 0; }

std::vector<int64_t> Match::Ints(NodeId node, std::string_view attribute) const {
  const Node& reader = graph().at(node);
  if (const auto found = reader.attributes.find(attribute); found != reader.attributes.end()) {
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&found->second)) return *numbers;
  }
  const opdef::AttributeDef* row = reader.op == nullptr ? nullptr : reader.op->FindAttribute(attribute);
  if (row == nullptr) return {};
  return {row->entries.begin(), row->entries.end()};
}

std::string Match::Text(NodeId node, std::string_view attribute) const {
  const Node& reader = graph().at(node);
  if (const auto found = reader.attributes.find(attribute); found != reader.attributes.end()) {
    if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  }
  const opdef::AttributeDef* row = reader.op == nullptr ? nullptr : reader.op->FindAttribute(attribute);
  return row == nullptr ? std::string() : std::string(row->text);
}

// ---- Rewriting ----

bool Match::IsInner(NodeId node) const { return std::find(inner_.begin(), inner_.end(), node) != inner_.end(); }

bool Match::HasUsersOfFirstOutputOnly() {
  for (uint32_t output = 1; output < node().outputs.size(); ++output) {
    if (rewriter_.UseCount({root_, output}) != 0) return false;
  }
  return true;
}

void Match::Refuse(std::string_view reason) { context_.Refused(node(), reason); }

bool Match::IsClosed(NodeId shared) {
  std::erase(inner_, root_);
  for (size_t i = 0; i < inner_.size(); ++i) {
    inner_.erase(std::remove(inner_.begin() + static_cast<ptrdiff_t>(i) + 1, inner_.end(), inner_[i]), inner_.end());
  }
  for (const NodeId id : inner_) {
    const Node& inner = graph().at(id);
    for (uint32_t output = 0; output < inner.outputs.size() && id != shared; ++output) {
      for (const Use& use : rewriter_.UsesOf({id, output})) {
        if (!use.is_result() && (use.node == root_ || IsInner(use.node))) continue;
        Refuse(fmt::format("{} has other users", inner.name));
        return false;
      }
    }
    // A node that writes an input of this one must not do so before the fused operator has read it.
    for (const NodeId follower : rewriter_.FollowersOf(id)) {
      if (follower == kNoNode || follower == root_ || !HasEffect(graph(), follower)) continue;
      Refuse(fmt::format("{}, which writes memory or has another effect, runs behind {}", graph().at(follower).name,
                         inner.name));
      return false;
    }
    for (const std::string_view keep : kKeeps) {
      if (!HasNote(inner, keep)) continue;
      Refuse(fmt::format("{} has to stay: it has {}", inner.name, keep));
      return false;
    }
    for (const std::string_view place : kPlaces) {
      const opdef::AttributeValue* own = FindNote(inner, place);
      const opdef::AttributeValue* other = FindNote(node(), place);
      if (own == nullptr && other == nullptr) continue;
      if (own != nullptr && other != nullptr && *own == *other) continue;
      Refuse(fmt::format("{} has another {}", inner.name, place));
      return false;
    }
  }
  return true;
}

Port Match::AddConstant(std::string_view operand, int32_t dtype, std::vector<int64_t> shape,
                        std::span<const double> values) {
  return {
      rewriter_.AddConstant(fmt::format("{}_{}", node().name, operand), MakeConstant(dtype, std::move(shape), values)),
      0};
}

Port Match::AddIntegers(std::string_view operand, std::span<const int64_t> values) {
  constexpr int32_t kInt64 = 9;
  return {rewriter_.AddConstant(fmt::format("{}_{}", node().name, operand),
                                MakeConstant(kInt64, {static_cast<int64_t>(values.size())}, values)),
          0};
}

Port Match::AddTranspose(NodeId transpose, std::span<const int64_t> perm) {
  const Port x = In(transpose, "x");
  const std::string name = graph().at(transpose).name;
  Tensor result = TensorOf(x);
  const opdef::Shape from = result.shape;
  for (size_t i = 0; i < perm.size(); ++i) result.shape[i] = from[static_cast<size_t>(perm[i])];
  constexpr int32_t kInt64 = 9;
  const NodeId order =
      rewriter_.AddConstant(name + "_perm", MakeConstant(kInt64, {static_cast<int64_t>(perm.size())}, perm));
  const NodeId added = rewriter_.AddOperator(name, "Transpose", {x, Port{order, 0}}, result);
  rewriter_.graph().at(added).notes = graph().at(transpose).notes;
  return {added, 0};
}

Node Match::NewNode(std::string_view type, std::initializer_list<NewInput> inputs, Tensor result,
                    opdef::Attributes attributes) const {
  Node made;
  made.type = type;
  made.op = opdef::FindGraphOp(type);
  for (const NewInput& input : inputs) {
    if (input.source.is_set()) made.inputs.push_back({std::string(input.name), input.source});
  }
  made.outputs.push_back({std::string(made.op->outputs[0].name), std::move(result)});
  made.attributes = std::move(attributes);
  made.notes = node().notes;
  return made;
}

Port Match::AddOperator(std::string_view suffix, std::string_view type, std::initializer_list<NewInput> inputs,
                        Tensor result, opdef::Attributes attributes) {
  Node made = NewNode(type, inputs, std::move(result), std::move(attributes));
  made.name = fmt::format("{}_{}", node().name, suffix);
  return {rewriter_.Add(std::move(made)), 0};
}

NodeId Match::Become(std::string_view type, std::initializer_list<NewInput> inputs, opdef::Attributes attributes) {
  Graph& graph = rewriter_.graph();
  Node fused = NewNode(type, inputs, Result(), std::move(attributes));
  // The new node takes the name over. Names that were taken stay taken, so that the rewriter never gives one away.
  const std::string name = node().name;
  graph.at(root_).name = rewriter_.FreshName(name);
  const NodeId id = rewriter_.Add(std::move(fused));
  graph.at(id).name = name;
  for (const NodeId inner : inner_) rewriter_.CopyOrderBefore(inner, id);
  rewriter_.Replace(root_, id);
  return id;
}

void Match::RemoveInner(NodeId replacement) {
  std::vector<NodeId> constants;
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const NodeId id : inner_) {
      const Node& inner = graph().at(id);
      if (inner.is_removed || rewriter_.UseCount(id) != 0) continue;
      for (const Input& input : inner.inputs) {
        if (IsConstant(input.source)) constants.push_back(input.source.node);
      }
      // What it ran behind, the replacement does; the edge to itself would be a circle.
      rewriter_.RemoveOrder(id, replacement);
      rewriter_.Remove(id);
      is_changed = true;
    }
  }
  for (const NodeId constant : constants) {
    if (!graph().at(constant).is_removed && rewriter_.IsUnused(constant)) rewriter_.Remove(constant);
  }
  context_.Changed();
}

void Match::Replace(std::string_view type, std::initializer_list<NewInput> inputs, opdef::Attributes attributes) {
  std::vector<NodeId> constants;
  for (const Input& input : node().inputs) {
    if (IsConstant(input.source)) constants.push_back(input.source.node);
  }
  const NodeId fused = Become(type, inputs, std::move(attributes));
  RemoveInner(fused);
  for (const NodeId constant : constants) {
    if (!graph().at(constant).is_removed && rewriter_.IsUnused(constant)) rewriter_.Remove(constant);
  }
}

void Match::ReplaceBoth(NodeId other, uint32_t output, std::string_view type, std::initializer_list<NewInput> inputs,
                        opdef::Attributes attributes) {
  const Tensor tensor = graph().at(other).outputs[0].tensor;
  const NodeId fused = Become(type, inputs, std::move(attributes));
  std::vector<Output>& outputs = rewriter_.graph().at(fused).outputs;
  const std::span<const opdef::Operand> operands = rewriter_.graph().at(fused).op->outputs;
  while (outputs.size() <= output) outputs.push_back({std::string(operands[outputs.size()].name), {}});
  outputs[output].tensor = tensor;
  rewriter_.ReplaceUses({other, 0}, {fused, output});
  RemoveInner(fused);
}

void Match::Forward(Port source) {
  for (const NodeId inner : inner_) rewriter_.CopyOrderBefore(inner, root_);
  for (const NodeId inner : inner_) rewriter_.RemoveOrder(inner, root_);
  rewriter_.Set({root_, 0}, source);
  const std::vector<Input> inputs = node().inputs;
  rewriter_.Splice(root_, 0);
  RemoveInner(root_);
  for (const Input& input : inputs) {
    if (IsConstant(input.source) && rewriter_.IsUnused(input.source.node)) rewriter_.Remove(input.source.node);
  }
}

void Match::SpliceAround(const std::vector<NodeId>& operators, Port x) {
  const NodeId last = operators.front();
  const opdef::Shape shape = TensorOf(x).shape;
  for (const NodeId id : operators) {
    rewriter_.graph().at(id).outputs[0].tensor.shape = shape;
    if (id != last) std::erase(inner_, id);
  }
  Port source = x;
  if (operators.size() > 1) {
    const std::vector<Input>& inputs = graph().at(operators.back()).inputs;
    const auto first = std::find_if(inputs.begin(), inputs.end(), [](const Input& i) { return i.source.is_set(); });
    rewriter_.Set({operators.back(), static_cast<uint32_t>(first - inputs.begin())}, x);
    source = {operators[1], 0};
  }
  const std::string type = graph().at(last).type;
  Replace(type, {{"x", source}}, graph().at(last).attributes);
}

namespace {

// The nodes of these types, those behind others first: so the largest pattern is found before its parts.
std::vector<NodeId> LastFirst(const Graph& graph, std::initializer_list<std::string_view> types) {
  std::vector<NodeId> found;
  bool is_ordered = true;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed) continue;
    for (const Input& input : node.inputs)
      is_ordered = is_ordered && (!input.source.is_set() || input.source.node < id);
    if (node.kind == NodeKind::kOperator && node.op != nullptr && !node.outputs.empty() && IsAmong(node.type, types)) {
      found.push_back(id);
    }
  }
  if (!is_ordered && found.size() > 1) {
    const std::vector<NodeId> order = TopologicalOrder(graph);
    std::vector<uint32_t> place(graph.nodes.size(), 0);
    for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    std::sort(found.begin(), found.end(), [&](NodeId a, NodeId b) { return place[a] < place[b]; });
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

Status RunFusion(Graph& graph, PassContext& context, std::initializer_list<std::string_view> roots,
                 void (*fuse)(Match& match)) {
  const std::vector<NodeId> found = LastFirst(graph, roots);
  if (found.empty()) return {};
  const uint64_t before = context.record->changed;
  Rewriter rewriter(graph);
  for (const NodeId id : found) {
    if (graph.at(id).is_removed) continue;
    Match match(rewriter, context, id);
    fuse(match);
  }
  // Outputs of fused operators behind the first, and what follows from shapes that moved.
  return context.record->changed == before ? Status() : InferShapes(graph, context.facts);
}

}  // namespace reprise::compiler
