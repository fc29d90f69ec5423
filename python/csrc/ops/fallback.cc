// SPDX-License-Identifier: Apache-2.0
//
// Every operator without a kernel of its own: the CPU kernel of torch runs as a task of the current stream, over
// aliases of the device's memory. What it will return is asked of the Meta kernel first (meta_pass.h), so that mistakes
// in shapes and types are found at the call and results can be allocated before anything runs.
#include "ops/fallback.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy.h>
#include <c10/core/InferenceMode.h>
#include <reprise/verbose.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "device/sync_debug.h"
#include "ops/alias.h"
#include "ops/cpu_kernel.h"
#include "ops/kernel_scope.h"
#include "ops/known_calls.h"
#include "ops/launch.h"
#include "ops/meta_pass.h"
#include "ops/native.h"
#include "ops/op_traits.h"
#include "ops/tensors.h"
#include "ops/unboxed.h"
#include "ops/values.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

using c10::IValue;
using torch::jit::Stack;

void CheckLayout(const OpTraits& traits, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::kStrided && !tensor.is_quantized(), traits.name, " is not supported on npu for ",
      tensor.toString(), ": tensors there are strided and dense; do this on the CPU, or convert with to_dense() or ",
      "dequantize() first");
}

// One call: its arguments, and where it runs.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const OpTraits& traits, c10::ArrayRef<IValue> arguments, Returned returned)
      : op_(op), traits_(traits), arguments_(arguments), returned_(returned) {
    FindDevice();
  }

  c10::Device device() const { return device_; }
  c10::SmallVector<IValue, 4> Run();

 private:
  using Results = c10::SmallVector<IValue, 4>;

  void FindDevice();
  void FailOnHost(const at::Tensor& tensor) const;
  bool MustWait() const;
  Stack OnCpu(Aliases& aliases, bool keeps, size_t more = 0) const;
  at::Tensor OnHost(const at::Tensor& tensor, bool keeps) const;
  Results RunView();
  Results RunPutTogether();
  Results RunPutTogether(const MetaKey& key);
  Results RunByKey();
  Results RunKnown(KnownCall& known, const NPUStream& stream);
  Results RunAsync(const Announcement& announced, NativePlan* plan);
  bool RunNative(c10::ArrayRef<at::Tensor> made, std::string* why, NativePlan* plan) const;
  bool AllAreContiguous(c10::ArrayRef<at::Tensor> made) const;
  // Of a kernel that has these results.
  Touched TouchedBy(c10::ArrayRef<at::Tensor> made) const;
  Results RunSynchronous();
  // A new result as announced; or the part of an argument that it is.
  at::Tensor Make(const AnnouncedTensor& like) const;
  at::Tensor PartOf(const at::Tensor& tensor, const AnnouncedTensor& like) const;
  at::Tensor PartOf(const c10::StorageImpl* source, const at::Tensor& alias) const;
  void BringBack(const Stack& aliases) const;
  reprise::Generator* Source() const;

  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  c10::ArrayRef<IValue> arguments_;
  Returned returned_;
  c10::Device device_{c10::kPrivateUse1, -1};
  bool is_captured_ = false;  // the stream, for calls of the device's kernels
};

void Call::FailOnHost(const at::Tensor& tensor) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", device_,
              " and ", tensor.device(), "! (", traits_.name, "); move one of them: tensor.to(\"", device_, "\")");
}

void Call::FindDevice() {
  c10::DeviceIndex found = -1;
  bool any_on_host = false;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      CheckLayout(traits_, tensor);
      const c10::Device device = tensor.device();
      if (device.type() != c10::kPrivateUse1) {
        any_on_host |= tensor.dim() != 0 || device.type() != c10::kCPU || traits_.is_written[i];
        return;
      }
      if (found < 0) found = device.index();
      TORCH_CHECK(found == device.index(), "Expected all tensors to be on the same device, but found at least two ",
                  "devices, ", c10::Device(c10::kPrivateUse1, found), " and ", device, "! (", traits_.name, ")");
    });
  }
  if (found < 0) {
    for (const IValue& value : arguments_) {
      if (value.isDevice() && value.toDevice().type() == c10::kPrivateUse1) found = value.toDevice().index();
    }
  }
  device_ = c10::Device(c10::kPrivateUse1, found < 0 ? CurrentDevice() : found);
  if (!any_on_host) [[likely]]
    return;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      if (IsOnDevice(tensor)) return;
      const bool may_be_there = !traits_.is_written[i] && (tensor.dim() == 0 || traits_.takes_host[i]);
      if (tensor.device().type() != c10::kCPU || !may_be_there) FailOnHost(tensor);
    });
  }
}

