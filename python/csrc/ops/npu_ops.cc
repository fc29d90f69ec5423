// SPDX-License-Identifier: Apache-2.0
#include "ops/npu_ops.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ops/launch.h"
#include "ops/native.h"
#include "ops/tensors.h"
#include "ops/values.h"

namespace torch_npu {
namespace {

using c10::IValue;
using torch::jit::Stack;

c10::OperatorHandle FindDefined(const std::string& name) {
  const size_t dot = name.find('.');
  const c10::OperatorName full(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  const auto found = c10::Dispatcher::singleton().findSchema(full);
  TORCH_CHECK_VALUE(found.has_value(), name, " has not been defined");
  return *found;
}

// Registered for ever.
void Implement(const std::string& name, c10::DispatchKey key, torch::CppFunction&& function) {
  const size_t colons = name.find("::");
  auto* const library = new torch::Library(torch::Library::IMPL, name.substr(0, colons), key, __FILE__, __LINE__);
  library->impl(name.substr(colons + 2).c_str(), std::move(function));
}

// Runs an operator of the device on tensors that exist.
class WritesList final : public c10::OperatorKernel {
 public:
  WritesList(const NativeOp& native, const c10::FunctionSchema& schema)
      : native_(native),
        name_(toString(c10::OperatorName(schema.name(), schema.overload_name()))),
        out_(static_cast<size_t>(*schema.argumentIndexWithName("out"))) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const c10::ArrayRef<IValue> arguments = c10::ArrayRef<IValue>(*stack).slice(stack->size() - count);
    std::vector<at::Tensor> results = arguments[out_].toTensorVector();
    TORCH_CHECK(results.size() == op.schema().returns().size(), name_, ": out has ", results.size(), " tensors, not ",
                op.schema().returns().size());
    for (const at::Tensor& tensor : results) {
      TORCH_CHECK(tensor.defined() && IsOnDevice(tensor), name_, ": a tensor of out is not on npu");
      TORCH_CHECK(tensor.device() == results[0].device(), name_, ": the tensors of out are on several devices");
    }
    const c10::DeviceGuard guard(results[0].device());
    std::string why;
    const auto info = std::make_shared<reprise::OperationInfo>(reprise::OperationInfo{name_, StackOfLaunch()});
    TORCH_CHECK(LaunchNative(native_, arguments, results, info, &why), name_, ": ", why);
    torch::jit::drop(*stack, count);
    for (at::Tensor& tensor : results) stack->emplace_back(std::move(tensor));
  }

 private:
  const NativeOp& native_;
  std::string name_;
  size_t out_;
};

// Tells the workspace of another operator, whose results it makes up.
class TellsWorkspace final : public c10::OperatorKernel {
 public:
  explicit TellsWorkspace(c10::OperatorHandle of) : of_(std::move(of)), native_(FindNative(of_.schema())) {
    TORCH_CHECK_VALUE(native_ != nullptr, of_.schema(), " is no operator of the device");
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const Stack arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
    c10::Device device(c10::kPrivateUse1, 0);
    for (const IValue& value : arguments) {
      ForEachTensor(value, [&](const at::Tensor& tensor) {
        if (IsOnDevice(tensor)) device = tensor.device();
      });
    }
    const c10::DeviceGuard guard(device);
    // The results, which nobody writes: those that the Meta kernel announces.
    Stack metas;
    for (const IValue& value : arguments) {
      metas.push_back(WithTensors(value, [](const at::Tensor& tensor) {
        return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
      }));
    }
    of_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &metas);
    std::vector<at::Tensor> results;
    for (const IValue& value : metas) {
      ForEachTensor(value, [&](const at::Tensor& tensor) {
        results.push_back(Empty(tensor.sizes(), tensor.scalar_type(), device));
      });
    }
    std::string why;
    const uint64_t bytes = NativeWorkspace(*native_, arguments, results, why);
    TORCH_CHECK(why.empty(), toString(op.operator_name()), ": ", why);
    torch::jit::drop(*stack, count);
    stack->emplace_back(Empty({static_cast<int64_t>(bytes)}, at::kByte, device));
  }

 private:
  c10::OperatorHandle of_;
  const NativeOp* native_;
};

// ---- Derivatives ----

struct Derivative {
  enum class From { kNone, kGradient, kArgument, kResult };
  struct Word {
    From from;
    size_t index;
  };
  c10::OperatorHandle backward;
  std::vector<Word> words;       // by parameter of `backward`
  std::vector<size_t> results;   // that have gradients, by input of the node
  std::vector<int> gradient_of;  // by result of `backward`; -1: of nothing
  std::vector<size_t> wanted;    // arguments that have gradients
  std::string name;
};

class Backward final : public torch::autograd::Node {
 public:
  explicit Backward(std::shared_ptr<const Derivative> derivative) : derivative_(std::move(derivative)) {}

