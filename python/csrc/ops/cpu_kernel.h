// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernel of an operator as a task of a stream.
#pragma once

#include <ATen/core/stack.h>
#include <reprise/operation.h>

#include <string>
#include <vector>

#include "ops/op_traits.h"

namespace torch_npu {

/// Plain data, and aliases that own no memory: whoever launches it keeps the memory, in the order of the stream. It may
/// run any number of times.
class CpuKernel final : public reprise::Operation {
 public:
  /// `results`: aliases that take over what the kernel makes, one for each tensor that it returns; undefined: nothing
  /// to take over. None at all for kernels that write their arguments.
  CpuKernel(const OpTraits& traits, const c10::OperatorHandle& op, torch::jit::Stack arguments,
            std::vector<at::Tensor> results);

  void Run(uint64_t seed) override;
  reprise::OperationInfo Describe() const override { return {traits_.name, place_, shapes_}; }

 private:
  void TakeOver(const c10::IValue& value, size_t& next) const;
  void TakeOver(const at::Tensor& made, size_t& next) const;

  const OpTraits& traits_;
  c10::OperatorHandle op_;  // traits_.op, or its form with out= arguments
  torch::jit::Stack arguments_;
  std::vector<at::Tensor> results_;
  std::vector<reprise::Frame> place_;
  std::string shapes_;  // empty unless there is a place
};

/// Whether the CPU kernel of an operator has code for the types of these arguments, which nothing but the kernel knows:
/// a call of it on the host tells, with tensors of the same sizes or, where those are large, of sizes that are cut; the
/// answer is remembered for these types. Throws NotImplementedError if it has none. Passes over operators that are not
/// torch's own or make large results of numbers, and over what else such a call finds wrong. Draws from no generator.
///
/// Threads: thread-safe
void CheckKernelTypes(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_npu
