// SPDX-License-Identifier: Apache-2.0
//
// Nodes that reorder elements: those that reorder nothing, pairs that undo each other, chains that one node does.
#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/permutation.h"
#include "compiler/passes/writes.h"
#include "compiler/strided_views.h"
#include "compiler/type_numbers.h"
#include "opdef/shape.h"

namespace reprise::compiler {

std::optional<std::vector<int64_t>> PermutationOf(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  if (node.is_removed || node.op == nullptr || node.inputs.empty() || node.outputs.size() != 1) return std::nullopt;
  std::optional<std::vector<int64_t>> permutation;
  if (node.type == "Transpose") {
    if (node.inputs.size() != 2 || !node.inputs[1].source.is_set()) return std::nullopt;
    StatusOr<Operands> operands = BindOperands(graph, id);
    if (!operands.ok() || (*operands)[0] != std::vector<uint32_t>{0}) return std::nullopt;  // named in another order
    const Node& source = graph.at(node.inputs[1].source.node);
    if (source.constant != nullptr) permutation = IntegersOf(*source.constant);
  } else if (node.type == "TransposeD" || node.type == "Permute") {
    const auto found = node.attributes.find(node.type == "Permute" ? "order" : "perm");
    if (found == node.attributes.end()) return std::nullopt;
    if (const auto* list = std::get_if<std::vector<int64_t>>(&found->second)) permutation = *list;
  }
  if (!permutation || !node.inputs[0].source.is_set()) return std::nullopt;
  const opdef::Shape& shape = graph.TensorOf(node.inputs[0].source).shape;
  const auto rank = static_cast<int64_t>(permutation->size());
  if (shape.has_rank() && shape.rank() != permutation->size()) return std::nullopt;
  std::vector<uint8_t> seen(permutation->size(), 0);
  for (int64_t& dim : *permutation) {
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank || seen[static_cast<size_t>(dim)]++ != 0) return std::nullopt;
  }
  return permutation;
}

namespace {

opdef::Shape Permuted(const opdef::Shape& shape, const std::vector<int64_t>& permutation) {
  if (!shape.has_rank()) return shape;
  opdef::Shape result = shape;
  for (size_t d = 0; d < permutation.size(); ++d) result[d] = shape[static_cast<size_t>(permutation[d])];
  return result;
}

bool IsInOrder(const std::vector<int64_t>& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end());
}

// Nothing moves but dims of size 1 among themselves.
bool KeepsPlaces(const opdef::Shape& shape, const std::vector<int64_t>& permutation) {
  for (size_t d = 0; d < permutation.size(); ++d) {
    const bool is_one = shape.has_rank() && shape[d].Is(1);
    if (!is_one && permutation[d] != static_cast<int64_t>(d)) return false;
  }
  return true;
}

// The dims that are not 1 keep their order.
bool KeepsOrder(const opdef::Shape& shape, const std::vector<int64_t>& permutation) {
  if (!shape.has_rank()) return IsInOrder(permutation);
  int64_t last = -1;
  for (const int64_t dim : permutation) {
    if (shape[static_cast<size_t>(dim)].Is(1)) continue;
    if (dim < last) return false;
    last = dim;
  }
  return true;
}

// Formats of a TransData node, or nothing.
struct Formats {
  int64_t from = 0;
  int64_t to = 0;
  std::string from_text, to_text;
};
std::optional<Formats> FormatsOf(const Node& node) {
  if (node.is_removed || node.type != "TransData" || node.inputs.size() != 1 || node.outputs.size() != 1) {
    return std::nullopt;
  }
  Formats formats;
  for (const auto& [name, text] : {std::pair("src_format", &formats.from_text), {"dst_format", &formats.to_text}}) {
    const auto* value = FindNote(node, name);
    if (value == nullptr || !std::holds_alternative<std::string>(*value)) return std::nullopt;
    *text = std::get<std::string>(*value);
  }
  return formats;
}

// The same groups and sub-formats; formats aside.
bool DifferInFormatsOnly(Node a, Node b) {
  for (Node* node : {&a, &b}) node->attributes.erase("src_format"), node->attributes.erase("dst_format");
  return a.attributes == b.attributes;
}

class Symmetry {
 public:
  Symmetry(Graph& graph, PassContext& context, bool joins)
      : graph_(graph), context_(context), rewriter_(graph), writes_(graph), joins_(joins) {}

  void Run() {
    const std::vector<NodeId> order = TopologicalOrder(graph_);
    for (const NodeId id : order) {
      const Node& node = graph_.at(id);
      if (node.is_removed || node.inputs.empty() || !node.inputs[0].source.is_set()) continue;
      if (const auto permutation = PermutationOf(graph_, id)) {
        TakeTranspose(id, *permutation);
      } else if (const auto formats = FormatsOf(node)) {
        TakeTransData(id, *formats);
      }
    }
  }

