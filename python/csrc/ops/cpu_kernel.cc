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
      place_(StackOfLaunch()),
      shapes_(place_.empty() ? std::string() : ShapesText(arguments_, results_)) {}

namespace {

// A tensor that a kernel may leave otherwise than whoever reads the memory of the device sees it.
struct Before {
  at::Tensor tensor;
  bool is_written, is_conj, is_neg;
  c10::DimVector sizes, strides;  // of those that are written
};

using AllBefore = c10::SmallVector<Before, 4>;

AllBefore Note(const OpTraits& traits, const torch::jit::Stack& arguments) {
  AllBefore all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    // Results that an out form takes come behind the arguments of the schema.
    const bool is_written = i >= traits.is_written.size() || traits.is_written[i];
    ForEachTensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!is_written && !tensor.is_complex()) return;
      Before& before = all.emplace_back(Before{tensor, is_written, tensor.is_conj(), tensor.is_neg(), {}, {}});
      if (!is_written) return;
      before.sizes = tensor.sizes();
      before.strides = tensor.strides();
    });
  }
  return all;
}

// Kernels may mark complex tensors as to be conjugated or negated by who reads them: does now what they leave for
// later.
void Settle(const Before& before) {
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

// Kernels may give what they write strides of their own, which neither whoever reads the memory of the device sees nor
// the next replay: moves the values to where they belong.
void PutBack(const Before& before) {
  if (before.tensor.sizes() != before.sizes || before.tensor.strides() == before.strides) return;
  const at::Tensor values = at::clone(before.tensor);
  before.tensor.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes, before.strides);
  before.tensor.copy_(values);
}

}  // namespace

void CpuKernel::Run(uint64_t seed) {
  const KernelScope scope;
  torch::jit::Stack stack(arguments_);
  const AllBefore all = Note(traits_, stack);
  if (traits_.generator >= 0) {
    stack[static_cast<size_t>(traits_.generator)] = at::detail::createCPUGenerator(seed);
  }
  try {
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error& error) {  // without the frames of C++, which nobody asked for
    throw std::runtime_error(error.what_without_backtrace());
  }
  for (const Before& before : all) {
    if (before.tensor.is_complex()) Settle(before);
  }
  for (const Before& before : all) {
    if (before.is_written) PutBack(before);
  }
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

// ---- Types ----

namespace {

// Elements of all tensors, and numbers among the arguments, up to which a kernel is tried.
constexpr int64_t kMostTried = int64_t{1} << 20;
// What sizes are cut to first, and how much more the next time, until a kernel says something. Equal ones stay equal,
// and so do ones that repeat; a window, a place or a number of groups may ask for more than two.
constexpr int64_t kFirstSize = 2;
constexpr int64_t kNextSize = 4;
constexpr int64_t kOwnSizes = INT64_MAX;

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

// The generator of the host, which kernels draw from that take none, as it was.
class KeepsHostGenerator {
 public:
  explicit KeepsHostGenerator(bool keeps) {
    if (!keeps) return;
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
  }
  ~KeepsHostGenerator() {
    if (!before_.defined()) return;
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  KeepsHostGenerator(const KeepsHostGenerator&) = delete;
  KeepsHostGenerator& operator=(const KeepsHostGenerator&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor before_;
};

struct Trial {
  bool is_known = false;  // the kernel ran, or refused the types
  std::string refusal;    // "": it takes them
};

// A call on the host with sizes cut to `most_size`.
Trial TryKernel(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments, int64_t most_size) {
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  const KernelScope scope;
  NoWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&quiet);
  const KeepsHostGenerator keeps(traits.draws && traits.generator < 0);
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
          for (int64_t& size : sizes) size = std::min(size, most_size);
          // Ones, which divide; zeros where the numbers may be indices.
          const bool may_be_index = tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
          return at::full(sizes, may_be_index ? 0 : 1, at::TensorOptions(tensor.scalar_type()).device(c10::kCPU));
        }));
      }
    }
    traits.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    return {true, {}};
  } catch (const c10::Error& error) {
    std::string text = error.what_without_backtrace();
    if (text.find("not implemented for '") != std::string::npos) return {true, std::move(text)};
  } catch (const std::exception&) {  // such as memory that is used up: the call itself will say so
  }
  return {};
}

// Elements of all tensors with sizes cut to `most_size`.
int64_t ElementsOf(c10::ArrayRef<c10::IValue> arguments, int64_t most_size) {
  int64_t elements = 0;
  for (const c10::IValue& value : arguments) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      int64_t product = 1;
      for (const int64_t size : tensor.sizes()) product *= std::min(size, most_size);
      elements += product;
    });
  }
  return elements;
}

// Numbers that a kernel could make a large result of: sizes, counts.
bool HasLargeNumbers(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isInt() && value.toInt() > kMostTried) return true;
    if (!value.isIntList()) continue;
    double product = 1;
    for (const int64_t number : value.toIntVector()) product *= static_cast<double>(std::max<int64_t>(number, 1));
    if (product > static_cast<double>(kMostTried)) return true;
  }
  return false;
}

Trial TrySizes(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  if (!traits.is_pointwise) {
    if (HasLargeNumbers(arguments)) return {};
    if (ElementsOf(arguments, kOwnSizes) <= kMostTried) return TryKernel(traits, arguments, kOwnSizes);
  }
  for (int64_t size = kFirstSize; ElementsOf(arguments, size) <= kMostTried; size *= kNextSize) {
    Trial trial = TryKernel(traits, arguments, size);
    if (trial.is_known || traits.is_pointwise) return trial;
  }
  return {};
}

}  // namespace

void CheckKernelTypes(const OpTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  // Kernels of others may do more than compute.
  if (traits.op.operator_name().name.rfind("aten::", 0) != 0 || !traits.has_cpu) return;
  bool any = false;
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(&traits));
  for (const c10::IValue& value : arguments) {
    AddChoice(value, key);
    ForEachTensor(value, [&](const at::Tensor&) { any = true; });
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
    Trial trial = TrySizes(traits, arguments);
    if (!trial.is_known) return;  // other sizes may tell
    refusal = std::move(trial.refusal);
    const std::lock_guard lock(mutex);
    answers->emplace(std::move(key), refusal);
    if (refusal.empty()) return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, traits.name, ": ", refusal,
                              ": on npu the kernel of the CPU does this, which does ",
                              "not take these types; convert to others first, such as float32");
}

}  // namespace torch_npu
