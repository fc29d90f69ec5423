// SPDX-License-Identifier: Apache-2.0
//
// Every operator without a kernel of its own: the CPU kernel of torch runs as a task of the current stream, over
// aliases of the device's memory. What it will return is asked of the Meta kernel first, so that mistakes in shapes and
// types are found at the call and results can be allocated before anything runs.
//
//     kView         returns a part of an argument        at once; no data is touched
//     kAsync        writes arguments, or makes results   queued, or recorded
//     kSynchronous  its result depends on data           waits for the stream; refused in captures
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Generator.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/runtime.h"
#include "device/stream.h"
#include "ops/alias.h"
#include "ops/kernel_scope.h"
#include "ops/launch.h"
#include "ops/tensors.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

using c10::IValue;
using torch::jit::Stack;

enum class Kind { kView, kAsync, kSynchronous };

// What the schema says, once for each operator.
struct OpTraits {
  Kind kind = Kind::kAsync;
  bool is_functional = false;     // makes new tensors
  bool takes_host_index = false;  // tensors of indices may be on the host
  int generator = -1;             // argument
  bool draws = false;
  bool has_meta = false;
  std::vector<bool> is_written;       // by argument
  std::vector<int> returns_argument;  // by return; -1: a new one
  std::string name;
};

bool IsTensorType(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto optional = type->cast<c10::OptionalType>()) return IsTensorType(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return IsTensorType(list->getElementType());
  return false;
}

bool IsGeneratorType(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && IsGeneratorType(optional->getElementType());
}

OpTraits MakeTraits(const c10::OperatorHandle& op) {
  OpTraits traits;
  const c10::FunctionSchema& schema = op.schema();
  traits.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    traits.is_written.push_back(alias != nullptr && alias->isWrite());
    if (IsGeneratorType(arguments[i].type())) traits.generator = static_cast<int>(i);
  }
  bool is_view = false;
  bool has_other_returns = false;
  for (const c10::Argument& value : schema.returns()) {
    int returned = -1;
    if (const c10::AliasInfo* const alias = value.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const c10::AliasInfo* const other = arguments[i].alias_info();
        if (other != nullptr && other->beforeSets() == alias->beforeSets()) returned = static_cast<int>(i);
      }
      if (!alias->isWrite()) is_view = true;
    }
    if (returned < 0) traits.is_functional = true;
    if (!IsTensorType(value.type())) has_other_returns = true;
    traits.returns_argument.push_back(returned);
  }
  traits.draws = traits.generator >= 0 || op.hasTag(at::Tag::nondeterministic_seeded);
  traits.has_meta = op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
  traits.takes_host_index = schema.name().find("index") != std::string::npos;
  if (is_view) {
    traits.kind = Kind::kView;
  } else if (has_other_returns || op.hasTag(at::Tag::dynamic_output_shape) ||
             op.hasTag(at::Tag::data_dependent_output) || (traits.is_functional && !traits.has_meta) ||
             schema.name().rfind("aten::", 0) != 0) {
    traits.kind = Kind::kSynchronous;
  }
  return traits;
}

const OpTraits& TraitsOf(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const all = new std::unordered_map<c10::OperatorName, std::unique_ptr<OpTraits>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<OpTraits>& traits = (*all)[op.operator_name()];
  if (!traits) traits = std::make_unique<OpTraits>(MakeTraits(op));
  return *traits;
}

// Calls visit(tensor) for every defined tensor of a value.
template <class Visit>
void ForEachTensor(const IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) ForEachTensor(item, visit);
  } else if (value.isTuple()) {
    for (const IValue& item : value.toTupleRef().elements()) ForEachTensor(item, visit);
  }
}

// The value with every tensor replaced by change(tensor).
template <class Change>
IValue WithTensors(const IValue& value, Change&& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() && tensor->defined() ? std::make_optional(change(*tensor)) : tensor);
    }
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return value;
}

