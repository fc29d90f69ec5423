// SPDX-License-Identifier: Apache-2.0
#include "ge/prototype.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/mutex.h"
#include "opdef/graph_op.h"

namespace ge {
namespace {

namespace opdef = reprise::opdef;

struct Structure {
  const char* type;
  const char* inputs;
  const char* outputs;
  const char* attributes;
  const char* subgraphs;
};

constexpr Structure kStructures[] = {
#define REPRISE_STRUCTURE(type, inputs, outputs, attributes, subgraphs) {#type, inputs, outputs, attributes, subgraphs},
#include "ge/generated/structures.def"
#undef REPRISE_STRUCTURE
};

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return words;
}

// "x", "x?", "x[]".
Prototype::Operand OperandOf(std::string word) {
  if (word.ends_with("[]")) return {word.substr(0, word.size() - 2), OperandKind::kDynamic};
  if (word.ends_with("?")) return {word.substr(0, word.size() - 1), OperandKind::kOptional};
  return {std::move(word), OperandKind::kRequired};
}

// "index:Int=0", "value:Tensor!", "text:String=''".
Prototype::Attribute AttributeOf(const std::string& word) {
  static const std::map<std::string, std::string> kinds = {{"Int", "VT_INT"},
                                                           {"String", "VT_STRING"},
                                                           {"Type", "VT_DATA_TYPE"},
                                                           {"Tensor", "VT_TENSOR"},
                                                           {"Ints", "VT_LIST_INT"}};
  const size_t colon = word.find(':');
  const size_t end = word.find_first_of("!?=", colon);
  Prototype::Attribute attribute;
  attribute.name = word.substr(0, colon);
  attribute.kind = kinds.at(word.substr(colon + 1, end - colon - 1));
  attribute.is_required = word[end] == '!';
  if (word[end] == '=') {
    if (attribute.kind == "VT_INT") attribute.value = static_cast<int64_t>(std::strtoll(&word[end + 1], nullptr, 10));
    if (attribute.kind == "VT_STRING") attribute.value = AscendString("");
  }
  return attribute;
}

Prototype::Attribute AttributeOf(const opdef::AttributeDef& def) {
  Prototype::Attribute attribute;
  attribute.name = def.name;
  attribute.is_required = def.is_required;
  AttributeData value;
  switch (def.kind) {
    case opdef::AttributeKind::kBool: value = def.number != 0; break;
    case opdef::AttributeKind::kInt: value = def.number; break;
    case opdef::AttributeKind::kFloat: value = static_cast<float>(def.real); break;
    case opdef::AttributeKind::kString: value = AscendString(def.text.data(), def.text.size()); break;
    case opdef::AttributeKind::kType: value = static_cast<DataType>(def.number); break;
    case opdef::AttributeKind::kInts: value = std::vector<int64_t>(def.entries.begin(), def.entries.end()); break;
    case opdef::AttributeKind::kBools: value = std::vector<bool>(def.entries.begin(), def.entries.end()); break;
    case opdef::AttributeKind::kFloats: value = std::vector<float>(); break;
    case opdef::AttributeKind::kTensor: value = Tensor(); break;
  }
  attribute.kind = KindWordOf(value);
  if (def.has_default) attribute.value = std::move(value);
  return attribute;
}

Prototype::Operand OperandOf(const opdef::Operand& operand) {
  return {std::string(operand.name), operand.is_list()       ? OperandKind::kDynamic
                                     : operand.is_optional() ? OperandKind::kOptional
                                                             : OperandKind::kRequired};
}

std::shared_ptr<const Prototype> Make(const opdef::GraphOp& row) {
  auto prototype = std::make_shared<Prototype>();
  prototype->type = row.type;
  for (const opdef::Operand& operand : row.inputs) prototype->inputs.push_back(OperandOf(operand));
  for (const opdef::Operand& operand : row.outputs) {
    if (!operand.is_unnamed()) prototype->outputs.push_back(OperandOf(operand));
  }
  for (const opdef::AttributeDef& def : row.attributes) prototype->attributes.push_back(AttributeOf(def));
  return prototype;
}

std::shared_ptr<const Prototype> Make(const Structure& structure) {
  auto prototype = std::make_shared<Prototype>();
  prototype->type = structure.type;
  for (std::string& word : SplitList(structure.inputs)) prototype->inputs.push_back(OperandOf(std::move(word)));
  for (std::string& word : SplitList(structure.outputs)) prototype->outputs.push_back(OperandOf(std::move(word)));
  for (const std::string& word : SplitList(structure.attributes)) prototype->attributes.push_back(AttributeOf(word));
  for (const std::string& word : SplitList(structure.subgraphs)) {
    const Prototype::Operand named = OperandOf(word);
    prototype->subgraphs.push_back({named.name, named.kind == OperandKind::kDynamic});
  }
  return prototype;
}

// What has been asked for, and what the program registered.
struct Registry {
  reprise::Mutex mutex;
  std::map<std::string, std::shared_ptr<const Prototype>, std::less<>> prototypes REPRISE_GUARDED_BY(mutex);
  std::map<std::string, std::function<Operator(const AscendString&)>, std::less<>> creators REPRISE_GUARDED_BY(mutex);
  std::map<std::string, InferShapeFunc, std::less<>> infer REPRISE_GUARDED_BY(mutex);
  std::map<std::string, VerifyFunc, std::less<>> verify REPRISE_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static auto* registry = new Registry;  // programs register, and ask, until the end of the process
  return *registry;
}

template <class Value>
Value FindIn(std::map<std::string, Value, std::less<>> Registry::*member, std::string_view type) {
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  const auto& map = registry.*member;
  const auto found = map.find(type);
  return found != map.end() ? found->second : Value();
}

template <class Value>
void Keep(std::map<std::string, Value, std::less<>> Registry::*member, const std::string& type, Value value) {
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  (registry.*member)[type] = std::move(value);
}

}  // namespace

