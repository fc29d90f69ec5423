// SPDX-License-Identifier: Apache-2.0
//
// Operators: what they are, their edges and their descriptions.
#include "graph/operator.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "ge/operator_impl.h"

namespace ge {
namespace {

std::atomic<uint64_t> last_change{0};

Status Empty() {
  return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
}

std::string NamesOf(const std::vector<Prototype::Operand>& operands) {
  std::string text;
  for (const Prototype::Operand& operand : operands) {
    if (!text.empty()) text += ", ";
    text += operand.name;
    if (operand.kind == OperandKind::kDynamic) text += "[]";
  }
  return text.empty() ? "none" : text;
}

Status NoInput(const Operator::Impl& op, std::string_view name) {
  return Invalid(fmt::format("{} has no input {}", op.text(), name), "parameter name",
                 fmt::format("its inputs are {}; a list has tensors once it is made with DynamicInputRegister",
                             NamesOf(op.prototype->inputs)));
}
Status NoOutput(const Operator::Impl& op, std::string_view name) {
  return Invalid(fmt::format("{} has no output {}", op.text(), name), "parameter name",
                 fmt::format("its outputs are {}; a list has tensors once it is made with DynamicOutputRegister",
                             NamesOf(op.prototype->outputs)));
}
Status NoIndex(const Operator::Impl& op, const char* what, size_t index, size_t count) {
  return Invalid(fmt::format("{} has {} {}s, so that there is no {}", op.text(), count, what, index), "parameter index",
                 "count from 0", GRAPH_PARAM_OUT_OF_RANGE);
}

// Checks the output, and that the edge closes no circle; then makes it.
Status Connect(const std::shared_ptr<Operator::Impl>& op, size_t input, const std::shared_ptr<Operator::Impl>& source,
               size_t output) {
  if (output >= source->outputs.size()) return NoIndex(*source, "output", output, source->outputs.size());
  if (ComesBefore(*op, *source)) {
    return Invalid(fmt::format("{} would wait for itself, by way of {}", op->text(), source->text()),
                   "parameter src_oprt", "loops are While operators with a subgraph");
  }
  Operator::Impl::Input& entry = op->inputs[input];
  entry.source = source;
  entry.output = static_cast<uint32_t>(output);
  if (!entry.has_desc && source->outputs[output].has_desc) entry.desc = source->outputs[output].desc;
  source->users.push_back(op);
  op->Touch();
  return {};
}

Status ConnectOnly(const std::shared_ptr<Operator::Impl>& op, size_t input,
                   const std::shared_ptr<Operator::Impl>& source) {
  if (source->outputs.size() == 1) return Connect(op, input, source, 0);
  return Invalid(fmt::format("{} has {} outputs", source->text(), source->outputs.size()), "parameter src_oprt",
                 "say which one, by name or index");
}

Status ConnectNamed(const std::shared_ptr<Operator::Impl>& op, size_t input,
                    const std::shared_ptr<Operator::Impl>& source, const char* name) {
  if (name == nullptr) return NullArgument("name");
  const size_t output = source->FindOutput(name);
  return output == Prototype::kNone ? NoOutput(*source, name) : Connect(op, input, source, output);
}

}  // namespace

// ---- Impl ----

Operator::Impl::Impl(std::string own_name, std::string own_type)
    : name(std::move(own_name)), type(std::move(own_type)) {
  prototype = FindPrototype(type);
  if (prototype == nullptr) {
    auto none = std::make_shared<Prototype>();
    none->type = type;
    prototype = std::move(none);
    has_own_prototype_ = true;
  }
  Fill();
  Touch();
}

void Operator::Impl::Fill() {
  for (const Prototype::Operand& operand : prototype->inputs) {
    const bool is_one = operand.kind != OperandKind::kDynamic;
    input_counts.push_back(is_one ? 1 : 0);
    if (is_one) inputs.push_back({operand.name, {}, false, nullptr, 0});
  }
  for (const Prototype::Operand& operand : prototype->outputs) {
    const bool is_one = operand.kind != OperandKind::kDynamic;
    output_counts.push_back(is_one ? 1 : 0);
    if (is_one) outputs.push_back({operand.name, {}, false});
  }
  for (const Prototype::Attribute& attribute : prototype->attributes) {
    if (attribute.value.index() != 0) attributes.emplace(attribute.name, attribute.value);
  }
}

void Operator::Impl::Touch() { changed = last_change.fetch_add(1, std::memory_order_relaxed) + 1; }
uint64_t LastChange() { return last_change.load(std::memory_order_relaxed); }

size_t Operator::Impl::FirstInput(size_t operand) const {
  size_t first = 0;
  for (size_t i = 0; i < operand; ++i) first += input_counts[i];
  return first;
}
size_t Operator::Impl::FirstOutput(size_t operand) const {
  size_t first = 0;
  for (size_t i = 0; i < operand; ++i) first += output_counts[i];
  return first;
}
size_t Operator::Impl::FindInput(std::string_view input_name) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == input_name) return i;
  }
  return Prototype::kNone;
}
size_t Operator::Impl::FindOutput(std::string_view output_name) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == output_name) return i;
  }
  return Prototype::kNone;
}

