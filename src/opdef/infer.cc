// SPDX-License-Identifier: Apache-2.0
#include "opdef/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json_text.h"

namespace reprise::opdef {
namespace {

constexpr const char* kCountDims = "count dims from 0, or from -1 at the end";

bool Fits(AttributeKind kind, const AttributeValue& value) {
  const auto* integer = std::get_if<int64_t>(&value);
  switch (kind) {
    case AttributeKind::kBool:
      return std::holds_alternative<bool>(value) || (integer != nullptr && (*integer | 1) == 1);
    case AttributeKind::kInt:
    case AttributeKind::kType: return integer != nullptr || std::holds_alternative<DataTypeValue>(value);
    case AttributeKind::kFloat: return integer != nullptr || std::holds_alternative<float>(value);
    case AttributeKind::kString: return std::holds_alternative<std::string>(value);
    case AttributeKind::kInts: return std::holds_alternative<std::vector<int64_t>>(value);
    case AttributeKind::kBools: return std::holds_alternative<std::vector<bool>>(value);
    case AttributeKind::kFloats:
      return std::holds_alternative<std::vector<float>>(value) || std::holds_alternative<std::vector<int64_t>>(value);
    case AttributeKind::kTensor: return false;  // the compiler reads it itself
  }
  return false;
}

const char* WordsOf(AttributeKind kind) {
  constexpr std::array kWords = {
      "a boolean",          "an integer",         "a float",  "a text",          "a data type",
      "a list of integers", "a list of booleans", "a tensor", "a list of floats"};
  return kWords[static_cast<size_t>(kind)];
}

// Names and types of the inputs against the row.
Status CheckInputs(InferContext& call) {
  const InferTensor* of_variable[4] = {};
  for (size_t i = 0; i < call.op.inputs.size(); ++i) {
    const Operand& operand = call.op.inputs[i];
    std::vector<InferTensor>& tensors = call.inputs[i];
    for (size_t n = 0; n < tensors.size(); ++n) {
      InferTensor& tensor = tensors[n];
      if (tensor.name.empty()) {
        tensor.name = operand.is_list() ? fmt::format("{}[{}]", operand.name, n) : std::string(operand.name);
      }
      if (tensor.dtype == -1) continue;
      if (!operand.types().Has(tensor.dtype)) {
        return call.WrongInput(tensor, fmt::format("is {}, which the operator does not take", TypeName(tensor.dtype)),
                               "use one of " + operand.types().text());
      }
      if (operand.variable == 0) continue;
      const InferTensor*& first = of_variable[operand.variable - 'T'];
      if (first == nullptr) first = &tensor;
      if (first->dtype == tensor.dtype) continue;
      return call.WrongInput(
          tensor, fmt::format("is {}, but {} is {}", TypeName(tensor.dtype), first->name, TypeName(first->dtype)),
          "cast one of them to the type of the other");
    }
    if (operand.is_list() || tensors.size() == 1 || (tensors.empty() && operand.is_optional())) continue;
    return call.WrongInputs(fmt::format("there are {} tensors for {}", tensors.size(), operand.name),
                            "pass one: " + InputsText(call.op));
  }
  return {};
}

int32_t PromotedType(const InferContext& call) {
  auto type = kernels::DType::kUndefined;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.op.inputs[i].is_value()) continue;
    for (const InferTensor& tensor : call.inputs[i]) {
      const auto own = static_cast<kernels::DType>(tensor.dtype);
      type = type == kernels::DType::kUndefined || type == own ? own : kernels::Promote(type, own);
    }
  }
  return static_cast<int32_t>(type);
}

