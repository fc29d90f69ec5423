// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "bind/bindings.h"
#include "graph/task_group.h"

namespace torch_npu {
namespace {

// The same place in memory with the same metadata, which does not keep it alive.
at::Tensor WeakReference(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_privateuseone() && tensor.layout() == c10::kStrided,
              "a weak reference is made of a strided tensor of an npu device, not of ", tensor.toString());
  const c10::Storage& whole = tensor.storage();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), whole.nbytes(),
                                                             c10::DataPtr(whole.mutable_data(), tensor.device()),
                                                             /*allocator=*/nullptr, /*resizable=*/false));
  at::Tensor weak = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), tensor.key_set(), tensor.dtype());
  weak.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return weak;
}

}  // namespace

void BindTaskGroups(pybind11::module_& module) {
  namespace py = pybind11;
  py::class_<NPUTaskGroupHandle>(module, "_NPUTaskGroupHandle")
      .def_property_readonly("task_group", [](const NPUTaskGroupHandle& handle) {
        return reinterpret_cast<uintptr_t>(handle.task_group);
      });
  module.def("_weak_ref_tensor", &WeakReference);
  module.def("_graph_task_group_begin", [](const c10::Stream& stream) { TaskGroupBegin(NPUStream(stream)); });
  module.def("_graph_task_group_end", [](const c10::Stream& stream) { return TaskGroupEnd(NPUStream(stream)); });
  module.def("_graph_task_update_begin", [](const c10::Stream& stream, const NPUTaskGroupHandle& group) {
    TaskUpdateBegin(NPUStream(stream), group);
  });
  module.def("_graph_task_update_end", [](const c10::Stream& stream) { TaskUpdateEnd(NPUStream(stream)); });
}

}  // namespace torch_npu