Prototype& Operator::Impl::Edit() {
  if (!has_own_prototype_) prototype = std::make_shared<Prototype>(*prototype);
  has_own_prototype_ = true;
  return const_cast<Prototype&>(*prototype);  // this operator's own
}

std::string Operator::Impl::text() const { return fmt::format("operator {} ({})", name, type); }

bool ComesBefore(const Operator::Impl& first, const Operator::Impl& then) {
  if (&first == &then) return true;
  if (first.users.empty()) return false;
  std::unordered_set<const Operator::Impl*> seen;
  std::vector<const Operator::Impl*> waiting = {&then};
  while (!waiting.empty()) {
    const Operator::Impl* op = waiting.back();
    waiting.pop_back();
    if (op == &first) return true;
    if (!seen.insert(op).second) continue;
    for (const Operator::Impl::Input& input : op->inputs) {
      if (input.source) waiting.push_back(input.source.get());
    }
    for (const auto& before : op->after) waiting.push_back(before.get());
  }
  return false;
}

const Tensor* ConstantOf(const Operator::Impl& op, size_t input) {
  const auto& source = op.inputs[input].source;
  if (source == nullptr || (source->type != "Const" && source->type != "Constant")) return nullptr;
  const auto found = source->attributes.find("value");
  return found == source->attributes.end() ? nullptr : std::get_if<Tensor>(&found->second);
}

// ---- Operator ----

Operator::Operator() = default;
Operator::Operator(const char* type) : Operator(nullptr, type) {}
Operator::Operator(const AscendString& name, const AscendString& type) : Operator(name.GetString(), type.GetString()) {}
Operator::Operator(const char* name, const char* type) {
  if (type == nullptr || *type == 0) return;
  static std::atomic<uint64_t> numbers{0};
  impl_ = std::make_shared<Impl>(
      name != nullptr && *name != 0 ? std::string(name) : fmt::format("{}_{}", type, numbers.fetch_add(1)), type);
}
Operator::Operator(const Operator& other) = default;
Operator::Operator(Operator&& other) noexcept = default;
Operator& Operator::operator=(const Operator& other) = default;
Operator& Operator::operator=(Operator&& other) noexcept = default;
Operator::~Operator() = default;

bool Operator::IsEmpty() const { return impl_ == nullptr; }
graphStatus Operator::GetName(AscendString& name) const {
  return Answer("ge::Operator::GetName", [&]() -> Status {
    if (!impl_) return Empty();
    name = AscendString(impl_->name.c_str());
    return {};
  });
}
graphStatus Operator::GetOpType(AscendString& type) const {
  return Answer("ge::Operator::GetOpType", [&]() -> Status {
    if (!impl_) return Empty();
    type = AscendString(impl_->type.c_str());
    return {};
  });
}

