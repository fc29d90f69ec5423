// SPDX-License-Identifier: Apache-2.0
#include "ops/meta_pass.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/DefaultDtype.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "ops/alias.h"
#include "ops/kernel_scope.h"
#include "ops/tensors.h"
#include "ops/values.h"

namespace torch_npu {
namespace {

using c10::IValue;

// Marks in front of the numbers of a value, so that different values never give equal numbers.
enum Mark : int64_t { kNone, kUndefined, kDevice, kHostScalar, kInt, kDouble, kBool, kComplex, kText, kPlace, kDraw };
constexpr int64_t kList = 1 << 8;
constexpr int64_t kTensor = 1 << 9;

uint64_t HashOf(c10::ArrayRef<int64_t> words) {
  // Four that do not wait for each other.
  uint64_t hash[4] = {0x9e3779b97f4a7c15, words.size(), 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9};
  const auto take = [](uint64_t& to, int64_t word) {
    to = (to ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccd;
    to ^= to >> 32;
  };
  size_t i = 0;
  for (; i + 3 < words.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) take(hash[k], words[i + k]);
  }
  for (; i < words.size(); ++i) take(hash[i % 4], words[i]);
  for (size_t k = 1; k < 4; ++k) take(hash[0], static_cast<int64_t>(hash[k]));
  return hash[0];
}

int64_t BitsOf(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// No modes of Python, which would see the tensors of the Meta kernels.
class NoTorchFunction {
 public:
  NoTorchFunction() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~NoTorchFunction() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  NoTorchFunction(const NoTorchFunction&) = delete;
  NoTorchFunction& operator=(const NoTorchFunction&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

// Sets of four places each; the oldest makes room.
class AnnouncementCache {
 public:
  std::shared_ptr<const Announcement> Find(const MetaKey& key) {
    Part& part = PartOf(key);
    const std::lock_guard lock(part.mutex);
    for (const Place& place : part.SetOf(key).places) {
      if (place.answer && place.hash == key.hash() && c10::ArrayRef<int64_t>(place.words) == key.words()) {
        CountHit();
        return place.answer;
      }
    }
    misses_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }

  void Keep(const MetaKey& key, std::shared_ptr<const Announcement> answer) {
    Part& part = PartOf(key);
    const std::lock_guard lock(part.mutex);
    Set& set = part.SetOf(key);
    Place& place = set.places[set.next++ % kPlaces];
    place.hash = key.hash();
    place.words.assign(key.words().begin(), key.words().end());
    place.answer.swap(answer);
  }

  // May lose some that several threads count at a time.
  void CountHit() { hits_.store(hits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  MetaCounts counts() const { return {hits_.load(), misses_.load()}; }

 private:
  static constexpr size_t kParts = 16, kSets = 128, kPlaces = 4;
  struct Place {
    uint64_t hash = 0;
    std::vector<int64_t> words;
    std::shared_ptr<const Announcement> answer;
  };
  struct Set {
    std::array<Place, kPlaces> places;
    unsigned next = 0;
  };
  struct Part {
    std::mutex mutex;
    std::array<Set, kSets> sets;
    Set& SetOf(const MetaKey& key) { return sets[(key.hash() >> 8) % kSets]; }
  };
  Part& PartOf(const MetaKey& key) { return parts_[key.hash() % kParts]; }

  std::array<Part, kParts> parts_;
  std::atomic<uint64_t> hits_{0}, misses_{0};
};

AnnouncementCache& TheCache() {
  static auto* const memory = new AnnouncementCache;
  return *memory;
}

// The arguments as the Meta kernel takes them; numbers of the host that are tensors as what they are, or like those of
// the device.
torch::jit::Stack OnMeta(const OpTraits& traits, c10::ArrayRef<IValue> arguments, Aliases& aliases, bool with_host) {
  bool is_first = true;
  torch::jit::Stack values;
  values.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (static_cast<int>(i) == traits.generator) {
      values.emplace_back();
    } else if (arguments[i].isDevice()) {
      values.emplace_back(c10::Device(c10::kMeta));
    } else {
      values.push_back(WithTensors(arguments[i], [&](const at::Tensor& tensor) {
        // Scalars of the host stay what they are, but where the first tensor decides about the device.
        const bool decides = std::exchange(is_first, false) && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
        return IsOnDevice(tensor) || tensor.dim() != 0 || decides || with_host ? aliases.Of(tensor) : tensor;
      }));
    }
  }
  return values;
}

bool HasNumberOfHost(c10::ArrayRef<IValue> arguments) {
  bool any = false;
  for (const IValue& value : arguments) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      any |= !IsOnDevice(tensor) && tensor.dim() == 0 && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    });
  }
  return any;
}

void CallMeta(const OpTraits& traits, torch::jit::Stack& stack) {
  const PlainKeys keys;
  const NoTorchFunction no_modes;
  const at::DisableRecordFunctionGuard unseen;  // profiles show what the program called, not how shapes are found
  traits.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

// What the Meta kernel makes of the arguments; `metas`: its arguments, over `aliases`.
torch::jit::Stack AskMeta(const OpTraits& traits, c10::ArrayRef<IValue> arguments, Aliases& aliases,
                          torch::jit::Stack& metas) {
  metas = OnMeta(traits, arguments, aliases, false);
  torch::jit::Stack stack = metas;
  try {
    CallMeta(traits, stack);
    return stack;
  } catch (const std::exception&) {
    // Some look for one device where kernels take numbers of the host.
    if (!HasNumberOfHost(arguments)) throw;
    aliases = Aliases(c10::kMeta);
    metas = OnMeta(traits, arguments, aliases, true);
    stack = metas;
    bool takes_them = true;
    try {
      CallMeta(traits, stack);
    } catch (const std::exception&) {
      takes_them = false;
    }
    if (!takes_them) throw;
    return stack;
  }
}

int SourceOf(c10::ArrayRef<IValue> arguments, const c10::StorageImpl* storage) {
  int found = -1;
  int number = 0;
  for (const IValue& value : arguments) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (found < 0 && tensor.storage().unsafeGetStorageImpl() == storage) found = number;
      ++number;
    });
  }
  return found;
}

// Kernels find overlaps when they run; the program should hear of them at the call.
void CheckOverlaps(const OpTraits& traits, c10::ArrayRef<IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!traits.is_written[i]) continue;
    ForEachTensor(arguments[i], [&](const at::Tensor& written) {
      at::assert_no_internal_overlap(written);
      for (size_t j = 0; j < arguments.size(); ++j) {
        if (traits.is_written[j]) continue;
        ForEachTensor(arguments[j], [&](const at::Tensor& read) {
          if (read.is_alias_of(written)) at::assert_no_partial_overlap(written, read);
        });
      }
    });
  }
}