bool Call::MustWait() const {
  if (traits_.kind == OpKind::kSynchronous) return true;
  if (!traits_.masks_are_dynamic) return false;
  bool any = false;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!traits_.takes_host[i]) continue;
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      any |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    });
  }
  return any;
}

// Tensors of the host are small: their values are frozen now.
at::Tensor Call::OnHost(const at::Tensor& tensor, bool keeps) const {
  if (!keeps) return tensor;
  // A number of the program: nobody else can write it.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  if (tensor.dim() != 0) {
    RefuseInCapture(traits_.name, "a tensor of indices is on the host", "move it to npu before the capture");
  }
  const PlainKeys keys;
  return at::clone(tensor);
}

Stack Call::OnCpu(Aliases& aliases, bool keeps, size_t more) const {
  Stack values;
  values.reserve(arguments_.size() + more);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const IValue& value = arguments_[i];
    if (static_cast<int>(i) == traits_.generator) {
      values.emplace_back();
    } else if (value.isDevice()) {
      values.emplace_back(c10::Device(c10::kCPU));
    } else {
      values.push_back(WithTensors(value, [&](const at::Tensor& tensor) {
        return IsOnDevice(tensor) ? aliases.Of(tensor) : OnHost(tensor, keeps);
      }));
    }
  }
  return values;
}

at::Tensor Call::PartOf(const at::Tensor& tensor, const AnnouncedTensor& like) const {
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                             tensor.key_set(), c10::scalarTypeToTypeMeta(like.dtype));
  c10::TensorImpl* const impl = part.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes, like.strides, like.offset);
  if (part.is_complex()) impl->_set_conj(like.is_conj);
  impl->_set_neg(like.is_neg);
  return part;
}

at::Tensor Call::PartOf(const c10::StorageImpl* source, const at::Tensor& alias) const {
  AnnouncedTensor like;
  like.dtype = alias.scalar_type();
  like.sizes.assign(alias.sizes().begin(), alias.sizes().end());
  like.strides.assign(alias.strides().begin(), alias.strides().end());
  like.offset = alias.storage_offset();
  like.is_conj = alias.is_conj();
  like.is_neg = alias.is_neg();
  at::Tensor part;
  for (const IValue& value : arguments_) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (!part.defined() && tensor.storage().unsafeGetStorageImpl() == source) part = PartOf(tensor, like);
    });
  }
  return part;
}

at::Tensor Call::Make(const AnnouncedTensor& like) const {
  switch (like.kind) {
    case AnnouncedTensor::Kind::kUndefined: return {};
    case AnnouncedTensor::Kind::kNew:
      return like.strides.size() == like.sizes.size() ? EmptyStrided(like.sizes, like.strides, like.dtype, device_)
                                                      : Empty(like.sizes, like.dtype, device_);
    case AnnouncedTensor::Kind::kPart: break;
  }
  at::Tensor part;
  int number = 0;
  for (const IValue& value : arguments_) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (number++ == like.source) part = PartOf(tensor, like);
    });
  }
  return part;
}

Call::Results Call::RunView() {
  Aliases aliases(c10::kCPU);
  Stack stack = OnCpu(aliases, false);
  {
    const PlainKeys keys;
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }
  Results results;
  for (const IValue& value : stack) {
    results.push_back(WithTensors(value, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* const source = aliases.SourceOf(tensor);
      TORCH_CHECK(source != nullptr, traits_.name, " returned a tensor that is no part of its arguments");
      return PartOf(source, tensor);
    }));
  }
  return results;
}

reprise::Generator* Call::Source() const {
  if (!traits_.draws) return nullptr;
  if (traits_.generator < 0 || arguments_[static_cast<size_t>(traits_.generator)].isNone()) {
    return &CoreGenerator(std::nullopt);
  }
  return &CoreGenerator(arguments_[static_cast<size_t>(traits_.generator)].toGenerator());
}