namespace {

// An edge to the input of a name or an index; `connect(input)` makes it.
template <class Connection>
void SetEdge(const std::shared_ptr<Operator::Impl>& op, const char* name, const std::shared_ptr<Operator::Impl>& source,
             Connection connect) {
  Answer("ge::Operator::SetInput", [&]() -> Status {
    if (!op || !source) return Empty();
    if (name == nullptr) return NullArgument("dst_name");
    const size_t input = op->FindInput(name);
    return input == Prototype::kNone ? NoInput(*op, name) : connect(input);
  });
}

template <class Connection>
void SetEdge(const std::shared_ptr<Operator::Impl>& op, uint32_t index, const std::shared_ptr<Operator::Impl>& source,
             Connection connect) {
  Answer("ge::Operator::SetInput", [&]() -> Status {
    if (!op || !source) return Empty();
    return index >= op->inputs.size() ? NoIndex(*op, "input", index, op->inputs.size()) : connect(index);
  });
}

}  // namespace

Operator& Operator::SetInput(const char* dst_name, const Operator& src_oprt) {
  SetEdge(impl_, dst_name, src_oprt.impl_, [&](size_t input) { return ConnectOnly(impl_, input, src_oprt.impl_); });
  return *this;
}
Operator& Operator::SetInput(const char* dst_name, const Operator& src_oprt, const char* name) {
  SetEdge(impl_, dst_name, src_oprt.impl_,
          [&](size_t input) { return ConnectNamed(impl_, input, src_oprt.impl_, name); });
  return *this;
}
Operator& Operator::SetInput(const char* dst_name, const Operator& src_oprt, const AscendString& name) {
  return SetInput(dst_name, src_oprt, name.GetString());
}
Operator& Operator::SetInput(const char* dst_name, const Operator& src_oprt, uint32_t index) {
  SetEdge(impl_, dst_name, src_oprt.impl_, [&](size_t input) { return Connect(impl_, input, src_oprt.impl_, index); });
  return *this;
}
Operator& Operator::SetInput(uint32_t dst_index, const Operator& src_oprt, uint32_t src_index) {
  SetEdge(impl_, dst_index, src_oprt.impl_,
          [&](size_t input) { return Connect(impl_, input, src_oprt.impl_, src_index); });
  return *this;
}
Operator& Operator::SetInput(uint32_t dst_index, const Operator& src_oprt, const char* name) {
  SetEdge(impl_, dst_index, src_oprt.impl_,
          [&](size_t input) { return ConnectNamed(impl_, input, src_oprt.impl_, name); });
  return *this;
}

Operator& Operator::AddControlInput(const Operator& src_oprt) {
  Answer("ge::Operator::AddControlInput", [&]() -> Status {
    if (!impl_ || !src_oprt.impl_) return Empty();
    if (ComesBefore(*impl_, *src_oprt.impl_)) {
      return Invalid(fmt::format("{} would wait for itself, by way of {}", impl_->text(), src_oprt.impl_->text()),
                     "parameter src_oprt", "loops are While operators with a subgraph");
    }
    impl_->after.push_back(src_oprt.impl_);
    src_oprt.impl_->users.push_back(impl_);
    impl_->Touch();
    return {};
  });
  return *this;
}

void Operator::BreakConnect() const {
  if (!impl_) return;
  for (Impl::Input& input : impl_->inputs) input.source = nullptr;
  impl_->after.clear();
  for (const std::weak_ptr<Impl>& weak : impl_->users) {
    const std::shared_ptr<Impl> user = weak.lock();
    if (!user) continue;
    for (Impl::Input& input : user->inputs) {
      if (input.source == impl_) input.source = nullptr;
    }
    user->after.erase(std::remove(user->after.begin(), user->after.end(), impl_), user->after.end());
    user->Touch();
  }
  impl_->users.clear();
  impl_->Touch();
}

graphStatus Operator::GetInputConstData(const char* dst_name, Tensor& data) const {
  return Answer("ge::Operator::GetInputConstData", [&]() -> Status {
    if (!impl_) return Empty();
    if (dst_name == nullptr) return NullArgument("dst_name");
    const size_t input = impl_->FindInput(dst_name);
    if (input == Prototype::kNone) return NoInput(*impl_, dst_name);
    const Tensor* value = ConstantOf(*impl_, input);
    if (value == nullptr) {
      return Invalid(fmt::format("the input {} of {} is no constant", dst_name, impl_->text()), "parameter dst_name",
                     "its value is known when the graph runs", GRAPH_FAILED);
    }
    data = *value;
    return {};
  });
}

