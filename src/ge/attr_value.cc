// SPDX-License-Identifier: Apache-2.0
//
// Values of attributes, and what they are to the compiler.
#include "graph/attr_value.h"

#include <limits>
#include <type_traits>

#include "ge/data.h"

namespace ge {
namespace {

namespace opdef = reprise::opdef;
namespace compiler = reprise::compiler;

template <class T>
bool FitInteger(int64_t number, T& value) {
  if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max()) return false;
  value = static_cast<T>(number);
  return true;
}

template <class T>
bool TakeInteger(const AttributeData& data, T& value) {
  if (const auto* type = std::get_if<DataType>(&data)) return FitInteger(static_cast<int64_t>(*type), value);
  const auto* number = std::get_if<int64_t>(&data);
  return number != nullptr && FitInteger(*number, value);
}

bool IsEmptyList(const AttributeData& data) {
  const auto* list = std::get_if<std::vector<int64_t>>(&data);
  return list != nullptr && list->empty();
}

template <class T>
bool TakeIntegers(const AttributeData& data, std::vector<T>& value) {
  std::vector<T> numbers;
  const auto add = [&](int64_t number) {
    T fitting{};
    if (!FitInteger(number, fitting)) return false;
    numbers.push_back(fitting);
    return true;
  };
  if (const auto* list = std::get_if<std::vector<int64_t>>(&data)) {
    for (const int64_t number : *list) {
      if (!add(number)) return false;
    }
  } else if (const auto* types = std::get_if<std::vector<DataType>>(&data)) {
    for (const DataType type : *types) {
      if (!add(static_cast<int64_t>(type))) return false;
    }
  } else {
    return false;
  }
  value = std::move(numbers);
  return true;
}

// Models do not say what an empty list is a list of: it is one of anything.
template <class T>
bool TakeList(const AttributeData& data, std::vector<T>& value) {
  if (IsEmptyList(data)) {
    value.clear();
    return true;
  }
  const auto* list = std::get_if<std::vector<T>>(&data);
  if (list == nullptr) return false;
  value = *list;
  return true;
}

}  // namespace

template <>
bool TakeValue(const AttributeData& data, int64_t& value) {
  return TakeInteger(data, value);
}
template <>
bool TakeValue(const AttributeData& data, int32_t& value) {
  return TakeInteger(data, value);
}
template <>
bool TakeValue(const AttributeData& data, uint32_t& value) {
  return TakeInteger(data, value);
}
template <>
bool TakeValue(const AttributeData& data, DataType& value) {
  int32_t number = 0;
  if (!TakeInteger(data, number)) return false;
  value = static_cast<DataType>(number);
  return true;
}
template <>
bool TakeValue(const AttributeData& data, std::vector<int64_t>& value) {
  return TakeIntegers(data, value);
}
template <>
bool TakeValue(const AttributeData& data, std::vector<int32_t>& value) {
  return TakeIntegers(data, value);
}
template <>
bool TakeValue(const AttributeData& data, std::vector<uint32_t>& value) {
  return TakeIntegers(data, value);
}
template <>
bool TakeValue(const AttributeData& data, std::vector<DataType>& value) {
  std::vector<int32_t> numbers;
  if (!TakeIntegers(data, numbers)) return false;
  value.clear();
  for (const int32_t number : numbers) value.push_back(static_cast<DataType>(number));
  return true;
}
template <>
bool TakeValue(const AttributeData& data, std::vector<float>& value) {
  return TakeList(data, value);
}
template <>
bool TakeValue(const AttributeData& data, std::vector<bool>& value) {
  return TakeList(data, value);
}

const char* KindOf(const AttributeData& data) {
  constexpr const char* kKinds[] = {"nothing",
                                    "integer",
                                    "float",
                                    "bool",
                                    "text",
                                    "type",
                                    "tensor",
                                    "description",
                                    "function",
                                    "bytes",
                                    "list of integers",
                                    "list of floats",
                                    "list of bools",
                                    "list of texts",
                                    "list of types",
                                    "list of tensors",
                                    "list of functions",
                                    "lists of integers",
                                    "lists of floats"};
  static_assert(std::size(kKinds) == std::variant_size_v<AttributeData>);
  return kKinds[data.index()];
}