// With kernels of the device, if it has some that take these arguments.
bool Call::RunNative(c10::ArrayRef<at::Tensor> made, std::string* why, NativePlan* plan) const {
  c10::ArrayRef<at::Tensor> results = made;
  c10::SmallVector<at::Tensor, 4> with_arguments;
  for (size_t i = 0; i < made.size() && i < traits_.returns_argument.size(); ++i) {
    if (traits_.returns_argument[i] < 0) continue;
    const IValue& returned = arguments_[static_cast<size_t>(traits_.returns_argument[i])];
    if (!returned.isTensor()) return false;
    if (with_arguments.empty()) with_arguments.append(made.begin(), made.end());
    with_arguments[i] = returned.toTensor();
    results = with_arguments;
  }
  std::vector<reprise::Frame> place = StackOfLaunch(is_captured_);
  const auto info = place.empty() ? traits_.name_alone
                                  : std::make_shared<reprise::OperationInfo>(reprise::OperationInfo{
                                        traits_.name, std::move(place), ShapesText(arguments_, results)});
  if (plan != nullptr && plan->prepared != nullptr) {
    c10::SmallVector<const at::Tensor*, 4> places;
    for (const at::Tensor& tensor : results) places.push_back(&tensor);
    if (LaunchAgain(*plan, CurrentStream(), arguments_, places, info)) return true;
  }
  if (!IsDeclared(*traits_.native)) [[likely]]
    return LaunchNative(*traits_.native, arguments_, results, info, why, plan);
  std::string refusal;
  TORCH_CHECK(LaunchNative(*traits_.native, arguments_, results, info, &refusal, plan), traits_.name, ": ", refusal);
  return true;
}

bool Call::AllAreContiguous(c10::ArrayRef<at::Tensor> made) const {
  bool all = true;
  const auto look = [&](const at::Tensor& tensor) { all &= !tensor.defined() || tensor.is_contiguous(); };
  for (const IValue& value : arguments_) ForEachTensor(value, look);
  for (const at::Tensor& tensor : made) look(tensor);
  return all;
}

Touched Call::TouchedBy(c10::ArrayRef<at::Tensor> made) const {
  Touched touched;
  const std::vector<c10::Argument>& parameters = op_.schema().arguments();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    // Of the statistics of a batch norm its schema does not say that they are written.
    const bool is_written = traits_.is_written[i] || parameters[i].name().starts_with("running_");
    ForEachTensor(arguments_[i],
                  [&](const at::Tensor& tensor) { is_written ? touched.Write(tensor) : touched.Read(tensor); });
  }
  for (const at::Tensor& tensor : made) touched.Make(tensor);
  return touched;
}

Call::Results Call::RunPutTogether() {
  Stack stack(arguments_.begin(), arguments_.end());
  op_.redispatchBoxed(kPutTogether, &stack);
  return {std::make_move_iterator(stack.begin()), std::make_move_iterator(stack.end())};
}

Call::Results Call::RunPutTogether(const MetaKey& key) {
  Results results = RunPutTogether();
  KeepAnnounced(key, traits_, arguments_, results);
  return results;
}

// What is put together runs the first time as torch does it: it finds sizes, makes the result and calls the form with
// out=. That is where mistakes are found. What comes of it is remembered, and further calls of this kind go straight to
// the device; but in captures, where all calls look the same to those who read a dump.
Call::Results Call::RunByKey() {
  const MetaKey key(traits_, arguments_);
  const NPUStream stream = CurrentStream(device_.index());
  is_captured_ = traits_.native != nullptr && stream.is_capturing();
  const bool may_know = traits_.native != nullptr && !IsDeclared(*traits_.native) && !is_captured_ && key.is_complete();
  KnownCalls* const calls = may_know ? KnownCalls::Mine() : nullptr;
  if (calls != nullptr) {
    if (KnownCall* const known = calls->Find(key)) {
      const InUse in_use(*known);
      if (known->is_plain && StackOfLaunch(false).empty()) return RunKnown(*known, stream);
      return RunAsync(*known->announced, &known->plan);
    }
  }
  std::shared_ptr<const Announcement> announced;
  bool was_known = true;
  if (traits_.putting == Putting::kOnce) {
    if (!is_captured_) announced = FindAnnounced(key);
    if (announced == nullptr) return RunPutTogether(key);
  } else {
    announced = Announce(traits_, arguments_, key, was_known);
  }
  if (calls == nullptr || !calls->IsWorthKeeping(key) || !was_known) return RunAsync(*announced, nullptr);
  NativePlan plan;
  Results results = RunAsync(*announced, &plan);
  if (plan.prepared != nullptr) calls->Keep(key, std::move(announced), std::move(plan));
  return results;
}

