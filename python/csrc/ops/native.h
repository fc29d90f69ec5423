// SPDX-License-Identifier: Apache-2.0
//
// Operators of torch that the device computes with kernels of its own: the operators of libopapi.so, called through
// reprise/operator.h. What those do not take (mixed types, broadcast scalars of the host, …) runs as the CPU kernel.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <reprise/operation.h>

#include <memory>
#include <string>

namespace torch_npu {

struct NativeOp;

/// The row of native.cc for the operator, as far as the device has what it names; null: none. Lives for ever.
const NativeOp* FindNative(const c10::FunctionSchema& schema);

/// Queues the device's own kernels. False, and nothing is done, when they do not take these arguments.
/// \param results  what the operator returns, in order; the elements of lists one by one
bool LaunchNative(const NativeOp& native, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results,
                  const std::shared_ptr<const reprise::OperationInfo>& info);

}  // namespace torch_npu
