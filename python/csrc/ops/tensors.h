// SPDX-License-Identifier: Apache-2.0
//
// New device tensors, and sizes of existing ones. Metadata only; nothing here is queued but the copy of a storage that
// grows.
#pragma once

#include <ATen/core/Tensor.h>

#include "device/stream.h"

namespace torch_npu {

inline bool IsOnDevice(const at::Tensor& tensor) { return tensor.device().type() == c10::kPrivateUse1; }

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, c10::Device device);
at::Tensor Empty(c10::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);
/// Likewise, where sizes and strides (none: contiguous) were looked at before, and a storage of them was found to take
/// so many bytes: on the device that is current, for the stream.
at::Tensor EmptyOn(const NPUStream& stream, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t bytes,
                   at::ScalarType dtype);

/// Gives `tensor` these sizes (and strides; none: contiguous); its storage grows when it has to.
void Resize(const at::Tensor& tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides = std::nullopt);

}  // namespace torch_npu