// The type of an output, as far as the row says it.
Status SetType(InferContext& call, const Operand& operand, InferResult& result) {
  switch (operand.source) {
    case TypeSource::kPlain: result.dtype = operand.types().only(); break;
    case TypeSource::kInput: {
      const auto& tensors = call.inputs[static_cast<size_t>(operand.like)];
      if (!tensors.empty()) result.dtype = tensors[0].dtype;
      break;
    }
    case TypeSource::kVariable:
      for (size_t i = 0; i < call.inputs.size() && result.dtype == -1; ++i) {
        if (call.op.inputs[i].variable == operand.variable && !call.inputs[i].empty())
          result.dtype = call.inputs[i][0].dtype;
      }
      break;
    case TypeSource::kAttribute: {
      const AttributeDef& attribute = call.op.attributes[static_cast<size_t>(operand.attribute)];
      if (!call.HasAttribute(attribute.name) && !attribute.has_default) {
        result.dtype = result.wanted;
        break;
      }
      const int64_t number = call.Int(attribute.name);
      if (attribute.kind == AttributeKind::kType && number == 28) break;  // the rule says
      result.dtype = number < 0 || number > 63 || !operand.types().Has(static_cast<int32_t>(number))
                         ? -1
                         : static_cast<int32_t>(number);
      if (result.dtype != -1) break;
      return call.WrongAttribute(attribute.name, fmt::format("is {}, which is no type that can be written", number),
                                 "set it to the aclDataType of the output");
    }
    case TypeSource::kPromoted: result.dtype = PromotedType(call); break;
    case TypeSource::kRule: break;
  }
  return {};
}

// Types, and the shapes of outputs that are like an input.
Status PrepareOutputs(InferContext& call) {
  const auto first_list = [&]() -> size_t {
    for (size_t i = 0; i < call.op.inputs.size(); ++i) {
      if (call.op.inputs[i].is_list()) return call.inputs[i].size();
    }
    return 0;
  };
  for (size_t i = 0; i < call.op.outputs.size(); ++i) {
    const Operand& operand = call.op.outputs[i];
    std::vector<InferResult>& results = call.outputs[i];
    const bool follows = operand.like >= 0;
    const std::vector<InferTensor>* like = follows ? &call.inputs[static_cast<size_t>(operand.like)] : nullptr;
    if (operand.is_list()) {
      results.resize(follows ? like->size() : std::max(results.size(), first_list()));
    } else {
      results.resize(1);
    }
    for (size_t n = 0; n < results.size(); ++n) {
      REPRISE_RETURN_IF_ERROR(SetType(call, operand, results[n]));
      if (!follows) continue;
      const bool is_there = n < like->size();
      REPRISE_RETURN_IF_ERROR(call.Set(results[n], is_there ? (*like)[n].shape : Shape{0}));
      if (operand.is_ref() && is_there) results[n].dtype = (*like)[n].dtype;
    }
  }
  return {};
}

// The type that the user gave against the one found out.
Status CheckType(const InferContext& call, size_t index, InferResult& result) {
  if (result.dtype == -1) result.dtype = result.wanted;
  if (result.wanted == -1 || result.wanted == result.dtype) return {};
  const Operand& operand = call.op.outputs[index];
  std::string_view source = "the result";
  if (operand.source == TypeSource::kVariable) {
    for (size_t i = call.inputs.size(); i-- > 0;) {
      if (call.op.inputs[i].variable == operand.variable && !call.inputs[i].empty()) source = call.inputs[i][0].name;
    }
  }
  if (operand.source == TypeSource::kAttribute)
    source = call.op.attributes[static_cast<size_t>(operand.attribute)].name;
  return call.WrongOutput(index,
                          fmt::format("is {}, but {} is {}", TypeName(result.wanted), source, TypeName(result.dtype)),
                          fmt::format("create the descriptor with the type of {}", source));
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(int64_t value) { return fmt::format("{}", value); }
std::string ValueText(float value) {  // JSON has no word for those that are no numbers
  return std::isfinite(value) ? fmt::format("{}", value) : fmt::format("\"{}\"", value);
}
std::string ValueText(const std::string& value) { return fmt::format("\"{}\"", JsonEscape(value)); }
std::string ValueText(DataTypeValue value) { return fmt::format("{}", value.number); }
template <class T>
std::string ValueText(const std::vector<T>& values) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ", ";
    if constexpr (std::is_same_v<T, bool>) {
      out += ValueText(static_cast<bool>(value));
    } else {
      out += ValueText(value);
    }
  }
  return out + "]";
}

}  // namespace

