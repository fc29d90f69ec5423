// SPDX-License-Identifier: Apache-2.0
//
// Operators: inference of outputs, and checks.
#include "compiler/graph.h"
#include "ge/graph_impl.h"
#include "ge/operator_impl.h"
#include "graph/operator.h"
#include "opdef/graph_op.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;

Status NoOperator() {
  return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
}

// A graph of this operator alone: constants stay what they are, all other inputs are inputs of the graph.
StatusOr<compiler::Graph> GraphOf(const Operator::Impl& op) {
  compiler::Graph graph;
  graph.name = op.name;
  NodeExtras extras;
  REPRISE_ASSIGN_OR_RETURN(compiler::Node node, MakeNode(op, &extras));
  node.graphs.clear();
  for (size_t i = 0; i < op.inputs.size() && i < node.inputs.size(); ++i) {
    const Operator::Impl::Input& input = op.inputs[i];
    if (!input.source && !input.has_desc) continue;
    compiler::Node source;
    source.name = fmt::format("{}/{}", op.name, input.name);
    source.kind = compiler::NodeKind::kData;
    source.type = "Data";
    compiler::Tensor tensor;
    if (input.source) {
      const auto& output = input.source->outputs[input.output];
      if (output.has_desc) tensor = ToCompiler(output.desc);
    }
    if (input.has_desc) tensor = ToCompiler(input.desc);
    if (const Tensor* value = ConstantOf(op, i)) {
      source.kind = compiler::NodeKind::kConstant;
      source.type = "Const";
      source.constant = ToConstant(*value);
    }
    source.outputs.push_back({"y", tensor});
    node.inputs[i].source = {graph.Add(std::move(source)), 0};
  }
  graph.Add(std::move(node));
  return graph;
}

Status InferByRow(Operator::Impl& op) {
  REPRISE_ASSIGN_OR_RETURN(compiler::Graph graph, GraphOf(op));
  REPRISE_RETURN_IF_ERROR(compiler::Verify(graph));
  reprise::opdef::Facts facts;
  REPRISE_RETURN_IF_ERROR(compiler::InferShapes(graph, facts));
  const compiler::Node& node = graph.nodes.back();
  for (size_t i = 0; i < op.outputs.size() && i < node.outputs.size(); ++i) {
    op.outputs[i].desc = FromCompiler(node.outputs[i].tensor, op.outputs[i].desc);
    op.outputs[i].has_desc = true;
  }
  op.Touch();
  return {};
}

Status As(Status status) {
  if (status.ok()) return status;
  const Status::Detail& detail = status.detail();
  return Error(GRAPH_FAILED, detail.what).Culprit(detail.culprit).Hint(detail.hint);
}

// What the prototype asks for.
Status CheckPrototype(const Operator::Impl& op) {
  for (const Prototype::Attribute& attribute : op.prototype->attributes) {
    const auto found = op.attributes.find(attribute.name);
    if (found == op.attributes.end()) {
      if (!attribute.is_required) continue;
      return Invalid(fmt::format("{} needs the attribute {}", op.text(), attribute.name), op.text(),
                     fmt::format("set it, as {}", attribute.kind), GRAPH_FAILED);
    }
    int64_t number = 0;
    std::vector<int64_t> numbers;
    const bool fits =
        attribute.kind == KindWordOf(found->second) ||
        (TakeValue(found->second, number) && (attribute.kind == "VT_INT" || attribute.kind == "VT_DATA_TYPE")) ||
        (TakeValue(found->second, numbers) &&
         (numbers.empty() || attribute.kind == "VT_LIST_INT" || attribute.kind == "VT_LIST_DATA_TYPE"));
    if (fits) continue;
    return Invalid(
        fmt::format("the attribute {} of {} is of another kind: {}", attribute.name, op.text(), KindOf(found->second)),
        op.text(), fmt::format("set it, as {}", attribute.kind), GRAPH_FAILED);
  }
  return {};
}

}  // namespace

graphStatus Operator::InferShapeAndType() {
  return Answer("ge::Operator::InferShapeAndType", [&]() -> Status {
    if (!impl_) return NoOperator();
    if (reprise::opdef::FindGraphOp(impl_->type) != nullptr) return As(InferByRow(*impl_));
    InferShapeFunc infer = impl_->prototype->infer ? impl_->prototype->infer : InferOf(impl_->type);
    if (!infer) {
      return Invalid(fmt::format("nothing says which shape the results of {} have", impl_->text()), impl_->text(),
                     "register a function with COMMON_INFER_FUNC_REG", GRAPH_FAILED);
    }
    if (const graphStatus status = infer(*this); status != GRAPH_SUCCESS) {
      return Invalid(fmt::format("the function of inference of {} answers {}", impl_->text(), status), impl_->text(),
                     "look into the function that the program registered", status);
    }
    for (Impl::Output& output : impl_->outputs) output.has_desc = true;
    return {};
  });
}

graphStatus Operator::VerifyAllAttr(bool disable_common_verifier) {
  return Answer("ge::Operator::VerifyAllAttr", [&]() -> Status {
    if (!impl_) return NoOperator();
    if (!disable_common_verifier) REPRISE_RETURN_IF_ERROR(CheckPrototype(*impl_));
    const VerifyFunc verify = impl_->prototype->verify ? impl_->prototype->verify : VerifyOf(impl_->type);
    if (!verify) return {};
    if (const graphStatus status = verify(*this); status != GRAPH_SUCCESS) {
      return Invalid(fmt::format("the check of {} answers {}", impl_->text(), status), impl_->text(),
                     "look into the function that the program registered", status);
    }
    return {};
  });
}

}  // namespace ge