size_t Prototype::FindInput(std::string_view name) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == name) return i;
  }
  return kNone;
}

size_t Prototype::FindOutput(std::string_view name) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == name) return i;
  }
  return kNone;
}

const Prototype::Attribute* Prototype::FindAttribute(std::string_view name) const {
  for (const Attribute& attribute : attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

std::shared_ptr<const Prototype> FindPrototype(std::string_view type) {
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  if (const auto known = registry.prototypes.find(type); known != registry.prototypes.end()) return known->second;
  std::shared_ptr<const Prototype> made;
  for (const Structure& structure : kStructures) {
    if (type == structure.type) made = Make(structure);
  }
  if (made == nullptr) {
    const opdef::GraphOp* row = opdef::FindGraphOp(type);
    if (row == nullptr) return nullptr;
    made = Make(*row);
  }
  registry.prototypes.emplace(type, made);
  return made;
}

std::vector<std::string> AllTypes() {
  std::set<std::string> types;
  for (const Structure& structure : kStructures) types.insert(structure.type);
  for (const opdef::GraphOp& row : opdef::GraphOps()) types.emplace(row.type);
  Registry& registry = TheRegistry();
  const reprise::MutexLock lock(registry.mutex);
  for (const auto& [type, creator] : registry.creators) types.insert(type);
  return {types.begin(), types.end()};
}

Status RegisterCreator(std::string type, const std::function<Operator(const AscendString&)>& creator) {
  if (type.empty() || !creator) return NullArgument(type.empty() ? "operator_type" : "creator");
  if (FindPrototype(type) != nullptr) {
    return Invalid(fmt::format("the operator type {} is one of the library", type), "parameter operator_type",
                   "choose another name", GRAPH_FAILED);
  }
  Keep(&Registry::creators, type, creator);
  return {};
}
Status RegisterInfer(const std::string& type, InferShapeFunc func) {
  if (type.empty() || !func) return NullArgument(type.empty() ? "operator_type" : "func");
  Keep(&Registry::infer, type, std::move(func));
  return {};
}
Status RegisterVerify(const std::string& type, VerifyFunc func) {
  if (type.empty() || !func) return NullArgument(type.empty() ? "operator_type" : "func");
  Keep(&Registry::verify, type, std::move(func));
  return {};
}
std::function<Operator(const AscendString&)> CreatorOf(std::string_view type) {
  return FindIn(&Registry::creators, type);
}
InferShapeFunc InferOf(std::string_view type) { return FindIn(&Registry::infer, type); }
VerifyFunc VerifyOf(std::string_view type) { return FindIn(&Registry::verify, type); }

}  // namespace ge
