// SPDX-License-Identifier: Apache-2.0
//
// How an operator runs that has no kernel of its own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_npu {

/// As a boxed kernel: the kernel of the device that native.cc names, or that of the CPU, on the current stream.
void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace torch_npu
