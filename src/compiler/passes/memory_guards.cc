// SPDX-License-Identifier: Apache-2.0
//
// Copies that keep writers away from what others read, and marks of nodes that may write over an input.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "compiler/operands.h"
#include "compiler/passes/functions.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"
#include "compiler/views.h"

namespace reprise::compiler {
namespace {

bool IsConstantMemory(const Node& node) {
  return node.kind == NodeKind::kConstant || node.type == "ConstPlaceHolder" || node.type == "FileConstant";
}
bool IsVariable(const Node& node) { return node.type == "Variable" || node.type == "VariableV2"; }
bool IsLoop(const Node& node) { return node.type == "While" || node.type == "For"; }
bool IsBranch(const Node& node) { return node.type == "If" || node.type == "Case"; }

// Inputs of a branch that one of its graphs writes, itself or in a branch of its own.
std::vector<uint32_t> InputsWrittenInBranches(const Node& branch) {
  std::vector<uint32_t> written;
  for (const std::shared_ptr<Graph>& callee : branch.graphs) {
    const Memories memories(*callee, TopologicalOrder(*callee));
    std::vector<uint64_t> roots;
    for (NodeId id = 0; id < callee->nodes.size(); ++id) {
      const Node& node = callee->at(id);
      if (node.is_removed || !IsBranch(node)) continue;
      for (const uint32_t input : InputsWrittenInBranches(node)) {
        if (node.inputs[input].source.is_set()) roots.push_back(memories.RootOf(node.inputs[input].source));
      }
    }
    for (size_t i = 0; i < callee->inputs.size(); ++i) {
      const uint64_t root = memories.RootOf({callee->inputs[i], 0});
      if (memories.WritersOf(root).empty() && std::find(roots.begin(), roots.end(), root) == roots.end()) continue;
      const size_t input = CallerInput(*callee, i, 1) + 1;  // behind the choice
      // What is written because it shall be written is no matter of a copy.
      if (callee->at(callee->inputs[i]).type == "RefData") continue;
      if (input < branch.inputs.size()) written.push_back(static_cast<uint32_t>(input));
    }
  }
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  return written;
}

class Guards {
 public:
  Guards(Graph& graph, PassContext& context) : graph_(graph), context_(context), rewriter_(graph) {}

  void Run() {
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    GuardLoopResults(count);
    for (NodeId id = 0; id < count; ++id) {
      if (!graph_.at(id).is_removed) GuardInputs(id);
    }
    GuardResults();
    MarkCopies();
  }

 private:
  // A loop of no trips gives what it gets. Whoever writes a result of it must not write the memory of its input then.
  void GuardLoopResults(NodeId count) {
    const Writes writes(graph_);
    if (writes.empty()) return;
    for (NodeId id = 0; id < count; ++id) {
      if (graph_.at(id).is_removed || !IsLoop(graph_.at(id))) continue;
      const uint32_t values_from = graph_.at(id).type == "For" ? 3 : 0;  // behind start, limit and delta
      for (uint32_t output = 0; output < graph_.at(id).outputs.size(); ++output) {
        const uint32_t input = values_from + output;
        if (input >= graph_.at(id).inputs.size() || !graph_.at(id).inputs[input].source.is_set()) continue;
        if (writes.IsWritten({id, output})) Protect({id, input});
      }
    }
  }

  void GuardInputs(NodeId id) {
    // Loops, collectives and branches that write use their inputs up: a reader beside them must not see that.
    const bool uses_up = IsLoop(graph_.at(id)) || IsBranch(graph_.at(id)) || HasNote(graph_.at(id), "_input_mutable");
    std::vector<uint32_t> changed = ChangedInputs(graph_, id);
    if (IsLoop(graph_.at(id))) {
      for (uint32_t i = 0; i < graph_.at(id).inputs.size(); ++i) changed.push_back(i);
    } else if (IsBranch(graph_.at(id))) {
      changed = InputsWrittenInBranches(graph_.at(id));
    }
    for (const uint32_t input : changed) {
      const Port source = graph_.at(id).inputs[input].source;
      if (!source.is_set()) continue;
      const Node& producer = graph_.at(source.node);
      bool has_conflict = IsConstantMemory(producer);
      if (uses_up) {
        has_conflict = has_conflict || IsVariable(producer) || rewriter_.UseCount(source) > 1 || IsWritten(source);
      }
      if (has_conflict) Protect({id, input});
    }
  }

  // The output is the input of its node.
  bool IsWritten(Port port) const {
    for (const auto& pair : WrittenInputs(graph_, port.node)) {
      if (pair.second == port.output) return true;
    }
    return false;
  }

