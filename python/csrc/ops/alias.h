// SPDX-License-Identifier: Apache-2.0
//
// Device memory seen by CPU kernels: tensors of another backend over the same bytes. Aliases of tensors that share a
// storage share one, too, so kernels see overlaps as they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <utility>

namespace torch_npu {

class Aliases {
 public:
  /// kCPU: over the memory, which is not owned; resized only if `resizable`, to memory of the host. kMeta: over
  /// nothing.
  explicit Aliases(c10::DeviceType type, bool resizable = false)
      : type_(type), resizable_(resizable || type == c10::kMeta) {}

  /// The alias of the tensor, one for each tensor: kernels that write an operand in place tell so by its identity.
  at::Tensor Of(const at::Tensor& tensor);
  /// Whether the tensor is an alias made here; and of which storage.
  const c10::StorageImpl* SourceOf(const at::Tensor& alias) const;

 private:
  struct Pair {
    c10::StorageImpl* source;  // borrowed
    c10::Storage alias;
  };
  c10::DeviceType type_;
  bool resizable_;
  c10::SmallVector<Pair, 4> storages_;
  c10::SmallVector<std::pair<const c10::TensorImpl*, at::Tensor>, 4> tensors_;
};

}  // namespace torch_npu
