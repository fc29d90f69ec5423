// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu_kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/full.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zero.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
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
  if (made.dim() == 1 && made.numel() == 0) {
    result.zero_();  // the CPU has no use for it, such as for statistics of a batch that is only normalised
    return;
  }
  // Statistics of a batch have the type of the weights, or a wider one.
  const bool same_type = made.scalar_type() == result.scalar_type() ||
                         (c10::isReducedFloatingType(made.scalar_type()) && result.scalar_type() == at::kFloat);
  TORCH_CHECK(made.sizes() == result.sizes() && same_type, traits_.name, " made ", made.toString(), " of sizes ",
              made.sizes(), " where its Meta kernel had announced ", result.toString(), " of sizes ", result.sizes());
  result.copy_(made);
}

// ---- Types -------------------------------------------------------------------------------------------------------

namespace {

// Elements of all tensors up to which a kernel is tried with their own sizes.
constexpr int64_t kMostTried = int64_t{1} << 20;
// Sizes up to which element-wise kernels are tried.
constexpr int64_t kMostTriedSize = 2;

class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// What chooses the code of a kernel: types, texts, flags, and integers, which may be types.
void AddChoice(const c10::IValue& value, std::string& key) {
  if (value.isTensor() || value.isList()) {
    key += value.isList() ? '[' : 't';
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      key += static_cast<char>('A' + static_cast<int>(tensor.scalar_type()));
      key += tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 'w' : tensor.dim() == 0 ? '0' : 'n';
    });
  } else if (value.isInt()) {
    key += 'i' + std::to_string(std::clamp<int64_t>(value.toInt(), -1, 64));
  } else if (value.isBool()) {
    key += value.toBool() ? 'y' : 'n';
  } else if (value.isString()) {
    key += '"' + value.toStringRef() + '"';
  } else {
    key += value.isNone() ? '-' : value.isComplexDouble() ? 'c' : value.isDouble() ? 'd' : '?';
  }
}

// The message of a kernel without code for the types; "" where it has some, or where nobody can tell.
std::string TryKernel(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments, bool is_small) {
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  const KernelScope scope;
  NoWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&quiet);
  try {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (static_cast<int>(i) == traits.generator) {
        stack.emplace_back(at::detail::createCPUGenerator());
      } else if (arguments[i].isDevice()) {
        stack.emplace_back(c10::Device(c10::kCPU));
      } else {
        stack.push_back(WithTensors(arguments[i], [&](const at::Tensor& tensor) {
          if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
          std::vector<int64_t> sizes = tensor.sizes().vec();
          for (int64_t& size : sizes) size = is_small ? std::min(size, kMostTriedSize) : size;
          // Ones, which divide; zeros where the numbers may be indices.
          const bool may_be_index = tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
          return at::full(sizes, may_be_index ? 0 : 1, at::TensorOptions(tensor.scalar_type()).device(c10::kCPU));
        }));
      }
    }
    traits.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("not implemented for '") != std::string::npos) return text;
  } catch (const std::exception&) {  // such as memory that is used up: the call itself will say so
  }
  return {};
}

}  // namespace

void CheckKernelTypes(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  // Kernels of others may do more than compute.
  if (traits.op.operator_name().name.rfind("aten::", 0) != 0) return;
  if (!traits.has_cpu || (traits.draws && traits.generator < 0)) return;
  int64_t elements = 0;
  bool any = false;
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(&traits));
  for (const c10::IValue& value : arguments) {
    AddChoice(value, key);
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      any = true;
      elements += tensor.numel();
    });
  }
  if (!any) return;
  static std::mutex mutex;
  static auto* const answers = new std::unordered_map<std::string, std::string>;
  std::string refusal;
  {
    const std::lock_guard lock(mutex);
    if (const auto known = answers->find(key); known != answers->end()) {
      if (known->second.empty()) return;
      refusal = known->second;
    }
  }
  if (refusal.empty()) {
    const bool is_small = traits.is_pointwise;
    if (!is_small && elements > kMostTried) return;
    refusal = TryKernel(traits, arguments, is_small);
    const std::lock_guard lock(mutex);
    answers->emplace(std::move(key), refusal);
    if (refusal.empty()) return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, traits.name, ": ", refusal,
                              ": on npu the kernel of the CPU does this, which does ",
                              "not take these types; convert to others first, such as float32");
}

}  // namespace torch_npu