// One call: its arguments, and where it runs.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const OpTraits& traits, c10::ArrayRef<IValue> arguments)
      : op_(op), traits_(traits), arguments_(arguments) {
    FindDevice();
  }

  c10::Device device() const { return device_; }
  std::vector<IValue> Run();

 private:
  void FindDevice();
  bool IsOnDevice(const at::Tensor& tensor) const { return tensor.device().type() == c10::kPrivateUse1; }
  std::vector<IValue> OnCpu(Aliases& aliases, bool keeps) const;
  std::vector<IValue> OnMeta(Aliases& aliases) const;
  void ResizeWritten(const std::vector<IValue>& meta_arguments) const;
  std::vector<IValue> RunView();
  std::vector<IValue> RunAsync();
  std::vector<IValue> RunSynchronous();
  // A new result like the one of the Meta kernel; or the part of an argument that it is.
  at::Tensor ResultLike(const at::Tensor& meta, const Aliases& aliases) const;
  at::Tensor PartOf(const c10::StorageImpl* source, const at::Tensor& like) const;
  bool AllWrittenAreEmpty(const std::vector<IValue>& results) const;

  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  c10::ArrayRef<IValue> arguments_;
  c10::Device device_{c10::kPrivateUse1, -1};
};

// The task: plain data, and aliases that own no memory.
class CpuKernel final : public reprise::Operation {
 public:
  CpuKernel(const c10::OperatorHandle& op, const OpTraits& traits, std::vector<IValue> arguments,
            std::vector<at::Tensor> results)
      : op_(op),
        traits_(traits),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        stack_(StackOfLaunch()) {}

  void Run(uint64_t seed) override {
    const KernelScope scope;
    Stack stack(arguments_);
    if (traits_.generator >= 0 && traits_.draws) {
      stack[static_cast<size_t>(traits_.generator)] = at::detail::createCPUGenerator(seed);
    }
    op_.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
    if (results_.empty()) return;
    size_t next = 0;
    for (const IValue& value : stack) {
      TakeOver(value, next);
    }
  }
  reprise::OperationInfo Describe() const override { return {traits_.name, stack_}; }

 private:
  void TakeOver(const IValue& value, size_t& next) {
    if (value.isTensor()) {
      TakeOver(value.toTensor(), next);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) TakeOver(tensor, next);
    }
  }
  void TakeOver(const at::Tensor& made, size_t& next) {
    TORCH_CHECK(next < results_.size(), traits_.name, " made more results than its Meta kernel had announced");
    const at::Tensor& result = results_[next++];
    if (!result.defined()) return;
    TORCH_CHECK(made.defined() && made.sizes() == result.sizes() && made.scalar_type() == result.scalar_type(),
                traits_.name, " made ", made.defined() ? made.toString() : "nothing", " of sizes ",
                made.defined() ? made.sizes() : c10::IntArrayRef(), " where its Meta kernel had announced ",
                result.toString(), " of sizes ", result.sizes());
    result.copy_(made);
  }

  c10::OperatorHandle op_;
  const OpTraits& traits_;
  std::vector<IValue> arguments_;
  std::vector<at::Tensor> results_;
  std::vector<reprise::Frame> stack_;
};

void Call::FindDevice() {
  std::optional<c10::Device> found;
  for (const IValue& value : arguments_) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(), traits_.name,
                                  " is not supported on npu for ", tensor.toString(), ": only strided, dense tensors");
      if (!IsOnDevice(tensor)) return;
      if (!found.has_value()) found = tensor.device();
      TORCH_CHECK(*found == tensor.device(),
                  "Expected all tensors to be on the same device, but found at least two "
                  "devices, ",
                  *found, " and ", tensor.device(), "! (", traits_.name, ")");
    });
    if (value.isDevice() && !found.has_value() && value.toDevice().type() == c10::kPrivateUse1) {
      found = c10::Device(c10::kPrivateUse1, value.toDevice().has_index() ? value.toDevice().index() : CurrentDevice());
    }
  }
  device_ = found.value_or(c10::Device(c10::kPrivateUse1, CurrentDevice()));
  for (const IValue& value : arguments_) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (IsOnDevice(tensor) || tensor.dim() == 0 || traits_.takes_host_index) return;
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", device_,
                  " and ", tensor.device(), "! (", traits_.name, ")");
    });
  }
}

