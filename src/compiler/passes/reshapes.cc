// SPDX-License-Identifier: Apache-2.0
//
// Nodes that change the shape and move no element.
#include <algorithm>
#include <optional>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

bool IsKindOfReshape(const Node& node) {
  if (node.is_removed || node.inputs.empty() || !node.inputs[0].source.is_set() || node.outputs.size() != 1)
    return false;
  for (const std::string_view type : {"Reshape", "Squeeze", "SqueezeV3", "Unsqueeze", "ExpandDims", "FlattenV2"}) {
    if (node.type == type) return node.inputs[0].name.empty() || node.inputs[0].name == "x";
  }
  return false;
}

// Equal sizes, none of them unknown.
bool IsSameShape(const opdef::Shape& a, const opdef::Shape& b) {
  return a == b && a.has_rank() &&
         std::none_of(a.dims().begin(), a.dims().end(), [](const opdef::Dim& dim) { return dim.is_unknown(); });
}

bool ReadsShapes(std::string_view type) { return type == "GatherShapes" || type == "GatherNd"; }

}  // namespace

Status RemoveIdleReshapes(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  std::optional<Writes> writes;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (!IsKindOfReshape(node)) continue;
    if (!IsSameShape(graph.TensorOf(node.inputs[0].source).shape, node.outputs[0].tensor.shape)) continue;
    if (!rewriter) rewriter.emplace(graph);
    if (!writes) writes.emplace(graph);
    if (!writes->MayShare(node, id)) {
      context.Refused(node, "its input or its output is written in place");
      continue;
    }
    rewriter->Splice(id);
    context.Changed();
  }
  return {};
}

// A reshape reads what stands before other reshapes, and is marked: it is its input, seen in another shape.
Status RemoveReshapes(Graph& graph, PassContext& context) {
  const bool is_static = std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.is_removed || std::all_of(node.outputs.begin(), node.outputs.end(),
                                          [](const Output& output) { return output.tensor.shape.is_static(); });
  });
  std::optional<Rewriter> rewriter;
  std::optional<Writes> writes;
  for (const NodeId id : TopologicalOrder(graph)) {
    if (!IsKindOfReshape(graph.at(id)) || HasNote(graph.at(id), "_no_task")) continue;
    const Node& node = graph.at(id);
    if (!is_static) {
      context.Refused(node, "the graph has shapes that are not known");
      continue;
    }
    if (!rewriter) rewriter.emplace(graph);
    if (!writes) writes.emplace(graph);
    std::string_view reason;
    for (const Use& use : rewriter->UsesOf({id, 0})) {
      if (use.is_result() && !context.is_root(graph)) reason = "it is a result of a subgraph";
      if (!use.is_result() && ReadsShapes(graph.at(use.node).type)) reason = "a user reads its shape";
    }
    if (!writes->MayShare(node, id)) reason = "its input or its output is written in place";
    if (!reason.empty()) {
      context.Refused(node, reason);
      continue;
    }
    const NodeId before = node.inputs[0].source.node;
    // The last one of several says the shape: as a list of numbers, whatever the first one had.
    if (IsKindOfReshape(graph.at(before)) && node.type == "Reshape" &&
        !writes->IsWritten(graph.at(before).inputs[0].source)) {
      rewriter->CopyOrderBefore(before, id);
      rewriter->Set({id, 0}, graph.at(before).inputs[0].source);
      const std::vector<int64_t> sizes = node.outputs[0].tensor.shape.numbers();
      const NodeId shape =
          rewriter->AddConstant(graph.at(id).name + "_shape",
                                MakeConstant(9, {static_cast<int64_t>(sizes.size())}, std::span<const int64_t>(sizes)));
      if (graph.at(id).inputs.size() > 1) rewriter->Set({id, 1}, {shape, 0});
      graph.at(id).attributes.erase("axis");
      graph.at(id).attributes.erase("num_axes");
      if (rewriter->IsUnused(before)) rewriter->RemoveWithSources(before);
    }
    graph.at(id).notes["_no_task"] = true;
    context.Changed();
  }
  return {};
}

// The axis as an attribute, so that nothing waits for a constant.
Status AdjustDims(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed || node.type != "ExpandDims" || node.inputs.size() != 2 || node.op == nullptr) continue;
    StatusOr<Operands> operands = BindOperands(graph, id);
    if (!operands.ok() || (*operands)[0].size() != 1 || (*operands)[1].size() != 1) continue;
    const Port source = node.inputs[(*operands)[0][0]].source;
    const Node& axis = graph.at(node.inputs[(*operands)[1][0]].source.node);
    const auto value = axis.constant != nullptr ? IntegersOf(*axis.constant) : std::nullopt;
    if (!value || value->size() != 1) {
      context.Refused(node, "its axis is no constant");
      continue;
    }
    if (!rewriter) rewriter.emplace(graph);
    const std::string name = node.name;
    const Tensor result = node.outputs[0].tensor;
    const NodeId added =
        rewriter->AddOperator(name, "Unsqueeze", {source}, result, {{"axes", std::vector<int64_t>{(*value)[0]}}});
    graph.at(added).notes = graph.at(id).notes;
    rewriter->Replace(id, added);
    context.Changed();
  }
  return {};
}

}  // namespace reprise::compiler