 private:
  // `id` does nothing any more: its users get what `before` got.
  void Undo(NodeId before, NodeId id) {
    const Port origin = graph_.at(before).inputs[0].source;
    if (writes_.IsWritten(origin) || writes_.IsWritten({before, 0}) || writes_.IsWritten({id, 0})) {
      return context_.Refused(graph_.at(id), "its input or its output is written in place");
    }
    Rewire(before, id);
    rewriter_.Splice(id);
    context_.Changed();
    RemoveUnused(before);
  }

  // `id` reads what `before` reads.
  void Rewire(NodeId before, NodeId id) {
    rewriter_.CopyOrderBefore(before, id);
    rewriter_.Set({id, 0}, graph_.at(before).inputs[0].source);
  }

  void RemoveUnused(NodeId before) {
    if (!rewriter_.IsUnused(before)) return;
    rewriter_.RemoveWithSources(before);
  }

  void TakeTranspose(NodeId id, const std::vector<int64_t>& second) {
    const Port middle = graph_.at(id).inputs[0].source;
    const NodeId before = middle.node;
    const auto first = PermutationOf(graph_, before);
    if (!first) return TakeReshaped(id);
    if (first->size() != second.size()) return;
    std::vector<int64_t> both(second.size());
    for (size_t d = 0; d < both.size(); ++d) both[d] = (*first)[static_cast<size_t>(second[d])];
    if (IsInOrder(both)) return Undo(before, id);
    if (!joins_) return;
    const Port origin = graph_.at(before).inputs[0].source;
    if (writes_.IsWritten(middle) || writes_.IsWritten(origin)) {
      return context_.Refused(graph_.at(id), "what it would read is written in place");
    }
    const NodeId joined = AddTranspose(rewriter_, id, origin, both);
    graph_.at(joined).outputs[0].tensor = graph_.at(id).outputs[0].tensor;
    rewriter_.CopyOrderBefore(before, joined);
    rewriter_.Replace(id, joined);
    context_.Changed();
    RemoveUnused(before);
  }

  // A transpose behind reshapes of another one: nothing where all of them together leave every element at its place.
  void TakeReshaped(NodeId id) {
    constexpr size_t kMostNodes = 8;
    std::vector<NodeId> path{id};
    while (path.size() < kMostNodes) {
      const Port source = graph_.at(path.back()).inputs[0].source;
      const Node& node = graph_.at(source.node);
      const bool is_transpose = PermutationOf(graph_, source.node).has_value();
      const bool is_reshape = node.type == "Reshape" && !node.inputs.empty() && node.inputs[0].name == "x";
      if ((!is_transpose && !is_reshape) || source.output != 0 || !node.inputs[0].source.is_set()) return;
      path.push_back(source.node);
      if (is_transpose && KeepsElements(path)) return BecomeReshape(path);
    }
  }

  // `path`: nodes of which each reads what the next one gives.
  bool KeepsElements(const std::vector<NodeId>& path) const {
    const opdef::Shape& begin = graph_.TensorOf(graph_.at(path.back()).inputs[0].source).shape;
    if (!begin.is_static()) return false;
    std::vector<int64_t> sizes = begin.numbers();
    std::vector<int64_t> strides = RowMajorStrides(sizes);
    for (auto node = path.rbegin(); node != path.rend(); ++node) {
      const opdef::Shape& to = graph_.TensorOf({*node, 0}).shape;
      if (!to.is_static()) return false;
      if (const auto permutation = PermutationOf(graph_, *node)) {
        std::vector<int64_t> turned;
        for (const int64_t dim : *permutation) turned.push_back(strides[static_cast<size_t>(dim)]);
        strides = std::move(turned);
      } else {
        const auto reshaped = ReshapedStrides(sizes, strides, to.numbers());
        if (!reshaped) return false;
        strides = *reshaped;
      }
      sizes = to.numbers();
    }
    const std::vector<int64_t> wanted = RowMajorStrides(sizes);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] != 1 && strides[d] != wanted[d]) return false;
    }
    return true;
  }

  void BecomeReshape(const std::vector<NodeId>& path) {
    const NodeId id = path.front();
    const Port origin = graph_.at(path.back()).inputs[0].source;
    bool is_written = writes_.IsWritten(origin);
    for (const NodeId node : path) is_written = is_written || writes_.IsWritten({node, 0});
    if (is_written) return context_.Refused(graph_.at(id), "its input or its output is written in place");
    const Tensor result = graph_.at(id).outputs[0].tensor;
    const std::vector<int64_t> sizes = result.shape.numbers();
    const NodeId shape = rewriter_.AddConstant(
        graph_.at(id).name + "_shape",
        MakeConstant(kInt64Number, {static_cast<int64_t>(sizes.size())}, std::span<const int64_t>(sizes)));
    const NodeId reshape = rewriter_.AddOperator(graph_.at(id).name, "Reshape", {origin, {shape, 0}}, result);
    for (const NodeId node : path) rewriter_.CopyOrderBefore(node, reshape);
    rewriter_.Replace(id, reshape);
    context_.Changed();
    RemoveUnused(path[1]);
  }

  void TakeTransData(NodeId id, const Formats& second) {
    const NodeId before = graph_.at(id).inputs[0].source.node;
    const auto first = FormatsOf(graph_.at(before));
    if (!first || first->to_text != second.from_text) return;
    if (!DifferInFormatsOnly(graph_.at(before), graph_.at(id))) return;
    const Tensor& origin = graph_.TensorOf(graph_.at(before).inputs[0].source);
    const Tensor& result = graph_.at(id).outputs[0].tensor;
    if (first->from_text == second.to_text) {
      if (origin.shape == result.shape) return Undo(before, id);
      return context_.Refused(graph_.at(id), "the shapes before and behind the two differ");
    }
    if (!joins_) return;
    if (writes_.IsWritten(graph_.at(id).inputs[0].source) || writes_.IsWritten(graph_.at(before).inputs[0].source)) {
      return context_.Refused(graph_.at(id), "what it would read is written in place");
    }
    Rewire(before, id);
    graph_.at(id).attributes["src_format"] = first->from_text;
    context_.Changed();
    RemoveUnused(before);
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  Writes writes_;
  const bool joins_;
};