const char* KindWordOf(const AttributeData& data) {
  constexpr const char* kWords[] = {"VT_NONE",
                                    "VT_INT",
                                    "VT_FLOAT",
                                    "VT_BOOL",
                                    "VT_STRING",
                                    "VT_DATA_TYPE",
                                    "VT_TENSOR",
                                    "VT_TENSOR_DESC",
                                    "VT_NAMED_ATTRS",
                                    "VT_BYTES",
                                    "VT_LIST_INT",
                                    "VT_LIST_FLOAT",
                                    "VT_LIST_BOOL",
                                    "VT_LIST_STRING",
                                    "VT_LIST_DATA_TYPE",
                                    "VT_LIST_TENSOR",
                                    "VT_LIST_NAMED_ATTRS",
                                    "VT_LIST_LIST_INT",
                                    "VT_LIST_LIST_FLOAT"};
  static_assert(std::size(kWords) == std::variant_size_v<AttributeData>);
  return kWords[data.index()];
}

// ---- The compiler's ----

std::optional<opdef::AttributeValue> ToCompiler(const AttributeData& data) {
  using Result = std::optional<opdef::AttributeValue>;
  return std::visit(
      [](const auto& value) -> Result {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, AscendString>) {
          return std::string(value.GetString(), value.GetLength());
        } else if constexpr (std::is_same_v<T, DataType>) {
          return opdef::DataTypeValue{static_cast<int32_t>(value)};
        } else if constexpr (std::is_same_v<T, std::vector<AscendString>>) {
          std::vector<std::string> texts;
          for (const AscendString& text : value) texts.emplace_back(text.GetString(), text.GetLength());
          return texts;
        } else if constexpr (std::is_same_v<T, std::vector<DataType>>) {
          std::vector<opdef::DataTypeValue> types;
          for (const DataType type : value) types.push_back({static_cast<int32_t>(type)});
          return types;
        } else if constexpr (std::is_constructible_v<opdef::AttributeValue, const T&> && !std::is_same_v<T, OpBytes>) {
          return opdef::AttributeValue(value);
        } else {
          return std::nullopt;
        }
      },
      data);
}

AttributeData FromCompiler(const opdef::AttributeValue& value) {
  return std::visit(
      [](const auto& held) -> AttributeData {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return AscendString(held.data(), held.size());
        } else if constexpr (std::is_same_v<T, opdef::DataTypeValue>) {
          return static_cast<DataType>(held.number);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          std::vector<AscendString> texts;
          for (const std::string& text : held) texts.emplace_back(text.data(), text.size());
          return texts;
        } else if constexpr (std::is_same_v<T, std::vector<opdef::DataTypeValue>>) {
          std::vector<DataType> types;
          for (const opdef::DataTypeValue type : held) types.push_back(static_cast<DataType>(type.number));
          return types;
        } else if constexpr (std::is_constructible_v<AttributeData, const T&>) {
          return AttributeData(held);
        } else {
          return {};
        }
      },
      value);
}

compiler::Tensor ToCompiler(const TensorDesc& desc) {
  compiler::Tensor tensor;
  tensor.dtype = desc.GetDataType() == DT_UNDEFINED ? -1 : static_cast<int32_t>(desc.GetDataType());
  tensor.format = static_cast<int32_t>(desc.GetFormat());
  tensor.shape = opdef::Shape::Of(desc.GetShape().GetDims());
  return tensor;
}

TensorDesc FromCompiler(const compiler::Tensor& tensor, TensorDesc desc) {
  desc.Update(Shape(tensor.shape.has_rank() ? tensor.shape.numbers() : UNKNOWN_RANK),
              static_cast<Format>(tensor.format),
              tensor.dtype < 0 ? DT_UNDEFINED : static_cast<DataType>(tensor.dtype));
  return desc;
}

std::shared_ptr<const compiler::Constant> ToConstant(const Tensor& tensor) {
  auto constant = std::make_shared<compiler::Constant>();
  constant->dtype = static_cast<int32_t>(tensor.GetDataType());
  constant->shape = tensor.GetTensorDesc().GetShape().GetDims();
  if (tensor.GetSize() != 0) constant->bytes.assign(reinterpret_cast<const char*>(tensor.GetData()), tensor.GetSize());
  return constant;
}