AnnouncedTensor Describe(const OpTraits& traits, const at::Tensor& meta, c10::ArrayRef<IValue> arguments,
                         const Aliases& aliases) {
  AnnouncedTensor tensor;
  if (!meta.defined()) return tensor;
  TORCH_CHECK_NOT_IMPLEMENTED(meta.layout() == c10::kStrided && !c10::isQIntType(meta.scalar_type()), traits.name,
                              " is not supported on npu: it returns ", meta.toString(),
                              ", and tensors there are strided and dense; do this on the CPU");
  tensor.kind = AnnouncedTensor::Kind::kNew;
  tensor.dtype = meta.scalar_type();
  tensor.sizes.assign(meta.sizes().begin(), meta.sizes().end());
  if (const c10::StorageImpl* const storage = aliases.SourceOf(meta)) {
    tensor.kind = AnnouncedTensor::Kind::kPart;
    tensor.source = SourceOf(arguments, storage);
    tensor.offset = meta.storage_offset();
    tensor.is_conj = meta.is_conj();
    tensor.is_neg = meta.is_neg();
  } else if (!meta.is_non_overlapping_and_dense()) {
    return tensor;
  }
  tensor.strides.assign(meta.strides().begin(), meta.strides().end());
  return tensor;
}

// What is read and written in place keeps its size. Kernels that find their operands by identity say so themselves;
// Meta kernels in Python take each operand for another tensor.
void CheckStaysInPlace(const OpTraits& traits, c10::ArrayRef<IValue> arguments, const at::Tensor& written,
                       c10::IntArrayRef sizes) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (traits.is_written[i]) continue;
    ForEachTensor(arguments[i], [&](const at::Tensor& read) {
      TORCH_CHECK(traits.is_out_form && !read.is_same(written), "output with shape ", written.sizes(),
                  " doesn't match the broadcast shape ", sizes, " (", traits.name, " works in place)");
    });
  }
}

// out= arguments get the sizes that the Meta kernel gave theirs; the warning about that was its. True if any did.
bool ResizeWritten(const OpTraits& traits, c10::ArrayRef<IValue> arguments, c10::ArrayRef<IValue> metas) {
  bool changed = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!traits.is_written[i]) continue;
    c10::SmallVector<at::Tensor, 2> of_argument;
    ForEachTensor(metas[i], [&](const at::Tensor& meta) { of_argument.push_back(meta); });
    size_t next = 0;
    ForEachTensor(arguments[i], [&](const at::Tensor& tensor) {
      const at::Tensor& meta = of_argument[next++];
      if (!IsOnDevice(tensor) || (tensor.sizes() == meta.sizes() && tensor.strides() == meta.strides())) return;
      if (tensor.sizes() != meta.sizes()) CheckStaysInPlace(traits, arguments, tensor, meta.sizes());
      changed = true;
      Resize(tensor, meta.sizes(), meta.strides());
    });
  }
  return changed;
}

