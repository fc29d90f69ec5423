// SPDX-License-Identifier: Apache-2.0
#include "ops/alias.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

namespace torch_npu {

at::Tensor Aliases::Of(const at::Tensor& tensor) {
  // Inference tensors: no version counters, no autograd keys.
  const c10::InferenceMode inference;
  c10::StorageImpl* const source = tensor.storage().unsafeGetStorageImpl();
  const c10::Storage* storage = nullptr;
  for (const Pair& pair : storages_) {
    if (pair.source == source) storage = &pair.alias;
  }
  if (storage == nullptr) {
    void* const data = type_ == c10::kCPU ? const_cast<void*>(tensor.storage().data()) : nullptr;
    c10::Storage made(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), source->sym_nbytes(), c10::DataPtr(data, c10::Device(type_)),
        type_ == c10::kMeta ? c10::GetAllocator(c10::kMeta) : nullptr, /*resizable=*/type_ == c10::kMeta));
    storages_.push_back({source, std::move(made)});
    storage = &storages_.back().alias;
  }
  const auto key = type_ == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
  at::Tensor alias =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(*storage), c10::DispatchKeySet(key), tensor.dtype());
  c10::TensorImpl* const impl = alias.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return alias;
}

const c10::StorageImpl* Aliases::SourceOf(const at::Tensor& alias) const {
  for (const Pair& pair : storages_) {
    if (pair.alias.unsafeGetStorageImpl() == alias.storage().unsafeGetStorageImpl()) return pair.source;
  }
  return nullptr;
}

}  // namespace torch_npu
