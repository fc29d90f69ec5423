// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu_kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zero.h>
#include <c10/util/DimVector.h>

#include <stdexcept>
#include <utility>

#include "ops/kernel_scope.h"
#include "ops/launch.h"
#include "ops/values.h"

namespace torch_npu {

CpuKernel::CpuKernel(const OpTraits& traits, const c10::OperatorHandle& op, torch::jit::Stack arguments,
                     std::vector<at::Tensor> results)
    : traits_(traits),
      op_(op),
      arguments_(std::move(arguments)),
      results_(std::move(results)),
      place_(StackOfLaunch()) {}

namespace {

struct Lazy {
  at::Tensor tensor;
  bool is_conj, is_neg;
};

// Tensors that a kernel may mark as to be conjugated or negated by who reads them, with what they are marked with now.
c10::SmallVector<Lazy, 4> LazyOf(const torch::jit::Stack& arguments) {
  c10::SmallVector<Lazy, 4> all;
  for (const c10::IValue& value : arguments) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (tensor.is_complex()) all.push_back({tensor, tensor.is_conj(), tensor.is_neg()});
    });
  }
  return all;
}

// Whoever reads the memory of the device does not see marks on an alias: does now what they leave for later.
void Settle(const Lazy& before) {
  at::Tensor tensor = before.tensor;
  const bool conjugates = tensor.is_conj() != before.is_conj;
  const bool negates = tensor.is_neg() != before.is_neg;
  if (!conjugates && !negates) return;
  tensor._set_conj(false);
  tensor._set_neg(false);
  if (conjugates) at::conj_physical_(tensor);
  if (negates) tensor.neg_();
  tensor._set_conj(before.is_conj);
  tensor._set_neg(before.is_neg);
}

struct Written {
  at::Tensor tensor;
  c10::DimVector sizes, strides;
};

// Kernels may give what they write strides of their own, which whoever reads the memory of the device does not see, nor
// the next replay: moves the values to where they belong.
void PutBack(const Written& before) {
  if (before.tensor.sizes() != before.sizes || before.tensor.strides() == before.strides) return;
  const at::Tensor values = at::clone(before.tensor);
  before.tensor.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes, before.strides);
  before.tensor.copy_(values);
}

}  // namespace

void CpuKernel::Run(uint64_t seed) {
  const KernelScope scope;
  torch::jit::Stack stack(arguments_);
  const auto lazy = LazyOf(stack);
  c10::SmallVector<Written, 4> written;
  for (size_t i = 0; i < stack.size(); ++i) {
    // Results that an out form takes come behind the arguments of the schema.
    if (i < traits_.is_written.size() && !traits_.is_written[i]) continue;
    ForEachTensor(stack[i], [&](const at::Tensor& tensor) {
      written.push_back({tensor, c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides())});
    });
  }
  if (traits_.generator >= 0) {
    stack[static_cast<size_t>(traits_.generator)] = at::detail::createCPUGenerator(seed);
  }
  try {
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error& error) {  // without the frames of C++, which nobody asked for
    throw std::runtime_error(error.what_without_backtrace());
  }
  for (const Lazy& before : lazy) Settle(before);
  for (const Written& before : written) PutBack(before);
  if (results_.empty()) return;
  size_t next = 0;
  for (const c10::IValue& value : stack) TakeOver(value, next);
}

void CpuKernel::TakeOver(const c10::IValue& value, size_t& next) const {
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) TakeOver(item, next);
  } else {
    TakeOver(value.isTensor() ? value.toTensor() : at::Tensor(), next);
  }
}

void CpuKernel::TakeOver(const at::Tensor& made, size_t& next) const {
  TORCH_CHECK(next < results_.size(), traits_.name, " made more results than its Meta kernel had announced");
  const at::Tensor& result = results_[next++];
  if (!result.defined() || !made.defined()) return;
  if (made.dim() == 1 && made.numel() == 0 && made.scalar_type() == result.scalar_type()) {
    result.zero_();  // the CPU has no use for it, such as for statistics of a batch that is only normalised
    return;
  }
  TORCH_CHECK(made.sizes() == result.sizes() && made.scalar_type() == result.scalar_type(), traits_.name, " made ",
              made.toString(), " of sizes ", made.sizes(), " where its Meta kernel had announced ", result.toString(),
              " of sizes ", result.sizes());
  result.copy_(made);
}

}  // namespace torch_npu
