// SPDX-License-Identifier: Apache-2.0
#include "ops/op_attributes.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "base/json_text.h"
#include "runtime/objects.h"
#include "runtime/report.h"

namespace reprise::ops {
namespace {

std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(int64_t value) { return fmt::format("{}", value); }
std::string Text(float value) {  // JSON has no word for those that are no numbers
  return std::isfinite(value) ? fmt::format("{}", value) : fmt::format("\"{}\"", value);
}
std::string Text(const std::string& value) { return fmt::format("\"{}\"", JsonEscape(value)); }
std::string Text(DataTypeValue value) { return fmt::format("{}", value.number); }
template <class T>
std::string Text(const std::vector<T>& values) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ", ";
    if constexpr (std::is_same_v<T, bool>) {
      out += Text(static_cast<bool>(value));
    } else {
      out += Text(value);
    }
  }
  return out + "]";
}

}  // namespace

HandleTable<Attributes, HandleKind::kOpAttributes>& AttributeSets() {
  return TheTable<Attributes, HandleKind::kOpAttributes>();
}

StatusOr<void*> CreateAttributes() {
  auto attributes = std::make_unique<Attributes>();
  void* handle = AttributeSets().Insert(attributes.get());
  if (handle == nullptr) {
    return Error(kOutOfHostMemory, "the process has too many attribute sets")
        .Culprit(fmt::format("{} live attribute sets", AttributeSets().live()))
        .Hint("destroy those that are no longer needed with aclopDestroyAttr");
  }
  (void)attributes.release();  // the table holds it
  return handle;
}

Status DestroyAttributes(const void* handle) {
  if (handle == nullptr) return {};
  const std::unique_ptr<Attributes> attributes(AttributeSets().Erase(handle));
  if (attributes != nullptr) return {};
  return runtime::FindObject(AttributeSets(), handle, "aclopAttr").status();
}

StatusOr<Attributes*> FindAttributes(const void* handle) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(handle, "attr"));
  return runtime::FindObject(AttributeSets(), handle, "aclopAttr");
}

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
  return std::visit([](const auto& alternative) { return Text(alternative); }, value);
}

}  // namespace reprise::ops
