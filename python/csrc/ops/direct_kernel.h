// SPDX-License-Identifier: Apache-2.0
//
// Operators whose calls are often so small that the CPU kernel's way to its loop takes longer than the loop: the same
// computation, with the same words when it fails, over plain addresses.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <reprise/operation.h>

#include <memory>
#include <string>

namespace torch_npu {

/// Null where these arguments are left to the CPU kernel. `made`: the results, as announced.
using DirectKernel = std::unique_ptr<reprise::Operation> (*)(const std::string& name,
                                                             c10::ArrayRef<c10::IValue> arguments,
                                                             c10::ArrayRef<at::Tensor> made);

/// Of an operator by its name, with that of the overload; null where there is none.
DirectKernel FindDirectKernel(const std::string& name);

}  // namespace torch_npu
