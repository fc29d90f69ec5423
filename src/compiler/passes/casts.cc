// SPDX-License-Identifier: Apache-2.0
//
// Casts that change nothing: to the type that is there, or to a wider one and back.
#include <optional>

#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"
#include "kernels/dtype.h"

namespace reprise::compiler {
namespace {

using kernels::DType;

// Digits that a type of numbers holds exactly: bits of integers without the sign, of floats the mantissa.
struct Precision {
  int digits = 0;
  int exponent = 0;  // bits; of floats only
  bool is_signed = true;
};

std::optional<Precision> PrecisionOf(int32_t type) {
  switch (static_cast<DType>(type)) {
    case DType::kBool: return Precision{1, 0, false};
    case DType::kInt8: return Precision{7};
    case DType::kUInt8: return Precision{8, 0, false};
    case DType::kInt16: return Precision{15};
    case DType::kUInt16: return Precision{16, 0, false};
    case DType::kInt32: return Precision{31};
    case DType::kUInt32: return Precision{32, 0, false};
    case DType::kInt64: return Precision{63};
    case DType::kUInt64: return Precision{64, 0, false};
    case DType::kFloat16: return Precision{11, 5};
    case DType::kBFloat16: return Precision{8, 8};
    case DType::kFloat: return Precision{24, 8};
    case DType::kDouble: return Precision{53, 11};
    default: return std::nullopt;
  }
}

// Nodes that move elements and do not look at them.
bool Moves(const Node& node) {
  for (const std::string_view type : {"Transpose", "TransposeD", "Permute", "TransData", "Reshape", "Squeeze",
                                      "Unsqueeze", "ExpandDims", "FlattenV2"}) {
    if (node.type == type) return node.op != nullptr && !node.inputs.empty() && node.outputs.size() == 1;
  }
  return false;
}

bool IsCast(const Node& node) {
  return node.type == "Cast" && node.inputs.size() == 1 && node.inputs[0].source.is_set() && node.outputs.size() == 1;
}

class CastRemoval {
 public:
  CastRemoval(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), rewriter_(graph), writes_(graph) {}

  void Run() {
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId id = 0; id < count; ++id) {
      if (graph_.at(id).is_removed || !IsCast(graph_.at(id))) continue;
      if (TypeInto(id) == TypeOut(id)) {
        Take(id);
      } else {
        TakePair(id);
      }
    }
  }

 private:
  int32_t TypeInto(NodeId id) const { return graph_.TensorOf(graph_.at(id).inputs[0].source).dtype; }
  int32_t TypeOut(NodeId id) const { return graph_.at(id).outputs[0].tensor.dtype; }

  void Take(NodeId id) {
    if (!writes_.MayShare(graph_.at(id), id)) {
      return context_.Refused(graph_.at(id), "its input or its output is written in place");
    }
    rewriter_.Splice(id);
    context_.Changed();
  }

  // `last` casts back what a Cast before it had cast, with nothing but moves between the two.
  void TakePair(NodeId last) {
    std::vector<NodeId> between;
    NodeId first = graph_.at(last).inputs[0].source.node;
    while (Moves(graph_.at(first)) && graph_.at(first).inputs[0].source.is_set()) {
      between.push_back(first);
      first = graph_.at(first).inputs[0].source.node;
    }
    if (!IsCast(graph_.at(first))) return;
    const int32_t type = TypeInto(first);
    if (type != TypeOut(last)) return;
    const Node& back = graph_.at(last);
    if (!HoldsAll(TypeOut(first), type)) {
      return context_.Refused(back, "the type between the two casts does not hold all values");
    }
    const Port origin = graph_.at(first).inputs[0].source;
    if (writes_.IsWritten(origin) || writes_.IsWritten({last, 0})) {
      return context_.Refused(back, "its input or its output is written in place");
    }
    for (const NodeId node : between) {
      if (!rewriter_.HasOneReader({node, 0})) return context_.Refused(back, "a node between the casts has other users");
      if (!graph_.at(node).op->inputs[0].types().Has(type)) {
        return context_.Refused(back, "a node between the casts does not take the type");
      }
    }
    if (!between.empty() && !rewriter_.HasOneReader({first, 0})) {
      return context_.Refused(back, "the first cast has other users");
    }
    for (const NodeId node : between) graph_.at(node).outputs[0].tensor.dtype = type;
    if (between.empty()) {
      rewriter_.CopyOrderBefore(first, last);
      rewriter_.Set({last, 0}, origin);
    } else {
      rewriter_.Splice(first);
    }
    rewriter_.Splice(last);
    if (between.empty() && rewriter_.IsUnused(first)) rewriter_.Remove(first);
    context_.Changed();
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  Writes writes_;
};

}  // namespace

bool HoldsAll(int32_t wide, int32_t narrow) {
  if (wide == narrow) return true;
  const auto from = PrecisionOf(narrow);
  const auto to = PrecisionOf(wide);
  if (!from || !to) return false;
  if (from->exponent > to->exponent) return false;  // also floats to integers
  if (from->is_signed && !to->is_signed) return false;
  return to->digits >= from->digits;
}

Status RemoveCasts(Graph& graph, PassContext& context) {
  bool has_casts = false;
  for (const Node& node : graph.nodes) has_casts = has_casts || (!node.is_removed && node.type == "Cast");
  if (has_casts) CastRemoval(graph, context).Run();
  return {};
}

}  // namespace reprise::compiler
