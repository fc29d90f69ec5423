// SPDX-License-Identifier: Apache-2.0
//
// Operators: lists of tensors, prototypes of the program, and graphs that they call.
#include <algorithm>
#include <map>

#include "ge/operator_impl.h"
#include "graph/graph.h"
#include "graph/operator.h"
#include "graph/operator_factory.h"

namespace ge {
namespace {

constexpr uint32_t kMostTensors = 65536;  // of a list; more is a mistake

Status EmptyOperator() {
  return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
}

// The place of a list among the operands.
StatusOr<size_t> FindList(const Operator::Impl* op, const char* name, bool is_input) {
  if (op == nullptr) return EmptyOperator();
  if (name == nullptr) return NullArgument("name");
  const auto& operands = is_input ? op->prototype->inputs : op->prototype->outputs;
  const size_t place = is_input ? op->prototype->FindInput(name) : op->prototype->FindOutput(name);
  if (place != Prototype::kNone && operands[place].kind == OperandKind::kDynamic) return place;
  return Invalid(fmt::format("{} has no list {} of {}s", op->text(), name, is_input ? "input" : "output"),
                 "parameter name", "pass the name of a list of the prototype");
}

// The entry of a tensor of a list.
StatusOr<size_t> FindTensor(const Operator::Impl* op, const char* name, uint32_t index, bool is_input) {
  REPRISE_ASSIGN_OR_RETURN(const size_t place, FindList(op, name, is_input));
  const size_t count = is_input ? op->input_counts[place] : op->output_counts[place];
  if (index >= count) {
    return Invalid(
        fmt::format("the list {} of {} has {} tensors, so that there is no {}", name, op->text(), count, index),
        "parameter index", "make the list with enough tensors", GRAPH_PARAM_OUT_OF_RANGE);
  }
  return (is_input ? op->FirstInput(place) : op->FirstOutput(place)) + index;
}

template <class Entry>
Status MakeList(Operator::Impl& op, size_t place, const char* name, uint32_t count, std::vector<size_t>& counts,
                std::vector<Entry>& entries, size_t first) {
  if (count > kMostTensors) {
    return Invalid(fmt::format("num is {}, must be at most {}", count, kMostTensors), "parameter num",
                   "pass the number of tensors of the list", GRAPH_PARAM_OUT_OF_RANGE);
  }
  if (counts[place] != 0) {
    return Invalid(fmt::format("the list {} of {} has been made, with {} tensors", name, op.text(), counts[place]),
                   "parameter name", "make each list once");
  }
  std::vector<Entry> made(count);
  for (uint32_t i = 0; i < count; ++i) made[i].name = fmt::format("{}{}", name, i);
  entries.insert(entries.begin() + static_cast<ptrdiff_t>(first), std::make_move_iterator(made.begin()),
                 std::make_move_iterator(made.end()));
  counts[place] = count;
  op.Touch();
  return {};
}

}  // namespace

void Operator::DynamicInputRegister(const char* name, const uint32_t num, bool /*is_push_back*/) {
  Answer("ge::Operator::DynamicInputRegister", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t place, FindList(impl_.get(), name, true));
    return MakeList(*impl_, place, name, num, impl_->input_counts, impl_->inputs, impl_->FirstInput(place));
  });
}
void Operator::DynamicOutputRegister(const char* name, const uint32_t num, bool /*is_push_back*/) {
  Answer("ge::Operator::DynamicOutputRegister", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t place, FindList(impl_.get(), name, false));
    return MakeList(*impl_, place, name, num, impl_->output_counts, impl_->outputs, impl_->FirstOutput(place));
  });
}