  void Save(const IValue& value, bool is_result) {
    if (value.isTensor()) {
      Kept& kept = kept_.emplace_back();
      kept.is_tensor = true;
      kept.is_result = is_result;
      kept.tensor = torch::autograd::SavedVariable(value.toTensor(), is_result);
    } else {
      kept_.emplace_back().value = value;
    }
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    torch::autograd::variable_list results(derivative_->wanted.size());
    if (std::none_of(gradients.begin(), gradients.end(), [](const auto& each) { return each.defined(); })) {
      return results;
    }
    Stack stack;
    {
      const std::lock_guard lock(mutex_);
      TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);
      size_t next = 0;
      const auto& parameters = derivative_->backward.schema().arguments();
      for (size_t i = 0; i < derivative_->words.size(); ++i) {
        const Derivative::Word& word = derivative_->words[i];
        switch (word.from) {
          case Derivative::From::kNone: stack.emplace_back(); break;
          case Derivative::From::kGradient: {
            const at::Tensor& gradient = gradients[word.index];
            if (gradient.defined()) {
              stack.emplace_back(gradient.contiguous());
            } else if (parameters[i].type()->kind() == c10::TypeKind::OptionalType) {
              stack.emplace_back();
            } else {
              stack.emplace_back(input_metadata(word.index).zeros_like());
            }
            break;
          }
          default: {
            const Kept& kept = kept_[next++];
            if (!kept.is_tensor) {
              stack.push_back(kept.value);
            } else {
              stack.emplace_back(kept.tensor.unpack(
                  kept.is_result ? c10::intrusive_ptr<torch::autograd::Node>::reclaim_copy(this) : nullptr));
            }
          }
        }
      }
    }
    derivative_->backward.callBoxed(&stack);
    for (size_t i = 0; i < derivative_->gradient_of.size() && i < stack.size(); ++i) {
      const int of = derivative_->gradient_of[i];
      if (of < 0 || !stack[i].isTensor() || !task_should_compute_output(static_cast<size_t>(of))) continue;
      results[static_cast<size_t>(of)] = stack[i].toTensor();
    }
    return results;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    for (Kept& kept : kept_) {
      kept.tensor.reset_data();
      kept.value = IValue();
    }
  }

  std::string name() const override { return derivative_->name; }

 private:
  struct Kept {
    IValue value;
    torch::autograd::SavedVariable tensor;
    bool is_tensor = false, is_result = false;
  };
  std::shared_ptr<const Derivative> derivative_;
  std::vector<Kept> kept_;  // by word that is an argument or a result
  std::mutex mutex_;
  bool is_released_ = false;
};

class Differentiable final : public c10::OperatorKernel {
 public:
  explicit Differentiable(std::shared_ptr<const Derivative> derivative) : derivative_(std::move(derivative)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const size_t first = stack->size() - count;
    bool needed = false;
    const auto of_argument = [&](size_t index) -> const IValue& { return (*stack)[first + index]; };
    for (size_t i = 0; i < count; ++i) {
      ForEachTensor(of_argument(i), [&](const at::Tensor& tensor) {
        TORCH_CHECK_NOT_IMPLEMENTED(!tensor._fw_grad(0).defined(), derivative_->name,
                                    " has no derivative in forward mode; use backward()");
      });
    }
    if (c10::GradMode::is_enabled()) {
      for (const size_t index : derivative_->wanted) {
        const IValue& value = of_argument(index);
        needed |= value.isTensor() && value.toTensor().defined() && value.toTensor().requires_grad();
      }
    }
    if (!needed) {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    const auto node = c10::make_intrusive<Backward>(derivative_);
    torch::autograd::edge_list edges;
    for (const size_t index : derivative_->wanted) {
      const IValue& value = of_argument(index);
      edges.push_back(value.isTensor() && value.toTensor().defined()
                          ? torch::autograd::impl::gradient_edge(value.toTensor())
                          : torch::autograd::Edge());
    }
    node->set_next_edges(std::move(edges));
    const Stack arguments(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    const size_t results = op.schema().returns().size();
    for (const size_t result : derivative_->results) {
      at::Tensor differentiated = (*stack)[stack->size() - results + result].toTensor();
      torch::autograd::set_history(differentiated, node);
    }
    for (const Derivative::Word& word : derivative_->words) {
      if (word.from == Derivative::From::kArgument) node->Save(arguments[word.index], false);
      if (word.from == Derivative::From::kResult) {
        const auto& own = derivative_->results;
        node->Save((*stack)[stack->size() - results + word.index],
                   std::find(own.begin(), own.end(), word.index) != own.end());
      }
    }
  }

 private:
  std::shared_ptr<const Derivative> derivative_;
};

class Refused final : public c10::OperatorKernel {
 public:
  explicit Refused(std::string text) : text_(std::move(text)) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack*) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, text_);
  }

 private:
  std::string text_;
};