// What RunAsync does, where all results are new tensors or arguments, and nobody asks for the place of the call.
Call::Results Call::RunKnown(KnownCall& known, const NPUStream& stream) {
  Results results;
  for (const KnownResult& like : known.results) {
    if (like.argument < 0) {
      results.emplace_back(EmptyOn(stream, like.sizes, like.strides, like.bytes, like.dtype));
    } else if (returned_ == Returned::kAll) {
      results.push_back(arguments_[static_cast<size_t>(like.argument)]);
    } else {
      results.emplace_back();
    }
  }
  c10::SmallVector<const at::Tensor*, 4> made;
  for (size_t i = 0; i < known.results.size(); ++i) {
    const int argument = known.results[i].argument;
    made.push_back(&(argument < 0 ? results[i] : arguments_[static_cast<size_t>(argument)]).toTensor());
  }
  if (!LaunchAgain(known.plan, stream, arguments_, made, traits_.name_alone)) [[unlikely]]
    results = RunAsync(*known.announced, &known.plan);
  return results;
}

Call::Results Call::RunAsync(const Announcement& announced, NativePlan* plan) {
  reprise::Generator* const generator = Source();
  Results results;
  c10::SmallVector<at::Tensor, 4> made;  // in the order of the kernel's results
  bool all_are_new = traits_.makes_tensors;
  for (const AnnouncedReturn& value : announced.returns) {
    if (value.argument >= 0) {
      if (returned_ == Returned::kAll) {
        results.push_back(arguments_[static_cast<size_t>(value.argument)]);
      } else {
        results.emplace_back();
      }
      made.emplace_back();
      all_are_new = false;
      continue;
    }
    const size_t first = made.size();
    for (const AnnouncedTensor& each : value.tensors) {
      all_are_new &= each.kind == AnnouncedTensor::Kind::kNew;
      made.push_back(Make(each));
    }
    if (value.is_list) {
      results.emplace_back(c10::List<at::Tensor>(c10::ArrayRef<at::Tensor>(made).slice(first)));
    } else {
      results.emplace_back(made.back());
    }
  }
  if (announced.is_empty) return results;
  std::string why;
  std::string* const wants_reason = reprise::DispatchIsVerbose() ? &why : nullptr;
  if (traits_.native != nullptr && RunNative(made, wants_reason, plan)) return results;
  // Whoever looks at a graph asks what its tasks touch; nobody asks an eager call.
  std::optional<Touched> touched;
  if (CurrentStream(device_.index()).is_capturing()) touched = TouchedBy(made);
  Touched* const told = touched ? &*touched : nullptr;
  if (traits_.direct != nullptr) {
    if (std::unique_ptr<reprise::Operation> operation = traits_.direct(traits_.name, arguments_, made)) {
      Launch(std::move(operation), nullptr, told);
      return results;
    }
  }
  if (wants_reason != nullptr && traits_.native == nullptr) why = "the device has no kernel for this operator";
  reprise::NoteSlowOperator(false, traits_.name.c_str(), why.c_str());
  if (!announced.types_are_known.load(std::memory_order_relaxed)) {
    CheckKernelTypes(traits_, arguments_);
    announced.types_are_known.store(true, std::memory_order_relaxed);
  }

  // Out forms that no TensorIterator is behind write memory in an order of their own.
  const bool writes_results =
      traits_.out.has_value() && all_are_new && (traits_.is_pointwise || AllAreContiguous(made));
  Stack arguments;
  std::vector<at::Tensor> takers;
  {
    const c10::InferenceMode inference;
    Aliases aliases(c10::kCPU);
    arguments = OnCpu(aliases, true, writes_results ? made.size() : 0);
    if (writes_results) {
      for (const at::Tensor& tensor : made) arguments.emplace_back(aliases.Of(tensor));
    } else if (traits_.makes_tensors) {
      takers.reserve(made.size());
      for (const at::Tensor& tensor : made) takers.push_back(tensor.defined() ? aliases.Of(tensor) : at::Tensor());
    }
  }
  Launch(std::make_unique<CpuKernel>(traits_, writes_results ? *traits_.out : op_, std::move(arguments),
                                     std::move(takers)),
         generator, told);
  return results;
}