// What a Meta kernel would return.
torch::jit::Stack LikeArguments(const OpTraits& traits, c10::ArrayRef<IValue> metas) {
  torch::jit::Stack results;
  for (const LikeArgument& like : traits.like) {
    const at::Tensor& meta = metas[static_cast<size_t>(like.argument)].toTensor();
    results.emplace_back(at::Tensor(at::detail::empty_meta(meta.sizes(), like.dtype.value_or(meta.scalar_type()))));
  }
  return results;
}

bool WritesNothing(const OpTraits& traits, c10::ArrayRef<IValue> arguments, const Announcement& answer) {
  bool any = false;
  bool any_elements = false;
  for (const AnnouncedReturn& value : answer.returns) {
    for (const AnnouncedTensor& tensor : value.tensors) {
      any = true;
      any_elements |= tensor.kind != AnnouncedTensor::Kind::kUndefined && c10::multiply_integers(tensor.sizes) != 0;
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!traits.is_written[i]) continue;
    any = true;
    ForEachTensor(arguments[i], [&](const at::Tensor& tensor) { any_elements |= tensor.numel() != 0; });
  }
  return any && !any_elements;
}

}  // namespace

MetaKey::MetaKey(const OpTraits& traits, c10::ArrayRef<IValue> arguments) : traits_(traits) {
  words_.push_back(reinterpret_cast<intptr_t>(&traits));
  words_.push_back((static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) << 1) |
                   static_cast<int64_t>(at::globalContext().deterministicAlgorithms()));
  for (const IValue& value : arguments) Add(value);
}

uint64_t MetaKey::hash() const {
  if (hash_ == 0) hash_ = HashOf(words_);
  return hash_;
}

void MetaKey::Add(const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const int64_t dims = impl->dim();
  const bool on_device = IsOnDevice(tensor);
  const int64_t flags = (static_cast<int64_t>(tensor.scalar_type()) << 32) | (dims << 16) | kTensor |
                        (impl->is_wrapped_number() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) | (tensor.is_neg() ? 4 : 0) |
                        (on_device ? 8 : 0);
  if (!on_device && dims == 0) {
    words_.push_back(flags);
    int64_t value[2] = {};
    std::memcpy(value, tensor.const_data_ptr(), std::min(sizeof value, tensor.dtype().itemsize()));
    auto& to = traits_.is_pointwise ? values_ : static_cast<c10::SmallVectorImpl<int64_t>&>(words_);
    to.append({value[0], value[1]});
    return;
  }
  const size_t before = words_.size();
  words_.resize_for_overwrite(before + 2 * static_cast<size_t>(dims) + 3);
  int64_t* to = words_.data() + before;
  *to++ = flags;
  const int64_t* const sizes = impl->sizes().data();
  const int64_t* const strides = impl->strides().data();
  for (int64_t d = 0; d < dims; ++d, to += 2) {
    to[0] = sizes[d];
    to[1] = strides[d];
  }
  *to++ = impl->storage_offset();
  const void* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  size_t index = 0;
  while (index < storages_.size() && storages_[index] != storage) ++index;
  if (index == storages_.size()) storages_.push_back(storage);
  *to = static_cast<int64_t>(index);
}

void MetaKey::AddItems(c10::ArrayRef<IValue> items) {
  words_.append({kList, static_cast<int64_t>(items.size())});
  for (const IValue& item : items) Add(item);
}

