// SPDX-License-Identifier: Apache-2.0
//
// Nodes that compute the same: one of them is enough.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"
#include "opdef/infer.h"

namespace reprise::compiler {
namespace {

void AppendTensor(const Tensor& tensor, std::string& key) {
  fmt::format_to(std::back_inserter(key), "{} {} {};", tensor.dtype, tensor.format, tensor.shape.text());
}

void AppendAttributes(const opdef::Attributes& attributes, std::string& key) {
  for (const auto& [name, value] : attributes) {
    fmt::format_to(std::back_inserter(key), "{}={}{};", name, value.index(), opdef::AttributeText(value));
  }
  key += '|';
}

// Equal for nodes that compute the same from the same.
std::string KeyOf(const Graph& graph, const Node& node) {
  std::string key = node.type + "|";
  for (const Input& input : node.inputs) {
    fmt::format_to(std::back_inserter(key), "{}:{}:{} ", input.name, input.source.node, input.source.output);
    if (input.source.is_set()) AppendTensor(graph.TensorOf(input.source), key);
  }
  key += '|';
  std::vector<NodeId> after = node.after;
  std::sort(after.begin(), after.end());
  for (const NodeId first : after) fmt::format_to(std::back_inserter(key), "{} ", first);
  key += '|';
  AppendAttributes(node.attributes, key);
  AppendAttributes(node.notes, key);
  for (const Output& output : node.outputs) AppendTensor(output.tensor, key);
  return key;
}

// Later nodes give their users to the first one with their key.
template <class IsCandidate, class Key>
Status MergeEqual(Graph& graph, PassContext& context, IsCandidate is_candidate, Key key) {
  Rewriter rewriter(graph);
  const Writes writes(graph);
  std::unordered_map<std::string, NodeId> first_of;
  for (const NodeId id : TopologicalOrder(graph)) {
    if (!is_candidate(id)) continue;
    const auto [found, is_first] = first_of.emplace(key(graph.at(id)), id);
    if (is_first) continue;
    const NodeId kept = found->second;
    const auto is_written = [&](NodeId node) {
      for (uint32_t i = 0; i < graph.at(node).outputs.size(); ++i) {
        if (writes.IsWritten({node, i})) return true;
      }
      return false;
    };
    if (is_written(id) || is_written(kept)) {
      context.Refused(graph.at(id), fmt::format("it or its equal {} is written in place", graph.at(kept).name));
      continue;
    }
    for (uint32_t i = 0; i < graph.at(id).outputs.size(); ++i) rewriter.ReplaceUses({id, i}, {kept, i});
    rewriter.MoveFollowers(id, kept);
    rewriter.Remove(id);
    context.Changed();
  }
  return {};
}

}  // namespace

Status MergeSubexpressions(Graph& graph, PassContext& context) {
  const auto is_candidate = [&](NodeId id) {
    const Node& node = graph.at(id);
    return node.kind == NodeKind::kOperator && !node.inputs.empty() && IsPure(graph, id) &&
           FindNote(node, "no_need_constant_folding") == nullptr;
  };
  return MergeEqual(graph, context, is_candidate, [&](const Node& node) { return KeyOf(graph, node); });
}

Status MergeConstants(Graph& graph, PassContext& context) {
  const auto is_candidate = [&](NodeId id) {
    return graph.at(id).kind == NodeKind::kConstant && graph.at(id).constant != nullptr;
  };
  // The bytes themselves are the key; of large constants they exist a second time while the pass runs.
  return MergeEqual(graph, context, is_candidate, [&](const Node& node) {
    std::string key = fmt::format("{} {} ", node.constant->dtype, fmt::join(node.constant->shape, ","));
    for (const Output& output : node.outputs) AppendTensor(output.tensor, key);
    std::vector<NodeId> after = node.after;
    std::sort(after.begin(), after.end());
    for (const NodeId first : after) fmt::format_to(std::back_inserter(key), "{} ", first);
    return key + '|' + node.constant->bytes;
  });
}

}  // namespace reprise::compiler