  // An input of the graph that is a result of another index would be read and written at once by callers that swap.
  void GuardResults() {
    const Memories memories(graph_, TopologicalOrder(graph_));
    std::unordered_map<NodeId, uint32_t> index_of;
    for (uint32_t i = 0; i < graph_.inputs.size(); ++i) index_of.emplace(graph_.inputs[i], i);
    for (uint32_t i = 0; i < graph_.results.size(); ++i) {
      const auto found = index_of.find(graph_.results[i].node);
      if (found == index_of.end() || found->second == i) continue;
      const uint64_t root = memories.RootOf(graph_.results[i]);
      const NodeId copy = Protect({kNoNode, i});
      // A result is what is there in the end.
      for (const NodeId writer : memories.WritersOf(root)) rewriter_.AddOrder(writer, copy);
    }
  }

  // What shows memory in another shape, or a piece of it, is a copy where that memory is written: on either side.
  void MarkCopies() {
    const Writes writes(graph_);
    if (writes.empty()) return;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      Node& node = graph_.at(id);
      if (node.is_removed || node.kind != NodeKind::kOperator || HasNote(node, "_cannot_be_deleted")) continue;
      const bool is_slice = IsSlice(graph_, id);
      if (!is_slice && (!IsReshape(node) || HasNote(node, "_no_task"))) continue;
      const uint32_t input = is_slice ? SlicedInput(node) : 0;
      if (input >= node.inputs.size() || !node.inputs[input].source.is_set()) continue;
      bool is_written = writes.IsWritten(node.inputs[input].source);
      for (uint32_t i = 0; i < node.outputs.size(); ++i) is_written = is_written || writes.IsWritten({id, i});
      if (!is_written) continue;
      node.notes["_cannot_be_deleted"] = true;
      context_.Changed();
    }
  }

  NodeId Protect(Use use) {
    Node copy;
    const Port source = use.is_result() ? graph_.results[use.index] : graph_.at(use.node).inputs[use.index].source;
    copy.name = graph_.at(source.node).name + "_copy";
    copy.type = "Identity";
    copy.op = opdef::FindGraphOp(copy.type);
    copy.inputs.push_back({"x", {}});
    copy.outputs.push_back({"y", {}});
    copy.notes["_cannot_be_deleted"] = true;
    copy.notes["no_need_constant_folding"] = true;
    context_.Changed();
    return rewriter_.InsertOnEdge(use, std::move(copy));
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
};

// Operators whose kernels read an element of each input before they write the one at its place.
constexpr std::array kElementwise = {
    "Abs",  "Acos",   "Add",       "AddV2",     "Adds",       "Asin",  "Atan",    "Axpy",     "Ceil",
    "Cos",  "Cosh",   "Div",       "Elu",       "Erf",        "Exp",   "Expm1",   "FastGelu", "Floor",
    "Gelu", "GeluV2", "HardSwish", "LeakyRelu", "Log",        "Log1p", "Maximum", "Minimum",  "Mul",
    "Muls", "Neg",    "Pow",       "RealDiv",   "Reciprocal", "Relu",  "Rsqrt",   "Sigmoid",  "Sign",
    "Sin",  "Sinh",   "Softplus",  "Sqrt",      "Square",     "Sub",   "Swish",   "Tan",      "Tanh"};

bool IsElementwise(std::string_view type) {
  return std::find(kElementwise.begin(), kElementwise.end(), type) != kElementwise.end();
}

}  // namespace

Status GuardMemory(Graph& graph, PassContext& context) {
  Guards(graph, context).Run();
  return {};
}

Status MarkInPlace(Graph& graph, PassContext& context) {
  Rewriter rewriter(graph);
  const Memories memories(graph, TopologicalOrder(graph));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    Node& node = graph.at(id);
    if (node.is_removed || node.outputs.size() != 1) continue;
    node.notes.erase("_inplace_support_input_index");
    if (!IsElementwise(node.type)) continue;
    const Tensor& result = node.outputs[0].tensor;
    for (uint32_t i = 0; i < node.inputs.size(); ++i) {
      const Port source = node.inputs[i].source;
      if (!source.is_set()) continue;
      const Node& producer = graph.at(source.node);
      const Tensor& tensor = graph.TensorOf(source);
      if (tensor.dtype != result.dtype || tensor.shape != result.shape || !tensor.shape.is_static()) continue;
      if (producer.kind == NodeKind::kData || IsConstantMemory(producer) || IsVariable(producer)) continue;
      // Memory that is also that of another output has other readers.
      if (IsView(producer) || !memories.IsRoot(source)) continue;
      if (!rewriter.HasOneReader(source)) continue;
      node.notes["_inplace_support_input_index"] = static_cast<int64_t>(i);
      context.Changed();
      break;
    }
  }
  return {};
}

}  // namespace reprise::compiler
