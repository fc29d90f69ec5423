// SPDX-License-Identifier: Apache-2.0
//
// aclopAttr: each function checks its arguments and sets one value of ops/op_attributes.h.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "acl/acl_op.h"
#include "ops/op_attributes.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace ops = reprise::ops;

namespace {

Status CheckTarget(const aclopAttr* attr, const char* name) {
  REPRISE_RETURN_IF_ERROR(NotNull(attr, "attr"));
  REPRISE_RETURN_IF_ERROR(NotNull(name, "attrName"));
  if (*name != '\0') return {};
  return Error(kInvalidArgument, "attrName is empty")
      .Culprit("parameter attrName")
      .Hint("pass the name of an attribute");
}

Status CheckList(int64_t count, const void* values, const char* count_name, const char* name) {
  if (count < 0 || count > ops::kMaxAttributeEntries) {
    return Error(kInvalidArgument,
                 fmt::format("{} is {}, must be 0 to {}", count_name, count, ops::kMaxAttributeEntries))
        .Culprit(fmt::format("parameter {}", count_name))
        .Hint("pass the number of entries of the list");
  }
  return count == 0 ? Status() : NotNull(values, name);
}

// Sets what make() returns, after the checks that all share.
template <class Make>
aclError Set(const char* api, aclopAttr* attr, const char* name, Make make) noexcept {
  return Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckTarget(attr, name));
    reprise::StatusOr<ops::AttributeValue> value = make();
    if (!value.ok()) return std::move(value).status();
    REPRISE_ASSIGN_OR_RETURN(ops::Attributes * attributes, ops::FindAttributes(attr));
    attributes->insert_or_assign(name, std::move(value).value());
    return {};
  });
}

template <class T, class Source, class Convert>
aclError SetList(const char* api, aclopAttr* attr, const char* name, int count, const Source* values,
                 Convert convert) noexcept {
  return Set(api, attr, name, [&]() -> reprise::StatusOr<ops::AttributeValue> {
    REPRISE_RETURN_IF_ERROR(CheckList(count, values, "numValues", "values"));
    std::vector<T> list;
    list.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) list.push_back(convert(values[i]));
    return ops::AttributeValue(std::move(list));
  });
}

}  // namespace

aclopAttr* aclopCreateAttr(void) {
  void* handle = nullptr;
  Api("aclopCreateAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(handle, ops::CreateAttributes());
    return {};
  });
  return static_cast<aclopAttr*>(handle);
}

void aclopDestroyAttr(const aclopAttr* attr) {
  Api("aclopDestroyAttr", [&] { return ops::DestroyAttributes(attr); });
}

aclError aclopSetAttrBool(aclopAttr* attr, const char* attrName, uint8_t attrValue) {
  return Set("aclopSetAttrBool", attr, attrName, [&] { return ops::AttributeValue(attrValue != 0); });
}

aclError aclopSetAttrInt(aclopAttr* attr, const char* attrName, int64_t attrValue) {
  return Set("aclopSetAttrInt", attr, attrName, [&] { return ops::AttributeValue(attrValue); });
}

aclError aclopSetAttrFloat(aclopAttr* attr, const char* attrName, float attrValue) {
  return Set("aclopSetAttrFloat", attr, attrName, [&] { return ops::AttributeValue(attrValue); });
}

aclError aclopSetAttrString(aclopAttr* attr, const char* attrName, const char* attrValue) {
  return Set("aclopSetAttrString", attr, attrName, [&]() -> reprise::StatusOr<ops::AttributeValue> {
    REPRISE_RETURN_IF_ERROR(NotNull(attrValue, "attrValue"));
    return ops::AttributeValue(std::string(attrValue));
  });
}

aclError aclopSetAttrDataType(aclopAttr* attr, const char* attrName, aclDataType attrValue) {
  return Set("aclopSetAttrDataType", attr, attrName,
             [&] { return ops::AttributeValue(ops::DataTypeValue{static_cast<int32_t>(attrValue)}); });
}

aclError aclopSetAttrListBool(aclopAttr* attr, const char* attrName, int numValues, const uint8_t* values) {
  return SetList<bool>("aclopSetAttrListBool", attr, attrName, numValues, values,
                       [](uint8_t value) { return value != 0; });
}

aclError aclopSetAttrListInt(aclopAttr* attr, const char* attrName, int numValues, const int64_t* values) {
  return SetList<int64_t>("aclopSetAttrListInt", attr, attrName, numValues, values,
                          [](int64_t value) { return value; });
}

aclError aclopSetAttrListFloat(aclopAttr* attr, const char* attrName, int numValues, const float* values) {
  return SetList<float>("aclopSetAttrListFloat", attr, attrName, numValues, values, [](float value) { return value; });
}

aclError aclopSetAttrListString(aclopAttr* attr, const char* attrName, int numValues, const char** values) {
  return Set("aclopSetAttrListString", attr, attrName, [&]() -> reprise::StatusOr<ops::AttributeValue> {
    REPRISE_RETURN_IF_ERROR(CheckList(numValues, values, "numValues", "values"));
    std::vector<std::string> list;
    for (int i = 0; i < numValues; ++i) {
      REPRISE_RETURN_IF_ERROR(NotNull(values[i], fmt::format("values[{}]", i).c_str()));
      list.emplace_back(values[i]);
    }
    return ops::AttributeValue(std::move(list));
  });
}

aclError aclopSetAttrListDataType(aclopAttr* attr, const char* attrName, int numValues, const aclDataType values[]) {
  return SetList<ops::DataTypeValue>("aclopSetAttrListDataType", attr, attrName, numValues, values,
                                     [](aclDataType value) { return ops::DataTypeValue{static_cast<int32_t>(value)}; });
}

aclError aclopSetAttrListListInt(aclopAttr* attr, const char* attrName, int numLists, const int* numValues,
                                 const int64_t* const values[]) {
  return Set("aclopSetAttrListListInt", attr, attrName, [&]() -> reprise::StatusOr<ops::AttributeValue> {
    REPRISE_RETURN_IF_ERROR(CheckList(numLists, numValues, "numLists", "numValues"));
    REPRISE_RETURN_IF_ERROR(CheckList(numLists, values, "numLists", "values"));
    std::vector<std::vector<int64_t>> lists;
    int64_t total = 0;
    for (int i = 0; i < numLists; ++i) {
      const std::string count_name = fmt::format("numValues[{}]", i);
      REPRISE_RETURN_IF_ERROR(
          CheckList(numValues[i], values[i], count_name.c_str(), fmt::format("values[{}]", i).c_str()));
      REPRISE_RETURN_IF_ERROR(CheckList(total += numValues[i], values, "the number of all entries", "values"));
      lists.emplace_back(values[i], values[i] + numValues[i]);
    }
    return ops::AttributeValue(std::move(lists));
  });
}
