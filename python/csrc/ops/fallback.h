// SPDX-License-Identifier: Apache-2.0
//
// How an operator runs that has no kernel of its own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "ops/op_traits.h"

namespace torch_npu {

/// What comes back of arguments that an operator returns: they, or None in their place.
enum class Returned : uint8_t { kAll, kLeftOut };

/// The kernel of the device that native.cc names, or that of the CPU, on the current stream; by its results. The
/// arguments stay the caller's, and none is kept beyond the call but by an owner of its own.
c10::SmallVector<c10::IValue, 4> RunOperator(const c10::OperatorHandle& op, const OpTraits& traits,
                                             c10::ArrayRef<c10::IValue> arguments, Returned returned);

/// The same as a boxed kernel.
void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace torch_npu
