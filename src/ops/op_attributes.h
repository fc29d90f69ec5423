// SPDX-License-Identifier: Apache-2.0
//
// Attributes: what stands behind aclopAttr*, the attributes of an operator that is called by its type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/handle_table.h"
#include "base/status.h"

namespace reprise::ops {

/// An aclDataType, told apart from the integers.
struct DataTypeValue {
  int32_t number;
  friend bool operator==(DataTypeValue, DataTypeValue) = default;
};

using AttributeValue = std::variant<bool, int64_t, float, std::string, DataTypeValue, std::vector<bool>,
                                    std::vector<int64_t>, std::vector<float>, std::vector<std::string>,
                                    std::vector<DataTypeValue>, std::vector<std::vector<int64_t>>>;

/// Most entries of a list, and of a list of lists in all.
inline constexpr int64_t kMaxAttributeEntries = int64_t{1} << 20;

/// Threads: thread-compatible.
using Attributes = std::map<std::string, AttributeValue, std::less<>>;

HandleTable<Attributes, HandleKind::kOpAttributes>& AttributeSets();

/// 200000 when the process has too many.
StatusOr<void*> CreateAttributes();
/// Null is fine; 107017 for anything else that is not live.
Status DestroyAttributes(const void* handle);
/// 100000 for null, 107017 for anything else that is not live.
StatusOr<Attributes*> FindAttributes(const void* handle);

/// "list of integers" …
const char* KindNameOf(const AttributeValue& value);
/// As JSON.
std::string AttributeText(const AttributeValue& value);

}  // namespace reprise::ops
