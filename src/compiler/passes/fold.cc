// SPDX-License-Identifier: Apache-2.0
//
// Constant folding: what follows from constants and shapes is computed now.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/constant.h"
#include "compiler/evaluate.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

constexpr int64_t kMostShared = 8;           // elements of an input that others use, too, when memory comes first
constexpr size_t kMostBytes = 32UL << 20;    // of a result that is larger than its inputs

bool IsKept(const Node& node) {
  return HasNote(node, "_do_not_constant_folding") || FindNote(node, "no_need_constant_folding") != nullptr;
}

bool HasEmptyOutput(const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [](const Output& output) {
    const opdef::Dim elements = output.tensor.shape.elements();
    return elements.Is(0);
  });
}

bool AreAllEmpty(const Node& node) {
  return !node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(), [](const Output& output) {
    return output.tensor.shape.is_static() && output.tensor.shape.elements().Is(0);
  });
}

bool IsWritten(const Writes& writes, const Node& node, NodeId id) {
  for (uint32_t i = 0; i < node.outputs.size(); ++i) {
    if (writes.IsWritten({id, i})) return true;
  }
  return false;
}

// Puts constants in the place of a node: for each output that is used one, which waits for what the node waited for.
// Inputs that nobody else needs go with the node.
void ReplaceByConstants(Rewriter& rewriter, NodeId id, const std::vector<ConstantPtr>& values) {
  Graph& graph = rewriter.graph();
  const std::string name = graph.at(id).name;
  std::vector<NodeId> before = graph.at(id).after;
  for (const Input& input : graph.at(id).inputs) {
    // Constants that are folded may wait for something.
    if (!input.source.is_set() || graph.at(input.source.node).kind != NodeKind::kConstant) continue;
    before.insert(before.end(), graph.at(input.source.node).after.begin(), graph.at(input.source.node).after.end());
  }
  NodeId last = kNoNode;
  for (uint32_t output = 0; output < values.size(); ++output) {
    const bool holds_followers = last == kNoNode && output + 1 == values.size() && !rewriter.FollowersOf(id).empty();
    if (rewriter.UseCount({id, output}) == 0 && !holds_followers) continue;
    const int32_t format = graph.at(id).outputs[output].tensor.format;
    last = rewriter.AddConstant(fmt::format("{}_folded_{}", name, output), values[output]);
    Node& constant = graph.at(last);
    constant.outputs[0].tensor.format = format;
    constant.notes["_is_from_constant_folding"] = true;
    for (const char* label : {"_user_stream_label", "_user_stream_priority", "_stream_label"}) {
      if (const auto* value = FindNote(graph.at(id), label)) constant.notes[label] = *value;
    }
    for (const NodeId first : before) rewriter.AddOrder(first, last);
    rewriter.ReplaceUses({id, output}, {last, 0});
  }
  if (last != kNoNode) rewriter.MoveFollowers(id, last);
  rewriter.RemoveWithSources(id);
}

class Folding {
 public:
  Folding(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), rewriter_(graph), writes_(graph) {}

  Status Run() {
    for (const NodeId id : TopologicalOrder(graph_)) {
      if (graph_.at(id).is_removed || graph_.at(id).kind != NodeKind::kOperator) continue;
      if (!HasConstantInputs(graph_.at(id)) || !IsPure(graph_, id)) continue;
      if (!HasUsers(id)) continue;  // pruned, not folded
      const std::string reason = Fold(id);
      if (reason.empty()) {
        context_.Changed();
      } else {
        context_.Refused(graph_.at(id), reason);
      }
    }
    return {};
  }

 private:
  bool HasUsers(NodeId id) { return rewriter_.UseCount(id) != 0 || !rewriter_.FollowersOf(id).empty(); }

  bool HasConstantInputs(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Input& input) {
      return !input.source.is_set() || graph_.at(input.source.node).constant != nullptr;
    });
  }

  std::string Fold(NodeId id) {
    const Node& node = graph_.at(id);
    if (IsKept(node)) return "it is marked as one that is not folded";
    if (HasEmptyOutput(node)) return "an output is empty";
    if (IsWritten(writes_, node, id)) return "an output is written in place";
    uint64_t input_bytes = 0;
    std::vector<ConstantPtr> inputs;
    for (const Input& input : node.inputs) {
      inputs.push_back(input.source.is_set() ? graph_.at(input.source.node).constant : nullptr);
      if (inputs.back() == nullptr) continue;
      input_bytes += inputs.back()->bytes.size();
      if (context_.options.prefers_memory && ElementsOf(*inputs.back()) > kMostShared &&
          rewriter_.UseCount(input.source) > 1) {
        return fmt::format("memory comes first, and others use the constant {}", graph_.at(input.source.node).name);
      }
    }
    for (const Output& output : node.outputs) {
      if (!output.tensor.shape.is_static()) return "the shape of an output is not known";
      const opdef::Dim elements = output.tensor.shape.elements();
      const auto bits = static_cast<uint64_t>(std::max<int64_t>(opdef::TypeBits(output.tensor.dtype), 1));
      const uint64_t most = std::max<uint64_t>(kMostBytes, input_bytes) * 8;
      if (!elements.is_number() || static_cast<uint64_t>(elements.number()) > most / bits) {
        return "its result is large, and its inputs are not";
      }
    }
    if (!CanEvaluate(node)) return "there is no kernel for it";
    StatusOr<std::vector<ConstantPtr>> values = EvaluateNode(graph_, id, inputs);
    if (!values.ok()) return std::move(values).status().detail().what;
    ReplaceByConstants(rewriter_, id, *values);
    return {};
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  Writes writes_;
};

}  // namespace

Status FoldConstants(Graph& graph, PassContext& context) { return Folding(graph, context).Run(); }

Status FoldDimensions(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.at(id);
    const bool is_one = node.type == "Shape" || node.type == "ShapeN" || node.type == "Size" || node.type == "Rank";
    if (node.is_removed || !is_one) continue;
    std::vector<ConstantPtr> values;
    for (uint32_t i = 0; i < node.outputs.size(); ++i) values.push_back(DimensionOf(graph, id, i));
    if (IsKept(node)) {
      context.Refused(node, "it is marked as one that is not folded");
      continue;
    }
    if (values.empty() || std::find(values.begin(), values.end(), nullptr) != values.end()) {
      context.Refused(node, "the shape is not known");
      continue;
    }
    if (!rewriter) rewriter.emplace(graph);
    if (rewriter->IsUnused(id)) continue;
    ReplaceByConstants(*rewriter, id, values);
    context.Changed();
  }
  return {};
}

Status ReplaceEmpty(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed || node.kind != NodeKind::kOperator || !AreAllEmpty(node)) continue;
    if (HasEffect(graph, id) || node.type.starts_with("Stack") || node.type.starts_with("Hcom")) {
      context.Refused(node, "it does something beside its outputs");
      continue;
    }
    if (IsKept(node)) {
      context.Refused(node, "it is marked as one that is not folded");
      continue;
    }
    if (!rewriter) rewriter.emplace(graph);
    if (rewriter->IsUnused(id)) continue;
    std::vector<ConstantPtr> values;
    for (const Output& output : node.outputs) {
      auto value = std::make_shared<Constant>();
      value->dtype = output.tensor.dtype;
      value->shape = output.tensor.shape.numbers();
      values.push_back(std::move(value));
    }
    ReplaceByConstants(*rewriter, id, values);
    context.Changed();
  }
  return {};
}

}  // namespace reprise::compiler
