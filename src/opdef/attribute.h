// SPDX-License-Identifier: Apache-2.0
//
// Attributes of operators that are called or compiled by their type: what a value may be, and sets of them by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace reprise::opdef {

/// An aclDataType, told apart from the integers.
struct DataTypeValue {
  int32_t number;
  friend bool operator==(DataTypeValue, DataTypeValue) = default;
};

using AttributeValue = std::variant<bool, int64_t, float, std::string, DataTypeValue, std::vector<bool>,
                                    std::vector<int64_t>, std::vector<float>, std::vector<std::string>,
                                    std::vector<DataTypeValue>, std::vector<std::vector<int64_t>>>;

/// Threads: thread-compatible.
using Attributes = std::map<std::string, AttributeValue, std::less<>>;

}  // namespace reprise::opdef