// What the kernel did to its out= arguments: their sizes, and where their values are now.
void Call::BringBack(const Stack& aliases) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!traits_.is_written[i]) continue;
    c10::SmallVector<at::Tensor, 2> of_argument;
    ForEachTensor(aliases[i], [&](const at::Tensor& alias) { of_argument.push_back(alias); });
    size_t next = 0;
    ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
      const at::Tensor& alias = of_argument[next++];
      if (!IsOnDevice(tensor)) return;
      const void* const memory = tensor.storage().data();
      Resize(tensor, alias.sizes(), alias.strides());
      if (alias.storage().data() == memory && tensor.storage().data() == memory) return;
      CurrentStream(device_.index()).synchronize();  // a storage that grows is copied in order
      Aliases back(c10::kCPU);
      back.Of(tensor).copy_(alias);
    });
  }
}

// What a graph can hold in the place of an operator whose result only the data tell.
std::string InsteadOf(std::string_view name) {
  struct Instead {
    std::string_view operators;
    std::string_view next;
  };
  constexpr Instead kInstead[] = {
      {"nonzero",
       "torch.where(condition, a, b) or x.masked_fill(mask, value), which keep the shape (a boolean mask as "
       "index asks for nonzero)"},
      {"masked_select", "torch.where(mask, x, 0) or x.masked_fill(~mask, value), which keep the shape"},
      {"repeat_interleave", "repeat_interleave(..., output_size=n), with a size that the host knows"},
      {"equal", "(a == b).all(), which stays on the device"},
      {"is_nonzero", "torch.where(condition, a, b) in the place of `if`"},
      {"bincount", "torch.zeros(n).scatter_add_(0, x, ones), with a size that the host knows"},
  };
  for (const Instead& each : kInstead) {
    if (name.find(each.operators) != std::string_view::npos) {
      return "in the capture, use " + std::string(each.next) + "; or do it after the capture and a replay";
    }
  }
  return "do it before the capture, or after it and a replay, or use an operator whose result has a shape that the "
         "arguments tell";
}

Call::Results Call::RunSynchronous() {
  RefuseInCapture(traits_.name, "its result depends on data of the device, so the host would have to wait for it",
                  InsteadOf(traits_.name));
  reprise::NoteSlowOperator(true, traits_.name.c_str(), "its result depends on data of the device, so the host waits");
  TORCH_CHECK_NOT_IMPLEMENTED(op_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), traits_.name,
                              " has no kernel for npu, and none for the CPU that could be run in its place");
  NoteSynchronization(traits_.name.c_str());
  CurrentStream(device_.index()).synchronize();
  Aliases aliases(c10::kCPU, /*resizable=*/true);
  const Stack arguments = OnCpu(aliases, false);
  Stack stack(arguments);
  if (traits_.generator >= 0) stack[static_cast<size_t>(traits_.generator)] = IValue();
  const KernelScope scope;
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  BringBack(arguments);
  Results results;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (const int argument = traits_.returns_argument[i]; argument >= 0) {
      results.push_back(arguments_[static_cast<size_t>(argument)]);
      continue;
    }
    results.push_back(WithTensors(stack[i], [&](const at::Tensor& tensor) {
      CheckLayout(traits_, tensor);
      if (const c10::StorageImpl* const source = aliases.SourceOf(tensor)) return PartOf(source, tensor);
      at::Tensor result = tensor.is_non_overlapping_and_dense()
                              ? EmptyStrided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), device_)
                              : Empty(tensor.sizes(), tensor.scalar_type(), device_);
      Aliases back(c10::kCPU);
      back.Of(result).copy_(tensor);  // nobody else uses it yet
      return result;
    }));
  }
  return results;
}

