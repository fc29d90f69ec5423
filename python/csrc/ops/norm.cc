// SPDX-License-Identifier: Apache-2.0
//
// Gradients of batch normalisation in 16 bits. The statistics that the forward pass saved are float32, and the CPU
// takes those only with weights of that type.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "ops/fallback.h"

namespace torch_npu {
namespace {

// Among the arguments: weight, running and saved statistics.
constexpr size_t kFirstOfChannels = 2, kEndOfChannels = 7;

void BatchNormBackward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const auto tensor = [&](size_t i) {
    const c10::IValue& value = (*stack)[first + i];
    return value.isTensor() ? value.toTensor() : at::Tensor();
  };
  const at::Tensor input = tensor(1), weight = tensor(2);
  bool is_wider = false;
  for (size_t i = kFirstOfChannels; i < kEndOfChannels; ++i) {
    is_wider |= tensor(i).defined() && tensor(i).scalar_type() == at::kFloat;
  }
  if (!c10::isReducedFloatingType(input.scalar_type()) || !is_wider) return Fallback(op, keys, stack);
  for (size_t i = kFirstOfChannels; i < kEndOfChannels; ++i) {
    if (tensor(i).defined()) (*stack)[first + i] = tensor(i).to(at::kFloat);
  }
  Fallback(op, keys, stack);
  const at::ScalarType type = weight.defined() ? weight.scalar_type() : input.scalar_type();
  for (size_t i = 1; i < 3; ++i) {  // the gradients of weight and bias among the results
    if (tensor(i).defined()) (*stack)[first + i] = tensor(i).to(type);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm_backward", torch::CppFunction::makeFromBoxedFunction<&BatchNormBackward>());
}

}  // namespace
}  // namespace torch_npu