bool HasTransforms(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return !node.is_removed && (node.type == "Transpose" || node.type == "TransposeD" || node.type == "Permute" ||
                                node.type == "TransData");
  });
}

}  // namespace

NodeId AddTranspose(Rewriter& rewriter, NodeId like, Port source, const std::vector<int64_t>& permutation) {
  const Graph& graph = rewriter.graph();
  Node node = graph.at(like);
  node.after.clear();
  node.inputs[0].source = source;
  node.outputs[0].tensor = graph.TensorOf(source);
  node.outputs[0].tensor.shape = Permuted(graph.TensorOf(source).shape, permutation);
  if (node.type != "Transpose") {
    node.attributes.insert_or_assign(node.type == "Permute" ? "order" : "perm", permutation);
    return rewriter.Add(std::move(node));
  }
  const Node& old = graph.at(node.inputs[1].source.node);
  const NodeId perm = rewriter.AddConstant(
      old.name, MakeConstant(old.constant->dtype, old.constant->shape, std::span<const int64_t>(permutation)));
  node.inputs[1].source = {perm, 0};
  return rewriter.Add(std::move(node));
}

Status RemoveUnchangedTransposes(Graph& graph, PassContext& context) {
  if (!HasTransforms(graph)) return {};
  Rewriter rewriter(graph);
  const Writes writes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const auto permutation = PermutationOf(graph, id);
    if (!permutation || !KeepsPlaces(graph.TensorOf(graph.at(id).inputs[0].source).shape, *permutation)) continue;
    if (!writes.MayShare(graph.at(id), id)) {
      context.Refused(graph.at(id), "its input or its output is written in place");
      continue;
    }
    rewriter.Splice(id);
    context.Changed();
  }
  return {};
}

// Squeeze takes the dims of size 1 away, Unsqueeze puts them where they belong: no element moves.
Status ReplaceUnitTransposes(Graph& graph, PassContext& context) {
  if (!HasTransforms(graph)) return {};
  Rewriter rewriter(graph);
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const auto permutation = PermutationOf(graph, id);
    if (!permutation || IsInOrder(*permutation)) continue;
    const Port source = graph.at(id).inputs[0].source;
    const Tensor tensor = graph.TensorOf(source);
    if (!tensor.shape.has_rank() || !KeepsOrder(tensor.shape, *permutation)) continue;
    std::vector<int64_t> taken;
    std::vector<int64_t> added;
    Tensor squeezed = tensor;
    squeezed.shape = opdef::Shape();
    for (size_t d = 0; d < permutation->size(); ++d) {
      if (tensor.shape[d].Is(1)) taken.push_back(static_cast<int64_t>(d));
      if (!tensor.shape[d].Is(1)) squeezed.shape.dims().push_back(tensor.shape[d]);
      if (tensor.shape[static_cast<size_t>((*permutation)[d])].Is(1)) added.push_back(static_cast<int64_t>(d));
    }
    const std::string name = graph.at(id).name;
    const NodeId squeeze = rewriter.AddOperator(name + "_squeeze", "Squeeze", {source}, squeezed, {{"axis", taken}});
    const NodeId unsqueeze = rewriter.AddOperator(name + "_unsqueeze", "Unsqueeze", {{squeeze, 0}},
                                                  graph.at(id).outputs[0].tensor, {{"axes", added}});
    rewriter.CopyOrderBefore(id, squeeze);
    rewriter.Replace(id, unsqueeze);
    context.Changed();
  }
  return {};
}

Status RemoveSymmetricTransforms(Graph& graph, PassContext& context) {
  if (HasTransforms(graph)) Symmetry(graph, context, false).Run();
  return {};
}

Status JoinTransforms(Graph& graph, PassContext& context) {
  if (HasTransforms(graph)) Symmetry(graph, context, true).Run();
  return {};
}

}  // namespace reprise::compiler