// ---- Descriptions ----

size_t Operator::GetInputsSize() const { return impl_ ? impl_->inputs.size() : 0; }
size_t Operator::GetOutputsSize() const { return impl_ ? impl_->outputs.size() : 0; }
TensorDesc Operator::GetInputDesc(uint32_t index) const {
  return impl_ && index < impl_->inputs.size() ? impl_->inputs[index].desc : TensorDesc();
}
TensorDesc Operator::GetOutputDesc(uint32_t index) const {
  return impl_ && index < impl_->outputs.size() ? impl_->outputs[index].desc : TensorDesc();
}
TensorDesc Operator::GetInputDescByName(const char* name) const {
  TensorDesc desc;
  (void)TryGetInputDesc(name, desc);
  return desc;
}
TensorDesc Operator::GetOutputDescByName(const char* name) const {
  TensorDesc desc;
  Answer("ge::Operator::GetOutputDescByName", [&]() -> Status {
    if (!impl_) return Empty();
    if (name == nullptr) return NullArgument("name");
    const size_t output = impl_->FindOutput(name);
    if (output == Prototype::kNone) return NoOutput(*impl_, name);
    desc = impl_->outputs[output].desc;
    return {};
  });
  return desc;
}
graphStatus Operator::TryGetInputDesc(const char* name, TensorDesc& tensor_desc) const {
  return Answer("ge::Operator::TryGetInputDesc", [&]() -> Status {
    if (!impl_) return Empty();
    if (name == nullptr) return NullArgument("name");
    const size_t input = impl_->FindInput(name);
    if (input == Prototype::kNone) return NoInput(*impl_, name);
    tensor_desc = impl_->inputs[input].desc;
    return {};
  });
}

graphStatus Operator::UpdateInputDesc(const char* name, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateInputDesc", [&]() -> Status {
    if (!impl_) return Empty();
    if (name == nullptr) return NullArgument("name");
    const size_t input = impl_->FindInput(name);
    if (input == Prototype::kNone) return NoInput(*impl_, name);
    impl_->inputs[input].desc = tensor_desc;
    impl_->inputs[input].has_desc = true;
    impl_->Touch();
    return {};
  });
}
graphStatus Operator::UpdateInputDesc(uint32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateInputDesc", [&]() -> Status {
    if (!impl_) return Empty();
    if (index >= impl_->inputs.size()) return NoIndex(*impl_, "input", index, impl_->inputs.size());
    impl_->inputs[index].desc = tensor_desc;
    impl_->inputs[index].has_desc = true;
    impl_->Touch();
    return {};
  });
}
graphStatus Operator::UpdateOutputDesc(const char* name, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateOutputDesc", [&]() -> Status {
    if (!impl_) return Empty();
    if (name == nullptr) return NullArgument("name");
    const size_t output = impl_->FindOutput(name);
    if (output == Prototype::kNone) return NoOutput(*impl_, name);
    impl_->outputs[output].desc = tensor_desc;
    impl_->outputs[output].has_desc = true;
    impl_->Touch();
    return {};
  });
}
graphStatus Operator::UpdateOutputDesc(uint32_t index, const TensorDesc& tensor_desc) {
  return Answer("ge::Operator::UpdateOutputDesc", [&]() -> Status {
    if (!impl_) return Empty();
    if (index >= impl_->outputs.size()) return NoIndex(*impl_, "output", index, impl_->outputs.size());
    impl_->outputs[index].desc = tensor_desc;
    impl_->outputs[index].has_desc = true;
    impl_->Touch();
    return {};
  });
}

void Operator::SetInferenceContext(const InferenceContextPtr& inference_context) {
  if (impl_) impl_->context = inference_context;
}
InferenceContextPtr Operator::GetInferenceContext() const { return impl_ ? impl_->context : nullptr; }

}  // namespace ge
