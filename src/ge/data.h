// SPDX-License-Identifier: Apache-2.0
//
// What is behind the classes of tensors and attributes, and how functions of all classes fail.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "graph/attr_value.h"
#include "graph/tensor.h"
#include "graph/types.h"
#include "opdef/attribute.h"
#include "runtime/report.h"

namespace ge {

using reprise::Error;
using reprise::Status;
using reprise::StatusOr;

/// Body of a function that answers a graphStatus; see runtime::Api.
template <class Body>
graphStatus Answer(const char* api, Body body) {
  return static_cast<graphStatus>(reprise::runtime::Api(api, body));
}

/// GRAPH_NULL_PTR naming the parameter.
Status NullArgument(const char* parameter);
/// GRAPH_PARAM_INVALID, or another number.
Status Invalid(std::string what, std::string culprit, std::string hint, graphStatus number = GRAPH_PARAM_INVALID);

struct AscendString::Text {
  std::string text;
};

struct Shape::Impl {
  std::vector<int64_t> dims;
};

struct TensorDesc::Impl {
  std::vector<int64_t> dims;
  DataType type = DT_FLOAT;
  Format format = FORMAT_ND;
  Placement placement = kPlacementHost;
  std::optional<std::vector<int64_t>> origin_dims;
  std::optional<Format> origin_format;
  std::vector<std::pair<int64_t, int64_t>> range;
  std::string name;
  std::string expand_dims_rule;
  int64_t size = 0;
  int64_t real_dims = 0;
  std::optional<uint32_t> reuse_input;
  std::shared_ptr<uint8_t[]> const_data;
  size_t const_bytes = 0;
};

struct Tensor::Impl {
  TensorDesc::Impl desc;
  std::unique_ptr<uint8_t[], DeleteFunc> data{nullptr, [](uint8_t*) {}};
  size_t size = 0;
};

/// The values of attributes, as callers give them; of no kind: not set.
using AttributeData =
    std::variant<std::monostate, int64_t, float, bool, AscendString, DataType, Tensor, TensorDesc, NamedAttrs, OpBytes,
                 std::vector<int64_t>, std::vector<float>, std::vector<bool>, std::vector<AscendString>,
                 std::vector<DataType>, std::vector<Tensor>, std::vector<NamedAttrs>, std::vector<std::vector<int64_t>>,
                 std::vector<std::vector<float>>>;
using AttributeMap = std::map<std::string, AttributeData, std::less<>>;

struct AttrValue::Impl {
  AttributeData data;
};

/// Takes the value of an attribute out, as the type that the caller asked for: integers of all sizes, and types for
/// integers. False where the kind is another, or the number does not fit.
template <class T>
bool TakeValue(const AttributeData& data, T& value);
/// "integer", "list of tensors" …
const char* KindOf(const AttributeData& data);
/// "VT_INT" …
const char* KindWordOf(const AttributeData& data);

/// As the compiler has it; nothing for kinds that it does not have.
std::optional<reprise::opdef::AttributeValue> ToCompiler(const AttributeData& data);
AttributeData FromCompiler(const reprise::opdef::AttributeValue& value);

/// Type, format and shape; DT_UNDEFINED is a type that is not known.
reprise::compiler::Tensor ToCompiler(const TensorDesc& desc);
/// `desc` with type, format and shape of `tensor`; those that follow them follow.
TensorDesc FromCompiler(const reprise::compiler::Tensor& tensor, TensorDesc desc = {});
std::shared_ptr<const reprise::compiler::Constant> ToConstant(const Tensor& tensor);
Tensor FromConstant(const reprise::compiler::Constant& constant);

template <class T>
bool TakeValue(const AttributeData& data, T& value) {
  const T* const held = std::get_if<T>(&data);
  if (held == nullptr) return false;
  value = *held;
  return true;
}
template <>
bool TakeValue(const AttributeData& data, int64_t& value);
template <>
bool TakeValue(const AttributeData& data, int32_t& value);
template <>
bool TakeValue(const AttributeData& data, uint32_t& value);
template <>
bool TakeValue(const AttributeData& data, DataType& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<int64_t>& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<int32_t>& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<uint32_t>& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<DataType>& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<float>& value);
template <>
bool TakeValue(const AttributeData& data, std::vector<bool>& value);

}  // namespace ge