// ---- Attributes ----

const char* KindNameOf(const AttributeValue& value) {
  constexpr const char* kNames[] = {"boolean",
                                    "integer",
                                    "float",
                                    "text",
                                    "data type",
                                    "list of booleans",
                                    "list of integers",
                                    "list of floats",
                                    "list of texts",
                                    "list of data types",
                                    "list of integer lists"};
  static_assert(std::size(kNames) == std::variant_size_v<AttributeValue>);
  return kNames[value.index()];
}

std::string AttributeText(const AttributeValue& value) {
  return std::visit([](const auto& alternative) { return ValueText(alternative); }, value);
}

namespace {

// C++ turns a text into true where a caller passes it to the function that sets booleans, which frameworks do for texts
// that are the default; what it was is not known.
bool IsLostText(const AttributeDef& attribute, const AttributeValue& value) {
  const auto* flag = std::get_if<bool>(&value);
  return attribute.kind == AttributeKind::kString && attribute.has_default && flag != nullptr && *flag;
}

}  // namespace

Status CheckAttributes(const GraphOp& op, const Attributes* attributes, std::string_view missing_hint) {
  const InferContext call(op);  // for messages
  static const Attributes kNone;
  for (const auto& entry : attributes != nullptr ? *attributes : kNone) {
    const std::string& name = entry.first;
    if (name.starts_with('_')) continue;  // notes between compilers, without a meaning of their own
    const AttributeDef* attribute = op.FindAttribute(name);
    if (attribute == nullptr) {
      return call.WrongAttribute(name, "is no attribute of the operator",
                                 op.attributes.empty() ? std::string("the operator has none: pass no attributes")
                                                       : "use these: " + AttributesText(op));
    }
    if (Fits(attribute->kind, entry.second) || IsLostText(*attribute, entry.second)) continue;
    return call.WrongAttribute(name,
                               fmt::format("is set as {}, {}", KindNameOf(entry.second), AttributeText(entry.second)),
                               fmt::format("set it as {}", WordsOf(attribute->kind)));
  }
  for (const AttributeDef& attribute : op.attributes) {
    if (!attribute.is_required || attribute.kind == AttributeKind::kTensor) continue;
    if (attributes != nullptr && attributes->find(attribute.name) != attributes->end()) continue;
    return call.WrongAttribute(attribute.name, "is not set, but has no default", std::string(missing_hint));
  }
  return {};
}

const AttributeValue* InferContext::FindAttribute(std::string_view name) const {
  if (attributes == nullptr) return nullptr;
  const auto found = attributes->find(name);
  return found != attributes->end() ? &found->second : nullptr;
}

bool InferContext::HasAttribute(std::string_view name) const { return FindAttribute(name) != nullptr; }

bool InferContext::Bool(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  if (value == nullptr) return op.FindAttribute(name)->number != 0;
  const auto* integer = std::get_if<int64_t>(value);
  return integer != nullptr ? *integer != 0 : std::get<bool>(*value);
}

int64_t InferContext::Int(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  if (value == nullptr) return op.FindAttribute(name)->number;
  const auto* type = std::get_if<DataTypeValue>(value);
  return type != nullptr ? type->number : std::get<int64_t>(*value);
}

