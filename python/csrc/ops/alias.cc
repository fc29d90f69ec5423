// SPDX-License-Identifier: Apache-2.0
#include "ops/alias.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

#include <optional>

#include "graph/liveness.h"

namespace torch_npu {

at::Tensor Aliases::Of(const at::Tensor& tensor) {
  const c10::TensorImpl* const from = tensor.unsafeGetTensorImpl();
  for (const auto& [known, alias] : tensors_) {
    if (known == from) return alias;
  }
  // Inference tensors: no version counters, no autograd keys.
  std::optional<c10::InferenceMode> inference;
  if (!c10::InferenceMode::is_enabled()) inference.emplace();
  c10::StorageImpl* const source = from->unsafe_storage().unsafeGetStorageImpl();
  const c10::Storage* storage = nullptr;
  for (const Pair& pair : storages_) {
    if (pair.source == source) storage = &pair.alias;
  }
  if (storage == nullptr) {
    // Reading the address must not copy memory that is shared until it is written.
    if (type_ == c10::kCPU) NoteUse(*source);
    void* const data = type_ == c10::kCPU ? const_cast<void*>(source->data()) : nullptr;
    c10::Storage made(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), source->nbytes(), c10::DataPtr(data, c10::Device(type_)),
        resizable_ ? c10::GetAllocator(type_) : nullptr, resizable_));
    storages_.push_back({source, std::move(made)});
    storage = &storages_.back().alias;
  }
  const auto key = type_ == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
  at::Tensor alias =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(*storage), c10::DispatchKeySet(key), tensor.dtype());
  c10::TensorImpl* const impl = alias.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  if (from->is_wrapped_number()) impl->set_wrapped_number(true);
  // Most operators never see these bits; products of matrices take them as they are.
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  tensors_.emplace_back(from, alias);
  return alias;
}

const c10::StorageImpl* Aliases::SourceOf(const at::Tensor& alias) const {
  if (!alias.has_storage()) return nullptr;
  for (const Pair& pair : storages_) {
    if (pair.alias.unsafeGetStorageImpl() == alias.storage().unsafeGetStorageImpl()) return pair.source;
  }
  return nullptr;
}

}  // namespace torch_npu
