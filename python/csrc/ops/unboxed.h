// SPDX-License-Identifier: Apache-2.0
//
// Kernels of operators that programs call all the time, under their own signatures. The dispatcher would make a stack
// of values for the kernel that serves all operators (fallback.h); each tensor on it is one more owner, and while a
// tensor has a second one, PyTorch takes the interpreter's lock to count that in its Python object: twice for each
// operand. These kernels describe their arguments as values, too, but borrow the tensors.
#pragma once

#include <string_view>

namespace torch_npu {

/// Whether the operator with that name, without "aten::", has such a kernel.
bool IsUnboxed(std::string_view name);

}  // namespace torch_npu
