// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/fields.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "compiler/import/import.h"

namespace reprise::compiler {
namespace {

using List = wire::AttrDef::ListValue;

template <class T, class Field>
std::vector<T> VectorOf(const Field& field) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(field.size()));
  for (const auto& value : field) values.push_back(static_cast<T>(value));
  return values;
}

std::vector<opdef::DataTypeValue> TypesOf(const List& list) {
  std::vector<opdef::DataTypeValue> values;
  for (const int64_t number : list.dt()) values.push_back({static_cast<int32_t>(number)});
  return values;
}

std::optional<opdef::AttributeValue> ListOf(const List& list) {
  if (list.i_size() > 0) return VectorOf<int64_t>(list.i());
  if (list.f_size() > 0) return VectorOf<float>(list.f());
  if (list.b_size() > 0) return VectorOf<bool>(list.b());
  if (list.s_size() > 0) return VectorOf<std::string>(list.s());
  if (list.dt_size() > 0) return TypesOf(list);
  if (list.bt_size() + list.td_size() + list.t_size() + list.g_size() + list.na_size() > 0) return std::nullopt;
  switch (list.val_type()) {  // all lists are empty; writers do not always say which one is meant
    case List::VT_LIST_FLOAT: return std::vector<float>{};
    case List::VT_LIST_BOOL: return std::vector<bool>{};
    case List::VT_LIST_STRING: return std::vector<std::string>{};
    case List::VT_LIST_DATA_TYPE: return std::vector<opdef::DataTypeValue>{};
    case List::VT_LIST_NONE:
    case List::VT_LIST_INT: return std::vector<int64_t>{};
    default: return std::nullopt;
  }
}

struct AttrWriter {
  wire::AttrDef& attr;

  void operator()(bool value) const { attr.set_b(value); }
  void operator()(int64_t value) const { attr.set_i(value); }
  void operator()(float value) const { attr.set_f(value); }
  void operator()(const std::string& value) const { attr.set_s(value); }
  void operator()(opdef::DataTypeValue value) const { attr.set_dt(value.number); }
  void operator()(const std::vector<bool>& values) const {
    for (const bool value : values) attr.mutable_list()->add_b(value);
    attr.mutable_list()->set_val_type(List::VT_LIST_BOOL);
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) attr.mutable_list()->add_i(value);
    attr.mutable_list()->set_val_type(List::VT_LIST_INT);
  }
  void operator()(const std::vector<float>& values) const {
    for (const float value : values) attr.mutable_list()->add_f(value);
    attr.mutable_list()->set_val_type(List::VT_LIST_FLOAT);
  }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) attr.mutable_list()->add_s(value);
    attr.mutable_list()->set_val_type(List::VT_LIST_STRING);
  }
  void operator()(const std::vector<opdef::DataTypeValue>& values) const {
    for (const opdef::DataTypeValue value : values) attr.mutable_list()->add_dt(value.number);
    attr.mutable_list()->set_val_type(List::VT_LIST_DATA_TYPE);
  }
  void operator()(const std::vector<std::vector<int64_t>>& lists) const {
    auto& field = *attr.mutable_list_list_int();
    for (const std::vector<int64_t>& list : lists) {
      auto& inner = *field.add_list_list_i();
      for (const int64_t value : list) inner.add_list_i(value);
    }
  }
};

std::vector<int64_t> DimsOf(const wire::TensorDescriptor& desc) {
  return {desc.shape().dim().begin(), desc.shape().dim().end()};
}

}  // namespace

std::string BytesOf(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializePartialToCodedStream(&coded);
  }
  return bytes;
}

Unread Keep(const google::protobuf::MessageLite& message) {
  static const Unread nothing = std::make_shared<const std::string>();
  std::string bytes = BytesOf(message);
  return bytes.empty() ? nothing : std::make_shared<const std::string>(std::move(bytes));
}