int Operator::GetDynamicInputNum(const char* name) const {
  int count = -1;
  Answer("ge::Operator::GetDynamicInputNum", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t place, FindList(impl_.get(), name, true));
    count = static_cast<int>(impl_->input_counts[place]);
    return {};
  });
  return count;
}
int Operator::GetDynamicOutputNum(const char* name) const {
  int count = -1;
  Answer("ge::Operator::GetDynamicOutputNum", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t place, FindList(impl_.get(), name, false));
    count = static_cast<int>(impl_->output_counts[place]);
    return {};
  });
  return count;
}
TensorDesc Operator::GetDynamicInputDesc(const char* name, uint32_t index) const {
  TensorDesc desc;
  Answer("ge::Operator::GetDynamicInputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t entry, FindTensor(impl_.get(), name, index, true));
    desc = impl_->inputs[entry].desc;
    return {};
  });
  return desc;
}
TensorDesc Operator::GetDynamicOutputDesc(const char* name, uint32_t index) const {
  TensorDesc desc;
  Answer("ge::Operator::GetDynamicOutputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t entry, FindTensor(impl_.get(), name, index, false));
    desc = impl_->outputs[entry].desc;
    return {};
  });
  return desc;
}
graphStatus Operator::UpdateDynamicInputDesc(const char* name, uint32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateDynamicInputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t entry, FindTensor(impl_.get(), name, index, true));
    impl_->inputs[entry].desc = tensor_desc;
    impl_->inputs[entry].has_desc = true;
    impl_->Touch();
    return {};
  });
}
graphStatus Operator::UpdateDynamicOutputDesc(const char* name, uint32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateDynamicOutputDesc", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const size_t entry, FindTensor(impl_.get(), name, index, false));
    impl_->outputs[entry].desc = tensor_desc;
    impl_->outputs[entry].has_desc = true;
    impl_->Touch();
    return {};
  });
}
Operator& Operator::SetDynamicInput(const char* name, uint32_t index, const Operator& src_oprt) {
  size_t entry = Prototype::kNone;
  Answer("ge::Operator::SetDynamicInput", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(entry, FindTensor(impl_.get(), name, index, true));
    return {};
  });
  return entry == Prototype::kNone ? *this : SetInput(impl_->inputs[entry].name.c_str(), src_oprt);
}
Operator& Operator::SetDynamicInput(const char* name, uint32_t index, const Operator& src_oprt, const char* src_name) {
  size_t entry = Prototype::kNone;
  Answer("ge::Operator::SetDynamicInput", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(entry, FindTensor(impl_.get(), name, index, true));
    return {};
  });
  return entry == Prototype::kNone ? *this : SetInput(impl_->inputs[entry].name.c_str(), src_oprt, src_name);
}

// ---- Prototypes of the program ----

namespace {

void AddInput(Operator::Impl* op, const char* name, OperandKind kind) {
  if (op == nullptr || name == nullptr || op->prototype->FindInput(name) != Prototype::kNone) return;
  op->Edit().inputs.push_back({name, kind});
  op->input_counts.push_back(kind == OperandKind::kDynamic ? 0 : 1);
  if (kind != OperandKind::kDynamic) op->inputs.push_back({name, {}, false, nullptr, 0});
}

void AddOutput(Operator::Impl* op, const char* name, OperandKind kind) {
  if (op == nullptr || name == nullptr || op->prototype->FindOutput(name) != Prototype::kNone) return;
  op->Edit().outputs.push_back({name, kind});
  op->output_counts.push_back(kind == OperandKind::kDynamic ? 0 : 1);
  if (kind != OperandKind::kDynamic) op->outputs.push_back({name, {}, false});
}

void AddAttribute(Operator::Impl* op, const char* name, const char* kind, bool is_required) {
  static const std::map<std::string, std::string, std::less<>> words = {
      {"Int", "VT_INT"},
      {"Float", "VT_FLOAT"},
      {"Bool", "VT_BOOL"},
      {"String", "VT_STRING"},
      {"Type", "VT_DATA_TYPE"},
      {"Tensor", "VT_TENSOR"},
      {"NamedAttrs", "VT_NAMED_ATTRS"},
      {"Bytes", "VT_BYTES"},
      {"ListInt", "VT_LIST_INT"},
      {"ListFloat", "VT_LIST_FLOAT"},
      {"ListBool", "VT_LIST_BOOL"},
      {"ListString", "VT_LIST_STRING"},
      {"ListType", "VT_LIST_DATA_TYPE"},
      {"ListTensor", "VT_LIST_TENSOR"},
      {"ListNamedAttrs", "VT_LIST_NAMED_ATTRS"},
      {"ListListInt", "VT_LIST_LIST_INT"},
      {"ListListFloat", "VT_LIST_LIST_FLOAT"},
  };
  if (op == nullptr || name == nullptr || kind == nullptr || op->prototype->FindAttribute(name) != nullptr) return;
  const auto word = words.find(kind);
  op->Edit().attributes.push_back({name, word != words.end() ? word->second : kind, is_required, {}});
}

}  // namespace