struct HostKernels {
  std::mutex mutex;
  std::unordered_set<std::string> names;
};

HostKernels& AllHostKernels() {
  static auto* const kernels = new HostKernels;
  return *kernels;
}

// ---- Formats ----

constexpr int64_t kNchw = 0, kNd = 2;

struct Formats {
  std::mutex mutex;
  // An address stays that storage's own while somebody points to it weakly.
  std::unordered_map<const c10::StorageImpl*, std::pair<c10::weak_intrusive_ptr<c10::StorageImpl>, int64_t>> all;
};

Formats& AllFormats() {
  static auto* const formats = new Formats;
  return *formats;
}

}  // namespace

bool BindOperator(const std::string& name) {
  const c10::OperatorHandle op = FindDefined(name);
  const NativeOp* const native = DeclareNative(op.schema());
  if (native == nullptr) return false;
  const auto out = op.schema().argumentIndexWithName("out");
  if (out.has_value() && op.schema().arguments()[static_cast<size_t>(*out)].type()->kind() == c10::TypeKind::ListType) {
    Implement(name, c10::DispatchKey::PrivateUse1,
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WritesList>(*native, op.schema())));
  }
  return true;
}

void BindWorkspace(const std::string& name, const std::string& of) {
  FindDefined(name);
  Implement(name, c10::DispatchKey::PrivateUse1,
            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<TellsWorkspace>(FindDefined(of))));
}

void BindDerivative(const std::string& name, const std::string& backward, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& gradients) {
  using From = Derivative::From;
  const c10::OperatorHandle op = FindDefined(name);
  auto derivative = std::make_shared<Derivative>(Derivative{FindDefined(backward), {}, {}, {}, {}, {}});
  derivative->name = name.substr(name.find("::") + 2) + "_backward";
  const auto index_of = [&](const std::string& argument) {
    const auto index = op.schema().argumentIndexWithName(argument);
    TORCH_CHECK_VALUE(index.has_value(), name, " has no argument ", argument);
    return static_cast<size_t>(*index);
  };
  for (const std::string& word : arguments) {
    if (word == "-") {
      derivative->words.push_back({From::kNone, 0});
    } else if (word == "grad" || word.starts_with("grad@")) {
      derivative->words.push_back({From::kGradient, derivative->results.size()});
      derivative->results.push_back(word == "grad" ? 0 : static_cast<size_t>(word[5] - '0'));
    } else if (word[0] == '@') {
      derivative->words.push_back({From::kResult, static_cast<size_t>(word[1] - '0')});
    } else {
      derivative->words.push_back({From::kArgument, index_of(word)});
    }
  }
  TORCH_CHECK_VALUE(derivative->words.size() == derivative->backward.schema().arguments().size(), name, ": ", backward,
                    " has ", derivative->backward.schema().arguments().size(), " arguments");
  for (const std::string& word : gradients) {
    derivative->gradient_of.push_back(word == "-" ? -1 : static_cast<int>(derivative->wanted.size()));
    if (word != "-") derivative->wanted.push_back(index_of(word));
  }
  Implement(name, c10::DispatchKey::Autograd,
            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Differentiable>(std::move(derivative))));
}

void BindHostKernel(const std::string& name) {
  FindDefined(name);
  HostKernels& kernels = AllHostKernels();
  const std::lock_guard lock(kernels.mutex);
  kernels.names.insert(name);
}

bool IsHostKernel(const std::string& name) {
  HostKernels& kernels = AllHostKernels();
  const std::lock_guard lock(kernels.mutex);
  return kernels.names.contains(name);
}

void RefuseOperator(const std::string& name, const std::string& text) {
  FindDefined(name);
  Implement(name, c10::DispatchKey::CompositeExplicitAutograd,
            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refused>(text)));
}

int64_t FormatOf(const at::Tensor& tensor) {
  Formats& formats = AllFormats();
  {
    const std::lock_guard lock(formats.mutex);
    const auto found = formats.all.find(tensor.storage().unsafeGetStorageImpl());
    if (found != formats.all.end()) return found->second.second;
  }
  return tensor.dim() == 4 ? kNchw : kNd;
}

void SetFormat(const at::Tensor& tensor, int64_t format) {
  Formats& formats = AllFormats();
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(formats.mutex);
  std::erase_if(formats.all, [](const auto& each) { return each.second.first.expired(); });
  formats.all.insert_or_assign(
      storage, std::pair(c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()), format));
}

}  // namespace torch_npu
