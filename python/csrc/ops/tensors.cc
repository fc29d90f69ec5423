// SPDX-License-Identifier: Apache-2.0
#include "ops/tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/library.h>

#include "device/runtime.h"
#include "memory/device_allocator.h"

namespace torch_npu {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// A device for new tensors, initialised.
class OnDevice {
 public:
  explicit OnDevice(std::optional<c10::Device> device) {
    torch::utils::device_lazy_init(c10::kPrivateUse1);
    LazyInit();
    TORCH_CHECK(!device.has_value() || device->type() == c10::kPrivateUse1, "expected an npu device, got ", *device);
    index_ = device.has_value() && device->has_index() ? device->index() : CurrentDevice();
    before_ = ExchangeDevice(index_);
  }
  ~OnDevice() {
    if (before_ != index_) SetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex index_, before_;
};

void CheckOptions(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "npu tensors are strided; layout ", *layout,
              " is not supported");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "only dense CPU tensors can be pinned");
}

at::Tensor EmptyMemoryFormat(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                             std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                             std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  CheckOptions(layout, pin_memory);
  const OnDevice on(device);
  return at::detail::empty_generic(sizes, &DeviceMemory(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStridedOp(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                          std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                          std::optional<bool> pin_memory) {
  CheckOptions(layout, pin_memory);
  const OnDevice on(device);
  return at::detail::empty_strided_generic(sizes, strides, &DeviceMemory(), kKeys, c10::dtype_or_default(dtype));
}

const at::Tensor& ResizeOp(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  Resize(self, sizes);
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "resize_ does not support the memory format ", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& SetStorageOffset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                             c10::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  Resize(self, sizes, strides.data() != nullptr ? std::make_optional(strides) : std::nullopt);
  return self;
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const auto items = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return SetStorageOffset(self, std::move(source), 0, items, {});
}

void RecordStream(at::Tensor& self, c10::Stream stream) {
  DeviceMemory().recordStream(self.storage().data_ptr(), stream);
}

bool IsDenseOf(c10::DispatchKeySet keys, c10::BackendComponent backend) {
  return keys.has(c10::DispatchKey::Dense) && keys.has_backend(backend);
}

// Whether `self.data = from` may change what a tensor is made of, and where it lies, and leave it the same object.
// Torch knows this of its own devices; where it is false, Module.to() makes new parameters, and an optimizer keeps the
// old.
bool HasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) {
    return IsDenseOf(tensor.key_set(), c10::BackendComponent::CPUBit) ||
           IsDenseOf(tensor.key_set(), c10::BackendComponent::PrivateUse1Bit);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", HasCompatibleShallowCopyType);
  m.impl("empty.memory_format", EmptyMemoryFormat);
  m.impl("empty_strided", EmptyStridedOp);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", ResizeOp);
  m.impl("record_stream", RecordStream);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", SetStorage);
  m.impl("set_.source_Storage_storage_offset", SetStorageOffset);
}

}  // namespace

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, c10::Device device) {
  return EmptyStridedOp(sizes, strides, dtype, std::nullopt, device, std::nullopt);
}

at::Tensor EmptyOn(const NPUStream& stream, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t bytes,
                   at::ScalarType dtype) {
  void* const block = AllocateOn(stream, bytes);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(block, block, &FreeBlock, stream.device()),
                                                       &DeviceMemory(), /*resizable=*/true);
  at::Tensor made =
      at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), kKeys, c10::scalarTypeToTypeMeta(dtype));
  if (strides.empty()) {
    made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  return made;
}

at::Tensor Empty(c10::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  return EmptyMemoryFormat(sizes, dtype, std::nullopt, device, std::nullopt, std::nullopt);
}

void Resize(const at::Tensor& tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (impl->sizes() == sizes && (!strides.has_value() || impl->strides() == *strides)) return;
  if (strides.has_value()) {
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  const size_t bytes = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->dtype().itemsize(),
                                                        static_cast<size_t>(impl->storage_offset()));
  if (impl->numel() != 0 && bytes > impl->storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(impl->storage(), bytes);
  }
}

}  // namespace torch_npu