// Tensors of the host are small: their values are frozen now.
std::vector<IValue> Call::OnCpu(Aliases& aliases, bool keeps) const {
  std::vector<IValue> values;
  values.reserve(arguments_.size());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (static_cast<int>(i) == traits_.generator) {
      values.emplace_back();
      continue;
    }
    values.push_back(WithTensors(arguments_[i], [&](const at::Tensor& tensor) {
      if (IsOnDevice(tensor)) return aliases.Of(tensor);
      if (!keeps) return tensor;
      if (tensor.dim() != 0) RefuseInCapture(traits_.name, "a tensor of indices is on the host");
      const KernelScope scope;
      at::Tensor copy = at::clone(tensor);
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      return copy;
    }));
  }
  return values;
}

std::vector<IValue> Call::OnMeta(Aliases& aliases) const {
  std::vector<IValue> values;
  values.reserve(arguments_.size());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (static_cast<int>(i) == traits_.generator) {
      values.emplace_back();
      continue;
    }
    IValue value = WithTensors(arguments_[i], [&](const at::Tensor& tensor) {
      // Scalars of the host stay what they are: types are promoted by that.
      return IsOnDevice(tensor) || tensor.dim() != 0 ? aliases.Of(tensor) : tensor;
    });
    if (arguments_[i].isDevice()) value = c10::Device(c10::kMeta);
    values.push_back(std::move(value));
  }
  return values;
}

at::Tensor Call::PartOf(const c10::StorageImpl* source, const at::Tensor& like) const {
  at::Tensor part;
  for (const IValue& value : arguments_) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (part.defined() || tensor.storage().unsafeGetStorageImpl() != source) return;
      part = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                      tensor.key_set(), like.dtype());
      part.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    });
  }
  return part;
}

at::Tensor Call::ResultLike(const at::Tensor& meta, const Aliases& aliases) const {
  if (!meta.defined()) return {};
  if (const c10::StorageImpl* const source = aliases.SourceOf(meta)) return PartOf(source, meta);
  return meta.is_non_overlapping_and_dense() ? EmptyStrided(meta.sizes(), meta.strides(), meta.scalar_type(), device_)
                                             : Empty(meta.sizes(), meta.scalar_type(), device_);
}

// out= arguments get the sizes that the Meta kernel gave theirs; the warning about that was its.
void Call::ResizeWritten(const std::vector<IValue>& meta_arguments) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!traits_.is_written[i]) continue;
    std::vector<at::Tensor> metas;
    ForEachTensor(meta_arguments[i], [&](const at::Tensor& meta) { metas.push_back(meta); });
    size_t next = 0;
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      const at::Tensor& meta = metas[next++];
      if (IsOnDevice(tensor)) Resize(tensor, meta.sizes(), meta.strides());
    });
  }
}

bool Call::AllWrittenAreEmpty(const std::vector<IValue>& results) const {
  bool any = false;
  for (const IValue& value : results) {
    ForEachTensor(value, [&](const at::Tensor& tensor) { any |= tensor.numel() != 0; });
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!traits_.is_written[i]) continue;
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) { any |= tensor.numel() != 0; });
  }
  return !any;
}

std::vector<IValue> Call::RunView() {
  Aliases aliases(c10::kCPU);
  Stack stack = OnCpu(aliases, false);
  const KernelScope scope;
  op_.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
  std::vector<IValue> results;
  for (const IValue& value : stack) {
    results.push_back(WithTensors(value, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* const source = aliases.SourceOf(tensor);
      TORCH_CHECK(source != nullptr, traits_.name, " returned a tensor that is no part of its arguments");
      return PartOf(source, tensor);
    }));
  }
  return results;
}