void Operator::InputRegister(const char* name) { AddInput(impl_.get(), name, OperandKind::kRequired); }
void Operator::OptionalInputRegister(const char* name) { AddInput(impl_.get(), name, OperandKind::kOptional); }
void Operator::DynamicInputDeclare(const char* name) { AddInput(impl_.get(), name, OperandKind::kDynamic); }
void Operator::OutputRegister(const char* name) { AddOutput(impl_.get(), name, OperandKind::kRequired); }
void Operator::DynamicOutputDeclare(const char* name) { AddOutput(impl_.get(), name, OperandKind::kDynamic); }
void Operator::RequiredAttrRegister(const char* name, const char* kind) { AddAttribute(impl_.get(), name, kind, true); }
void Operator::AttrDeclare(const char* name, const char* kind) { AddAttribute(impl_.get(), name, kind, false); }
void Operator::InferFuncRegister(const InferShapeFunc& func) {
  if (impl_) impl_->Edit().infer = func;
}
void Operator::VerifierFuncRegister(const VerifyFunc& func) {
  if (impl_) impl_->Edit().verify = func;
}
void Operator::SubgraphRegister(const char* ir_name, bool dynamic) {
  if (!impl_ || ir_name == nullptr) return;
  for (const Prototype::Subgraph& known : impl_->prototype->subgraphs) {
    if (known.name == ir_name) return;
  }
  impl_->Edit().subgraphs.push_back({ir_name, dynamic});
}

// ---- Graphs that operators call ----

namespace {

StatusOr<const Prototype::Subgraph*> FindSubgraph(const Operator::Impl* op, const char* name) {
  if (op == nullptr) return EmptyOperator();
  if (name == nullptr) return NullArgument("ir_name");
  for (const Prototype::Subgraph& known : op->prototype->subgraphs) {
    if (known.name == name) return &known;
  }
  return Invalid(fmt::format("{} calls no graph {}", op->text(), name), "parameter ir_name",
                 "pass the name of a graph of the prototype");
}

}  // namespace