// In the order in which calls have them most.
void MetaKey::Add(const IValue& value) {
  if (value.isTensor()) {
    value.toTensor().defined() ? Add(value.toTensor()) : words_.push_back(kUndefined);
  } else if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isInt()) {
    words_.append({kInt, value.toInt()});
  } else if (value.isBool()) {
    words_.append({kBool, value.toBool()});
  } else if (value.isDouble()) {
    words_.append({kDouble, BitsOf(value.toDouble())});
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    words_.append({kComplex, BitsOf(number.real()), BitsOf(number.imag())});
  } else if (value.isTensorList()) {
    AddItems(value.toListRef());
  } else if (value.isIntList()) {
    const std::vector<int64_t> numbers = value.toIntVector();
    words_.append({kList | kInt, static_cast<int64_t>(numbers.size())});
    words_.append(numbers.begin(), numbers.end());
  } else if (value.isDoubleList()) {
    const std::vector<double> numbers = value.toDoubleVector();
    words_.append({kList | kDouble, static_cast<int64_t>(numbers.size())});
    for (const double number : numbers) words_.push_back(BitsOf(number));
  } else if (value.isBoolList()) {
    const c10::List<bool> flags = value.toBoolList();
    words_.append({kList | kBool, static_cast<int64_t>(flags.size())});
    for (const bool flag : flags) words_.push_back(flag ? 1 : 0);
  } else if (value.isList()) {
    AddItems(value.toListRef());
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    words_.append({kText, static_cast<int64_t>(text.size())});
    for (size_t i = 0; i < text.size(); i += sizeof(int64_t)) {
      int64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min(sizeof word, text.size() - i));
      words_.push_back(word);
    }
  } else if (value.isDevice()) {
    words_.push_back(kPlace);  // results are made on the device of the call
  } else if (value.isGenerator()) {
    words_.push_back(kDraw);
  } else {
    is_complete_ = false;
  }
}

std::shared_ptr<const Announcement> Announce(const OpTraits& traits, c10::ArrayRef<IValue> arguments,
                                             const MetaKey& key, bool& was_known) {
  was_known = false;
  if (key.is_complete()) {
    if (std::shared_ptr<const Announcement> known = TheCache().Find(key)) {
      was_known = true;
      return known;
    }
  }
  Aliases aliases(c10::kMeta);
  torch::jit::Stack metas;
  torch::jit::Stack stack;
  bool changed = false;
  if (traits.has_meta) {
    stack = AskMeta(traits, arguments, aliases, metas);
    if (traits.check != nullptr) traits.check(arguments);
    changed = ResizeWritten(traits, arguments, metas);
    if (traits.is_out_form || traits.is_in_place) CheckOverlaps(traits, arguments);
  } else {
    metas = OnMeta(traits, arguments, aliases, false);
    stack = LikeArguments(traits, metas);
  }
  auto answer = std::make_shared<Announcement>();
  for (size_t i = 0; i < traits.returns_argument.size(); ++i) {
    AnnouncedReturn& value = answer->returns.emplace_back();
    value.argument = traits.returns_argument[i];
    if (value.argument >= 0) continue;
    TORCH_CHECK(i < stack.size(), traits.name, ": its Meta kernel returned ", stack.size(), " values");
    value.is_list = stack[i].isList();
    if (value.is_list) {
      for (const IValue& item : stack[i].toListRef()) {
        value.tensors.push_back(Describe(traits, item.isTensor() ? item.toTensor() : at::Tensor(), arguments, aliases));
      }
    } else {
      value.tensors.push_back(
          Describe(traits, stack[i].isTensor() ? stack[i].toTensor() : at::Tensor(), arguments, aliases));
    }
  }
  answer->is_empty = WritesNothing(traits, arguments, *answer);
  if (key.is_complete() && !changed) TheCache().Keep(key, answer);
  return answer;
}

std::shared_ptr<const Announcement> FindAnnounced(const MetaKey& key) {
  return key.is_complete() ? TheCache().Find(key) : nullptr;
}

void KeepAnnounced(const MetaKey& key, const OpTraits& traits, c10::ArrayRef<IValue> arguments,
                   c10::ArrayRef<IValue> results) {
  if (!key.is_complete()) return;
  auto answer = std::make_shared<Announcement>();
  for (size_t i = 0; i < traits.returns_argument.size(); ++i) {
    AnnouncedReturn& value = answer->returns.emplace_back();
    value.argument = traits.returns_argument[i];
    if (value.argument >= 0) continue;
    if (i >= results.size() || !results[i].isTensor()) return;
    const at::Tensor& made = results[i].toTensor();
    if (!made.defined() || !IsOnDevice(made) || made.storage_offset() != 0 || !made.is_non_overlapping_and_dense() ||
        made.is_conj() || made.is_neg() || SourceOf(arguments, made.storage().unsafeGetStorageImpl()) >= 0) {
      return;
    }
    AnnouncedTensor& tensor = value.tensors.emplace_back();
    tensor.kind = AnnouncedTensor::Kind::kNew;
    tensor.dtype = made.scalar_type();
    tensor.sizes.assign(made.sizes().begin(), made.sizes().end());
    tensor.strides.assign(made.strides().begin(), made.strides().end());
  }
  answer->is_empty = WritesNothing(traits, arguments, *answer);
  TheCache().Keep(key, std::move(answer));
}

MetaCounts CountsOfMetaPass() { return TheCache().counts(); }
void CountKnownAnswer() { TheCache().CountHit(); }

}  // namespace torch_npu
