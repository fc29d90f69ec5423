// SPDX-License-Identifier: Apache-2.0
//
// Operators: attributes.
#include <limits>

#include "ge/operator_impl.h"
#include "graph/operator.h"

namespace ge {
namespace {

template <class T>
AttributeData DataOf(const T& value) {
  if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_same_v<T, std::vector<int32_t>> || std::is_same_v<T, std::vector<uint32_t>>) {
    return std::vector<int64_t>(value.begin(), value.end());
  } else {
    return value;
  }
}

void SetAttribute(const std::shared_ptr<Operator::Impl>& op, const char* name, AttributeData data) {
  Answer("ge::Operator::SetAttr", [&]() -> Status {
    if (!op) return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
    if (name == nullptr) return NullArgument("name");
    op->attributes.insert_or_assign(name, std::move(data));
    op->Touch();
    return {};
  });
}

StatusOr<const AttributeData*> FindAttribute(const std::shared_ptr<Operator::Impl>& op, const char* name) {
  if (!op) return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
  if (name == nullptr) return NullArgument("name");
  const auto found = op->attributes.find(std::string_view(name));
  if (found != op->attributes.end()) return &found->second;
  return Invalid(fmt::format("{} has no attribute {}", op->text(), name), "parameter name",
                 "set it first; attributes of the prototype with a default are there from the start", GRAPH_FAILED);
}

template <class T>
graphStatus GetAttribute(const std::shared_ptr<Operator::Impl>& op, const char* name, T& value) {
  return Answer("ge::Operator::GetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const AttributeData* data, FindAttribute(op, name));
    if (TakeValue(*data, value)) return {};
    return Invalid(
        fmt::format("the attribute {} of {} is of another kind, or does not fit: {}", name, op->text(), KindOf(*data)),
        "parameter attr_value", "pass a variable of the attribute's kind", GRAPH_FAILED);
  });
}

}  // namespace

#define REPRISE_GE_ATTRIBUTE(Type, Passed)                                  \
  Operator& Operator::SetAttr(const char* name, Passed attr_value) {        \
    SetAttribute(impl_, name, DataOf<Type>(attr_value));                    \
    return *this;                                                           \
  }                                                                         \
  graphStatus Operator::GetAttr(const char* name, Type& attr_value) const { \
    return GetAttribute(impl_, name, attr_value);                           \
  }
REPRISE_GE_ATTRIBUTE(int64_t, int64_t)
REPRISE_GE_ATTRIBUTE(int32_t, int32_t)
REPRISE_GE_ATTRIBUTE(uint32_t, uint32_t)
REPRISE_GE_ATTRIBUTE(float, float)
REPRISE_GE_ATTRIBUTE(bool, bool)
REPRISE_GE_ATTRIBUTE(DataType, DataType)
REPRISE_GE_ATTRIBUTE(std::vector<int64_t>, const std::vector<int64_t>&)
REPRISE_GE_ATTRIBUTE(std::vector<int32_t>, const std::vector<int32_t>&)
REPRISE_GE_ATTRIBUTE(std::vector<uint32_t>, const std::vector<uint32_t>&)
REPRISE_GE_ATTRIBUTE(std::vector<float>, const std::vector<float>&)
REPRISE_GE_ATTRIBUTE(std::vector<bool>, const std::vector<bool>&)
REPRISE_GE_ATTRIBUTE(std::vector<DataType>, const std::vector<DataType>&)
REPRISE_GE_ATTRIBUTE(std::vector<std::vector<int64_t>>, const std::vector<std::vector<int64_t>>&)
REPRISE_GE_ATTRIBUTE(std::vector<std::vector<float>>, const std::vector<std::vector<float>>&)
REPRISE_GE_ATTRIBUTE(OpBytes, const OpBytes&)
REPRISE_GE_ATTRIBUTE(Tensor, const Tensor&)
REPRISE_GE_ATTRIBUTE(std::vector<Tensor>, const std::vector<Tensor>&)
REPRISE_GE_ATTRIBUTE(NamedAttrs, const NamedAttrs&)
REPRISE_GE_ATTRIBUTE(std::vector<NamedAttrs>, const std::vector<NamedAttrs>&)
REPRISE_GE_ATTRIBUTE(AscendString, const AscendString&)
REPRISE_GE_ATTRIBUTE(std::vector<AscendString>, const std::vector<AscendString>&)
#undef REPRISE_GE_ATTRIBUTE

Operator& Operator::SetAttr(const char* name, std::initializer_list<int64_t>&& attr_value) {
  SetAttribute(impl_, name, std::vector<int64_t>(attr_value));
  return *this;
}
Operator& Operator::SetAttr(const char* name, const char* attr_value) {
  return SetAttr(name, AscendString(attr_value));
}
Operator& Operator::SetAttr(const char* name, const AttrValue& attr_value) {
  SetAttribute(impl_, name, attr_value.impl_->data);
  return *this;
}
Operator& Operator::SetAttr(const char* name, AttrValue&& attr_value) {  // NOLINT: a value, copied
  return SetAttr(name, static_cast<const AttrValue&>(attr_value));
}
graphStatus Operator::GetAttr(const char* name, AttrValue& attr_value) const {
  return Answer("ge::Operator::GetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const AttributeData* data, FindAttribute(impl_, name));
    attr_value.impl_->data = *data;
    return {};
  });
}

graphStatus Operator::GetAllIrAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const {
  return Answer("ge::Operator::GetAllIrAttrNamesAndTypes", [&]() -> Status {
    if (!impl_) return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
    attr_name_types.clear();
    for (const Prototype::Attribute& attribute : impl_->prototype->attributes) {
      attr_name_types.emplace(attribute.name.c_str(), attribute.kind.c_str());
    }
    return {};
  });
}
graphStatus Operator::GetAllAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const {
  return Answer("ge::Operator::GetAllAttrNamesAndTypes", [&]() -> Status {
    if (!impl_) return Invalid("the operator is empty", "the operator", "make it with a name and a type", GRAPH_FAILED);
    attr_name_types.clear();
    for (const auto& [name, data] : impl_->attributes) attr_name_types.emplace(name.c_str(), KindWordOf(data));
    return {};
  });
}

}  // namespace ge
