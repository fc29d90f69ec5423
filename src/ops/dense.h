// SPDX-License-Identifier: Apache-2.0
//
// Row-major views of operands, of the type that a kernel wants: the operand itself where it is that already, else a
// copy in the workspace, made by a launch before the kernel and, of results, brought back by one behind it. For kernels
// that walk their operands in an order of their own, and more than once.
//
//   const Dense x = DenseInput(call, call.Get("self"), type);
//   const Dense y = DenseOutput(call, call.outputs[0], type);
//   Launch& launch = call.AddLaunch(Run);
//   y.Write(call, launch);
//   x.Read(call, launch);
//   y.Store(call);
#pragma once

#include "ops/op_call.h"

namespace reprise::ops {

/// Threads: as OpCall.
struct Dense {
  const Operand* operand = nullptr;  ///< null: an optional one that is absent
  kernels::TensorRef ref;
  bool is_temporary = false;

  /// The next of the launch's refs.
  void Read(const OpCall& call, Launch& launch) const;
  void Write(const OpCall& call, Launch& launch) const;
  /// Brings back what kernels wrote.
  void Store(OpCall& call) const;
};

/// What arithmetic on `type` is done in: float64 for that, float32 for the other floating types.
kernels::DType WideFloatOf(kernels::DType type);

Dense DenseInput(OpCall& call, const Operand& operand, kernels::DType type);
Dense DenseInput(OpCall& call, const Operand* operand, kernels::DType type);
/// \param view  of the operand's memory, with dims in another order or repeated ones
Dense DenseInput(OpCall& call, const Operand& operand, const kernels::TensorRef& view, kernels::DType type);
/// \param keeps  a kernel reads it, or leaves some of it as it is
Dense DenseOutput(OpCall& call, const Operand& operand, kernels::DType type, bool keeps = false);
Dense DenseOutput(OpCall& call, const Operand* operand, kernels::DType type, bool keeps = false);
/// Memory of the workspace alone.
Dense DenseTemporary(OpCall& call, kernels::DType type, std::span<const int64_t> sizes);

/// The data of operand i in this run.
template <class T>
T* DataOf(const Launch& launch, size_t i, const Launch::KernelMemory& memory) {
  return launch.HasOperand(i) ? static_cast<T*>(launch.Ref(i, memory).data) : nullptr;
}

}  // namespace reprise::ops