double InferContext::Real(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  if (value == nullptr) return op.FindAttribute(name)->real;
  const auto* integer = std::get_if<int64_t>(value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<float>(*value);
}

std::string InferContext::Text(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : std::string(op.FindAttribute(name)->text);
}

std::vector<int64_t> InferContext::Ints(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  if (value != nullptr) {
    const auto* const flags = std::get_if<std::vector<bool>>(value);
    if (flags != nullptr) return {flags->begin(), flags->end()};
    return std::get<std::vector<int64_t>>(*value);
  }
  const std::span<const int64_t> entries = op.FindAttribute(name)->entries;
  return {entries.begin(), entries.end()};
}

std::vector<double> InferContext::Reals(std::string_view name) const {
  const AttributeValue* value = FindAttribute(name);
  if (value == nullptr) return {};
  if (const auto* const integers = std::get_if<std::vector<int64_t>>(value))
    return {integers->begin(), integers->end()};
  const auto& reals = std::get<std::vector<float>>(*value);
  return {reals.begin(), reals.end()};
}

// ---- Operands ----

size_t InferContext::IndexOf(std::string_view name) const {
  const auto found =
      std::find_if(op.inputs.begin(), op.inputs.end(), [&](const Operand& operand) { return operand.name == name; });
  return static_cast<size_t>(found - op.inputs.begin());
}

bool InferContext::Has(std::string_view name) const {
  const size_t index = IndexOf(name);
  return index < inputs.size() && !inputs[index].empty();
}

const InferTensor& InferContext::In(std::string_view name) const { return inputs[IndexOf(name)][0]; }

const InferTensor& InferContext::First() const {
  return (*std::find_if(inputs.begin(), inputs.end(), [](const auto& tensors) { return !tensors.empty(); }))[0];
}

std::span<const InferTensor> InferContext::List(std::string_view name) const { return inputs[IndexOf(name)]; }

InferResult& InferContext::Out(std::string_view name) {
  const auto found =
      std::find_if(op.outputs.begin(), op.outputs.end(), [&](const Operand& operand) { return operand.name == name; });
  return outputs[static_cast<size_t>(found - op.outputs.begin())][0];
}

const std::vector<Dim>* InferContext::Value(std::string_view name) const {
  if (Has(name)) return In(name).value.has_value() ? &*In(name).value : nullptr;
  const AttributeDef* const def = IndexOf(name) < op.inputs.size() ? nullptr : op.FindAttribute(name);
  if (def == nullptr || (!HasAttribute(name) && !def->has_default)) return nullptr;
  const std::vector<int64_t> given = def->kind == AttributeKind::kInts ? Ints(name) : std::vector<int64_t>{Int(name)};
  return &given_.insert_or_assign(name, std::vector<Dim>(given.begin(), given.end())).first->second;
}

StatusOr<Dim> InferContext::ValueInt(std::string_view name) const {
  const std::vector<Dim>* value = Value(name);
  if (value == nullptr) return Dim::Unknown();
  if (value->size() == 1) return (*value)[0];
  return Wrong(name, fmt::format("has {} numbers", value->size()), "pass one number");
}

StatusOr<std::optional<int64_t>> InferContext::Number(std::string_view name) const {
  REPRISE_ASSIGN_OR_RETURN(const Dim dim, ValueInt(name));
  return dim.is_number() ? std::optional<int64_t>(dim.number()) : std::optional<int64_t>();
}

std::optional<std::vector<int64_t>> InferContext::Numbers(std::string_view name) const {
  const std::vector<Dim>* value = Value(name);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Dim& dim : *value) {
    if (!dim.is_number()) return std::nullopt;
    numbers.push_back(dim.number());
  }
  return numbers;
}

Status InferContext::Set(InferResult& result, Shape shape) {
  result.shape = std::move(shape);
  result.is_set = true;
  return {};
}

Status InferContext::SetRest(const Shape& shape) {
  for (std::vector<InferResult>& results : outputs) {
    for (InferResult& result : results) {
      if (!result.is_set) REPRISE_RETURN_IF_ERROR(Set(result, shape));
    }
  }
  return {};
}

// ---- Words ----

Status InferContext::WrongInput(const InferTensor& tensor, std::string text, std::string hint) const {
  return Error(kOpInputNotMatch, fmt::format("{}: {} {}", op.type, tensor.name, text))
      .Culprit(tensor.place.empty() ? "input " + tensor.name : tensor.place)
      .Hint(std::move(hint));
}

Status InferContext::WrongInputs(std::string text, std::string hint) const {
  return Error(kOpInputNotMatch, fmt::format("{}: {}", op.type, text))
      .Culprit("parameter inputDesc")
      .Hint(std::move(hint));
}