void Operator::SubgraphCountRegister(const char* ir_name, uint32_t count) {
  Answer("ge::Operator::SubgraphCountRegister", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* known, FindSubgraph(impl_.get(), ir_name));
    if (count > kMostTensors || (!known->is_dynamic && count != 1)) {
      return Invalid(fmt::format("{} cannot call {} graphs as {}", impl_->text(), count, ir_name), "parameter count",
                     known->is_dynamic ? "pass the number of graphs" : "pass 1: it is no list");
    }
    impl_->builder_counts[ir_name] = count;
    impl_->Touch();
    return {};
  });
}
void Operator::SetSubgraphBuilder(const char* ir_name, uint32_t index, const SubgraphBuilder& builder) {
  Answer("ge::Operator::SetSubgraphBuilder", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const auto* known, FindSubgraph(impl_.get(), ir_name));
    if (!builder) return NullArgument("builder");
    const auto count = impl_->builder_counts.find(ir_name);
    const uint32_t most = !known->is_dynamic ? 1 : count == impl_->builder_counts.end() ? 0 : count->second;
    if (index >= most) {
      return Invalid(
          fmt::format("{} has room for {} graphs as {}, so that there is no {}", impl_->text(), most, ir_name, index),
          "parameter index", "make room with SubgraphCountRegister", GRAPH_PARAM_OUT_OF_RANGE);
    }
    impl_->builders[{ir_name, index}] = builder;
    impl_->Touch();
    return {};
  });
}
size_t Operator::GetSubgraphNamesCount() const { return impl_ ? impl_->prototype->subgraphs.size() : 0; }
graphStatus Operator::GetSubgraphNames(std::vector<AscendString>& names) const {
  return Answer("ge::Operator::GetSubgraphNames", [&]() -> Status {
    if (!impl_) return EmptyOperator();
    names.clear();
    for (const Prototype::Subgraph& known : impl_->prototype->subgraphs) names.emplace_back(known.name.c_str());
    return {};
  });
}
SubgraphBuilder Operator::GetSubgraphBuilder(const char* name) const { return GetDynamicSubgraphBuilder(name, 0); }
SubgraphBuilder Operator::GetDynamicSubgraphBuilder(const char* ir_name, uint32_t index) const {
  if (!impl_ || ir_name == nullptr) return nullptr;
  const auto found = impl_->builders.find({ir_name, index});
  return found == impl_->builders.end() ? nullptr : found->second;
}
Graph Operator::GetSubgraph(const char* name) const { return GetDynamicSubgraph(name, 0); }
Graph Operator::GetDynamicSubgraph(const char* ir_name, uint32_t index) const {
  const SubgraphBuilder builder = GetDynamicSubgraphBuilder(ir_name, index);
  return builder ? builder() : Graph("");
}

// ---- Factory ----

Operator OperatorFactory::CreateOperator(const char* operator_name, const char* operator_type) {
  Operator made;
  Answer("ge::OperatorFactory::CreateOperator", [&]() -> Status {
    if (operator_name == nullptr) return NullArgument("operator_name");
    if (operator_type == nullptr) return NullArgument("operator_type");
    if (FindPrototype(operator_type) != nullptr) {
      made = Operator(operator_name, operator_type);
      return {};
    }
    if (const auto creator = CreatorOf(operator_type)) {
      made = creator(operator_name);
      return {};
    }
    return Invalid(fmt::format("there is no operator type {}", operator_type), "parameter operator_type",
                   "GetOpsTypeList lists those that there are; declare others with REG_OP", GRAPH_FAILED);
  });
  return made;
}
graphStatus OperatorFactory::GetOpsTypeList(std::vector<AscendString>& all_ops) {
  return Answer("ge::OperatorFactory::GetOpsTypeList", [&]() -> Status {
    all_ops.clear();
    for (const std::string& type : AllTypes()) all_ops.emplace_back(type.c_str());
    return {};
  });
}
bool OperatorFactory::IsExistOp(const char* operator_type) {
  return operator_type != nullptr && (FindPrototype(operator_type) != nullptr || CreatorOf(operator_type));
}
graphStatus OperatorFactory::Register(const char* operator_type, const OpCreatorV2& creator) {
  return Answer("ge::OperatorFactory::Register",
                [&] { return RegisterCreator(operator_type != nullptr ? operator_type : "", creator); });
}
graphStatus OperatorFactory::RegisterInfer(const char* operator_type, const InferShapeFunc& func) {
  return Answer("ge::OperatorFactory::RegisterInfer",
                [&] { return ge::RegisterInfer(operator_type != nullptr ? operator_type : "", func); });
}
graphStatus OperatorFactory::RegisterVerify(const char* operator_type, const VerifyFunc& func) {
  return Answer("ge::OperatorFactory::RegisterVerify",
                [&] { return ge::RegisterVerify(operator_type != nullptr ? operator_type : "", func); });
}

}  // namespace ge