std::optional<opdef::AttributeValue> AttributeOf(const wire::AttrDef& attr) {
  switch (attr.value_case()) {
    case wire::AttrDef::kS: return attr.s();
    case wire::AttrDef::kI: return attr.i();
    case wire::AttrDef::kF: return attr.f();
    case wire::AttrDef::kB: return attr.b();
    case wire::AttrDef::kDt: return opdef::DataTypeValue{static_cast<int32_t>(attr.dt())};
    case wire::AttrDef::kList: return ListOf(attr.list());
    case wire::AttrDef::kListListInt: {
      std::vector<std::vector<int64_t>> lists;
      for (const auto& list : attr.list_list_int().list_list_i()) lists.push_back(VectorOf<int64_t>(list.list_i()));
      return lists;
    }
    default: return std::nullopt;
  }
}

wire::AttrDef AttrOf(const opdef::AttributeValue& value) {
  wire::AttrDef attr;
  std::visit(AttrWriter{attr}, value);
  return attr;
}

void StripAttributes(AttrMap& attrs) {
  for (auto attr = attrs.begin(); attr != attrs.end();) {
    const std::optional<opdef::AttributeValue> value = AttributeOf(attr->second);
    const bool is_said = value && BytesOf(AttrOf(*value)) == BytesOf(attr->second);
    attr = is_said ? attrs.erase(attr) : std::next(attr);
  }
}

void WriteAttributes(const opdef::Attributes& attributes, const opdef::Attributes* more, AttrMap& attrs) {
  const auto is_there = [&](const std::string& name) {
    return attributes.find(name) != attributes.end() || (more != nullptr && more->find(name) != more->end());
  };
  for (auto attr = attrs.begin(); attr != attrs.end();) {
    const bool is_gone = !is_there(attr->first) && AttributeOf(attr->second).has_value();
    attr = is_gone ? attrs.erase(attr) : std::next(attr);
  }
  for (const opdef::Attributes* const set : {&attributes, more}) {
    if (set == nullptr) continue;
    for (const auto& [name, value] : *set) {
      const auto kept = attrs.find(name);
      if (kept == attrs.end() || AttributeOf(kept->second) != value) attrs[name] = AttrOf(value);
    }
  }
}

Tensor TensorOf(const wire::TensorDescriptor& desc) {
  Tensor tensor;
  tensor.dtype = TypeOfProto(desc.dtype());
  tensor.shape = opdef::Shape::Of(DimsOf(desc));
  if (const auto found = desc.attr().find(kFormatAttribute); found != desc.attr().end()) {
    tensor.format = static_cast<int32_t>(found->second.i());
  } else if (const int32_t format = FormatOfName(desc.layout()); format >= 0) {
    tensor.format = format;
  }
  return tensor;
}

bool HasOpenType(const wire::TensorDescriptor& desc) {
  return desc.dtype() == wire::DT_FLOAT && desc.attr().count("_fx_tensor_name") == 0;
}

void StripTensor(wire::TensorDescriptor& desc) {
  const Tensor tensor = TensorOf(desc);
  if (tensor.dtype >= 0) desc.clear_dtype();
  if (desc.shape().dim_size() == 0 || tensor.shape.numbers() != DimsOf(desc)) return;
  desc.mutable_shape()->clear_dim();
  if (desc.shape().ByteSizeLong() == 0) desc.clear_shape();
}

void WriteTensor(const Tensor& tensor, bool completes, wire::TensorDescriptor& desc) {
  const Tensor said = TensorOf(desc);
  if (tensor.dtype >= 0 && said.dtype != tensor.dtype && (completes || desc.dtype() != wire::DT_UNDEFINED)) {
    desc.set_dtype(static_cast<wire::DataType>(ProtoOfType(tensor.dtype)));
  }
  const std::vector<int64_t> dims = tensor.shape.numbers();
  if ((completes || desc.has_shape()) && said.shape.numbers() != dims) {
    desc.mutable_shape()->mutable_dim()->Assign(dims.begin(), dims.end());
  }
  const bool says_format = !desc.layout().empty() || desc.attr().count(kFormatAttribute) > 0;
  if ((completes || says_format) && said.format != tensor.format) {
    desc.set_layout(std::string(FormatName(tensor.format)));
    wire::AttrDef format;
    format.set_i(tensor.format);
    (*desc.mutable_attr())[kFormatAttribute] = format;
  }
}

}  // namespace reprise::compiler