Call::Results Call::Run() {
  if (traits_.kind == OpKind::kView) return RunView();
  if (traits_.putting == Putting::kOnce) return RunByKey();
  if (traits_.putting == Putting::kAlways) return RunPutTogether();
  if (MustWait()) return RunSynchronous();
  TORCH_CHECK_NOT_IMPLEMENTED(traits_.has_cpu || traits_.native != nullptr, traits_.name,
                              " has no kernel for npu, and none for the CPU that could be run in its place");
  return RunByKey();
}

// Tensors that are not dense cannot be made; what remains is to say so.
void Refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, toString(op.operator_name()),
                              " is not supported on npu for sparse, quantized or nested tensors: tensors there are ",
                              "strided and dense; do this on the CPU");
}

}  // namespace

c10::SmallVector<IValue, 4> RunOperator(const c10::OperatorHandle& op, const OpTraits& traits,
                                        c10::ArrayRef<IValue> arguments, Returned returned) {
  Call call(op, traits, arguments, returned);
  const DeviceScope scope(call.device().index());
  try {
    return call.Run();
  } catch (const c10::Error& error) {
    NoteError(error, traits.name.c_str());
    throw;
  } catch (const python_error& error) {
    NoteError(error, traits.name.c_str());
    throw;
  } catch (const pybind11::error_already_set& error) {  // of a Meta kernel that is Python code
    const pybind11::gil_scoped_acquire gil;
    python_error words;
    words.type = Py_NewRef(error.type().ptr());
    words.value = Py_NewRef(error.value().ptr());
    NoteError(words, traits.name.c_str());
    throw;
  }
}

void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OpTraits& traits = TraitsOf(op);
  const size_t count = traits.is_written.size();
  const c10::ArrayRef<IValue> arguments = c10::ArrayRef<IValue>(*stack).slice(stack->size() - count);
  auto results = RunOperator(op, traits, arguments, Returned::kAll);
  torch::jit::drop(*stack, count);
  for (IValue& result : results) stack->push_back(std::move(result));
}

namespace {

// The kernels of the CPU for medians read a dimension whose elements share memory as if they did not.
void OfSpread(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  IValue& self = (*stack)[stack->size() - op.schema().arguments().size()];
  if (at::has_internal_overlap(self.toTensor()) == at::MemOverlap::Yes) self = self.toTensor().contiguous();
  Fallback(op, keys, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* const name : {"median.dim_values", "nanmedian.dim_values"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&OfSpread>());
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse>()); }

// Torch would put these together from others; the kernels that the CPU has give its results, and faster. Others among
// them would get strides that torch.compile, which asks the Meta kernels, does not expect.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* const name : {"native_layer_norm",
                                 "native_group_norm",
                                 "_stack",
                                 "_stack.out",
                                 "addr",
                                 "addr.out",
                                 "abs",
                                 "complex",
                                 "polar",
                                 "logical_and",
                                 "logical_or",
                                 "logical_xor",
                                 "logical_not",
                                 "clamp.Tensor",
                                 "clamp_.Tensor",
                                 "isinf",
                                 "pow.Scalar",
                                 "soft_margin_loss_backward",
                                 "huber_loss_backward",
                                 "smooth_l1_loss_backward",
                                 "replication_pad2d"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  }
}

std::string InPlace(std::string name) {
  const size_t dot = name.find('.');
  return name.insert(dot == std::string::npos ? name.size() : dot, 1, '_');
}

// What torch would put together from others at each call, and the device computes at once.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const std::string& name : NativeOperators()) {
    for (const std::string& form : {name, InPlace(name)}) {
      const size_t dot = form.find('.');
      const auto op = c10::Dispatcher::singleton().findSchema(
          {"aten::" + form.substr(0, dot), dot == std::string::npos ? "" : form.substr(dot + 1)});
      if (op.has_value() && IsPutTogether(*op) && !IsUnboxed(form)) {
        m.impl(form.c_str(), torch::CppFunction::makeFromBoxedFunction<&Fallback>());
      }
    }
  }
}

}  // namespace
}  // namespace torch_npu