std::vector<IValue> Call::RunAsync() {
  std::vector<IValue> results;
  std::vector<at::Tensor> made;  // in the order of the kernel's results
  if (traits_.has_meta) {
    Aliases metas(c10::kMeta);
    const std::vector<IValue> meta_arguments = OnMeta(metas);
    Stack stack(meta_arguments);
    {
      const KernelScope scope;
      op_.callBoxedForDispatchKey(c10::DispatchKey::Meta, stack);
    }
    ResizeWritten(meta_arguments);
    for (size_t i = 0; i < stack.size(); ++i) {
      const int argument = traits_.returns_argument[i];
      if (argument >= 0) {
        results.push_back(arguments_[static_cast<size_t>(argument)]);
        if (traits_.is_functional) made.emplace_back();  // nothing to take over
        continue;
      }
      const auto change = [&](const at::Tensor& meta) {
        at::Tensor result = ResultLike(meta, metas);
        made.push_back(result);
        return result;
      };
      if (stack[i].isTensor()) {
        results.emplace_back(change(stack[i].toTensor()));
      } else {
        results.push_back(WithTensors(stack[i], change));
      }
    }
  } else {
    for (const int argument : traits_.returns_argument) results.push_back(arguments_[static_cast<size_t>(argument)]);
  }
  if (AllWrittenAreEmpty(results)) return results;

  Aliases aliases(c10::kCPU);
  std::vector<IValue> arguments = OnCpu(aliases, true);
  std::vector<at::Tensor> outputs;
  outputs.reserve(made.size());
  for (const at::Tensor& tensor : made) outputs.push_back(tensor.defined() ? aliases.Of(tensor) : at::Tensor());
  reprise::Generator* generator = nullptr;
  if (traits_.draws) {
    generator =
        &CoreGenerator(traits_.generator < 0 || arguments_[static_cast<size_t>(traits_.generator)].isNone()
                           ? std::nullopt
                           : std::make_optional(arguments_[static_cast<size_t>(traits_.generator)].toGenerator()));
  }
  Launch(std::make_unique<CpuKernel>(op_, traits_, std::move(arguments), std::move(outputs)), generator);
  return results;
}

std::vector<IValue> Call::RunSynchronous() {
  RefuseInCapture(traits_.name, "its result depends on data of the device, so the host would have to wait for it");
  const NPUStream stream = CurrentStream(device_.index());
  stream.synchronize();
  Aliases aliases(c10::kCPU);
  Stack stack = OnCpu(aliases, false);
  const KernelScope scope;
  op_.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
  std::vector<IValue> results;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (const int argument = traits_.returns_argument[i]; argument >= 0) {
      results.push_back(arguments_[static_cast<size_t>(argument)]);
      continue;
    }
    results.push_back(WithTensors(stack[i], [&](const at::Tensor& tensor) {
      if (const c10::StorageImpl* const source = aliases.SourceOf(tensor)) return PartOf(source, tensor);
      at::Tensor result = EmptyStrided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), device_);
      Aliases back(c10::kCPU);
      back.Of(result).copy_(tensor);  // nobody else uses it yet
      return result;
    }));
  }
  return results;
}

std::vector<IValue> Call::Run() {
  switch (traits_.kind) {
    case Kind::kView: return RunView();
    case Kind::kSynchronous: return RunSynchronous();
    case Kind::kAsync: break;
  }
  return RunAsync();
}

void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OpTraits& traits = TraitsOf(op);
  const size_t count = op.schema().arguments().size();
  const c10::ArrayRef<IValue> arguments = c10::ArrayRef<IValue>(*stack).slice(stack->size() - count);
  Call call(op, traits, arguments);
  const c10::DeviceIndex before = ExchangeDevice(call.device().index());
  std::vector<IValue> results = call.Run();
  if (before != call.device().index()) SetDevice(before);
  torch::jit::drop(*stack, count);
  for (IValue& result : results) stack->push_back(std::move(result));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>()); }

}  // namespace
}  // namespace torch_npu
