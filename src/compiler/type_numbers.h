// SPDX-License-Identifier: Apache-2.0
//
// Numbers of aclDataType that the compiler itself looks at.
#pragma once

#include <cstdint>

namespace reprise::compiler {

inline constexpr int32_t kFloatNumber = 0;
inline constexpr int32_t kInt32Number = 3;
inline constexpr int32_t kInt64Number = 9;

}  // namespace reprise::compiler