Tensor FromConstant(const compiler::Constant& constant) {
  return {TensorDesc(Shape(constant.shape), FORMAT_ND, static_cast<DataType>(constant.dtype)),
          reinterpret_cast<const uint8_t*>(constant.bytes.data()), constant.bytes.size()};
}

// ---- AttrValue ----

AttrValue::AttrValue() : impl_(std::make_shared<Impl>()) {}
AttrValue::AttrValue(const AttrValue& other) : impl_(std::make_shared<Impl>(*other.impl_)) {}
AttrValue& AttrValue::operator=(const AttrValue& other) {
  if (this != &other) impl_ = std::make_shared<Impl>(*other.impl_);
  return *this;
}

#define REPRISE_GE_VALUE(Type)                                                                          \
  graphStatus AttrValue::SetAttrValue(const Type& value) {                                              \
    impl_->data = value;                                                                                \
    return GRAPH_SUCCESS;                                                                               \
  }                                                                                                     \
  graphStatus AttrValue::GetAttrValue(Type& value) const {                                              \
    return Answer("ge::AttrValue::GetAttrValue", [&]() -> Status {                                      \
      if (TakeValue(impl_->data, value)) return {};                                                     \
      return Invalid(fmt::format("the value is of another kind: {}", KindOf(impl_->data)), "the value", \
                     "ask for the kind that it was set with", GRAPH_FAILED);                            \
    });                                                                                                 \
  }
REPRISE_GE_VALUE(int64_t)
REPRISE_GE_VALUE(float)
REPRISE_GE_VALUE(bool)
REPRISE_GE_VALUE(AscendString)
REPRISE_GE_VALUE(DataType)
REPRISE_GE_VALUE(Tensor)
REPRISE_GE_VALUE(TensorDesc)
REPRISE_GE_VALUE(NamedAttrs)
REPRISE_GE_VALUE(OpBytes)
REPRISE_GE_VALUE(std::vector<int64_t>)
REPRISE_GE_VALUE(std::vector<float>)
REPRISE_GE_VALUE(std::vector<bool>)
REPRISE_GE_VALUE(std::vector<AscendString>)
REPRISE_GE_VALUE(std::vector<DataType>)
REPRISE_GE_VALUE(std::vector<Tensor>)
REPRISE_GE_VALUE(std::vector<NamedAttrs>)
REPRISE_GE_VALUE(std::vector<std::vector<int64_t>>)
REPRISE_GE_VALUE(std::vector<std::vector<float>>)
#undef REPRISE_GE_VALUE

// ---- NamedAttrs ----

struct NamedAttrs::Impl {
  AscendString name;
  std::map<AscendString, AttrValue> attributes;
};

NamedAttrs::NamedAttrs() : impl_(std::make_shared<Impl>()) {}
NamedAttrs::NamedAttrs(const NamedAttrs& other) : impl_(std::make_shared<Impl>(*other.impl_)) {}
NamedAttrs& NamedAttrs::operator=(const NamedAttrs& other) {
  if (this != &other) impl_ = std::make_shared<Impl>(*other.impl_);
  return *this;
}
void NamedAttrs::SetName(const AscendString& name) { impl_->name = name; }
graphStatus NamedAttrs::GetName(AscendString& name) const {
  name = impl_->name;
  return GRAPH_SUCCESS;
}
graphStatus NamedAttrs::SetAttr(const AscendString& name, const AttrValue& value) {
  impl_->attributes[name] = value;
  return GRAPH_SUCCESS;
}
graphStatus NamedAttrs::GetAttr(const AscendString& name, AttrValue& value) const {
  return Answer("ge::NamedAttrs::GetAttr", [&]() -> Status {
    const auto found = impl_->attributes.find(name);
    if (found == impl_->attributes.end()) {
      return Invalid(fmt::format("there is no attribute {}", name.GetString()), "parameter name",
                     "GetAttrNames lists those that there are", GRAPH_FAILED);
    }
    value = found->second;
    return {};
  });
}
std::vector<AscendString> NamedAttrs::GetAttrNames() const {
  std::vector<AscendString> names;
  for (const auto& [name, value] : impl_->attributes) names.push_back(name);
  return names;
}

}  // namespace ge