Status InferContext::WrongOutput(size_t index, std::string text, std::string hint) const {
  return Error(kOpOutputNotMatch, fmt::format("{}: {} {}", op.type, op.outputs[index].name, text))
      .Culprit(fmt::format("parameter outputs[{}]", index))
      .Hint(std::move(hint));
}

Status InferContext::WrongAttribute(std::string_view name, std::string text, std::string hint) const {
  return Error(kOpAttrNotMatch, fmt::format("{}: {} {}", op.type, name, text))
      .Culprit(fmt::format("attribute {}", name))
      .Hint(std::move(hint));
}

Status InferContext::Wrong(std::string_view what, std::string text, std::string hint) const {
  if (!Has(what) && op.FindAttribute(what) != nullptr) return WrongAttribute(what, std::move(text), std::move(hint));
  return WrongInput(In(what), std::move(text), std::move(hint));
}

StatusOr<int64_t> InferContext::WrapDim(std::string_view what, int64_t dim, size_t rank) const {
  const auto limit = rank == 0 ? int64_t{1} : static_cast<int64_t>(rank);
  if (dim >= -limit && dim < limit) return dim < 0 ? dim + limit : dim;
  return Wrong(what, fmt::format("is {}, expected {} to {}", dim, -limit, limit - 1), kCountDims);
}

StatusOr<std::vector<int64_t>> InferContext::WrapDims(std::string_view what, std::span<const int64_t> dims,
                                                      size_t rank) const {
  std::vector<int64_t> wrapped;
  for (const int64_t dim : dims) {
    REPRISE_ASSIGN_OR_RETURN(const int64_t front, WrapDim(what, dim, rank));
    if (std::find(wrapped.begin(), wrapped.end(), front) != wrapped.end()) {
      const std::string list = fmt::format("[{}]", fmt::join(dims, ", "));
      return Wrong(what, fmt::format("{} names dim {} twice", list, front), "name each dim once");
    }
    wrapped.push_back(front);
  }
  return wrapped;
}

Status InferContext::ExpectRank(const InferTensor& tensor, size_t rank) const {
  if (!tensor.shape.has_rank() || tensor.shape.rank() == rank) return {};
  return WrongInput(tensor, fmt::format("has the shape {}, expected {} dims", tensor.shape.text(), rank),
                    fmt::format("pass it with {} dims", rank));
}

Status InferContext::ExpectEqual(const InferTensor& tensor, const Dim& found, const Dim& wanted,
                                 std::string_view what) const {
  if (facts->Unify(found, wanted)) return {};
  return WrongInput(tensor,
                    fmt::format("has the shape {}, whose {} is {}, expected {}", tensor.shape.text(), what,
                                found.text(), wanted.text()),
                    "pass tensors whose sizes agree");
}

Status InferContext::BroadcastWith(const InferTensor& tensor, Shape* shape) const {
  std::optional<Shape> both = Broadcast(*shape, tensor.shape, *facts);
  if (both.has_value()) {
    *shape = *std::move(both);
    return {};
  }
  return WrongInput(
      tensor, fmt::format("has the shape {}, which does not broadcast with {}", tensor.shape.text(), shape->text()),
      "sizes, aligned at the last dim, must be equal or 1");
}

// ---- The whole ----

Status Infer(InferContext& call) {
  REPRISE_RETURN_IF_ERROR(CheckAttributes(call.op, call.attributes, "set it"));
  REPRISE_RETURN_IF_ERROR(CheckInputs(call));
  REPRISE_RETURN_IF_ERROR(PrepareOutputs(call));
  REPRISE_RETURN_IF_ERROR(call.op.infer(call));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    for (InferResult& result : call.outputs[i]) {
      if (!result.is_set) {
        return Error(kInternalError, fmt::format("{}: rule {} leaves {} without a shape", call.op.type, call.op.rule,
                                                 call.op.outputs[i].name))
            .Culprit(fmt::format("operator {}", call.op.type))
            .Hint("report this, with the shapes of the inputs");
      }
      result.shape = call.facts->Simplify(result.shape);
      REPRISE_RETURN_IF_ERROR(CheckType(call, i, result));
    }
  }
  return {};
}

}  // namespace reprise::opdef
