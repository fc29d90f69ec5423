// SPDX-License-Identifier: Apache-2.0
//
// What kernels of the CPU find wrong with their arguments, and Meta kernels do not look for: found at the call, not
// when the task runs.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

namespace torch_npu {

/// Throws what is wrong. Looks at types, sizes and strides alone, never at values.
using ArgumentCheck = void (*)(c10::ArrayRef<c10::IValue> arguments);

/// For an operator and its forms with out= and in place; null: nothing to look for. `name`: without "aten::" and
/// overload.
ArgumentCheck FindCheck(std::string_view name);

}  // namespace torch_npu
