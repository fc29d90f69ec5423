// SPDX-License-Identifier: Apache-2.0
//
// Memory of the device in the hands of others: CPU code of this process, and other processes.
#include <ATen/EmptyTensor.h>
#include <acl/acl_rt.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "bind/bindings.h"
#include "common/error.h"

namespace torch_npu {
namespace {

namespace py = pybind11;

constexpr size_t kKeyBytes = 65;  // what aclrtIpcMemGetExportKey writes at most

/// A tensor of the CPU over the same bytes, which keeps them. Nothing waits for the work that may be pending on them.
at::Tensor HostView(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().type() == c10::kPrivateUse1, "_npu_hostView takes tensors of npu devices, not of ",
              tensor.device());
  TORCH_CHECK(tensor.layout() == c10::kStrided && tensor.has_storage(), "_npu_hostView takes dense tensors");
  auto keeper = std::make_unique<c10::Storage>(tensor.storage());
  c10::DataPtr data(
      keeper->mutable_data(), keeper.get(), [](void* held) { delete static_cast<c10::Storage*>(held); },
      c10::Device(c10::kCPU));
  const size_t bytes = keeper->nbytes();
  (void)keeper.release();  // the pointer deletes it
  c10::Storage over(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                          nullptr, false));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(over), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return view;
}

/// Called when the last tensor over borrowed memory is gone, in whatever thread.
void CallAndForget(void* held) {
  if (Py_IsInitialized() == 0) return;  // the process ends, and what was borrowed goes with it
  py::gil_scoped_acquire gil;
  PyObject* const callback = static_cast<PyObject*>(held);
  PyObject* const result = PyObject_CallNoArgs(callback);
  if (result == nullptr) PyErr_WriteUnraisable(callback);
  Py_XDECREF(result);
  Py_DECREF(callback);
}

py::object StorageOver(uint64_t address, size_t bytes, const c10::Device& device, const py::function& release) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers in Python
  void* const data = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  py::object callback = release;
  c10::DataPtr pointer(data, callback.release().ptr(), &CallAndForget, device);
  return py::reinterpret_steal<py::object>(THPStorage_Wrap(c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer), nullptr, false))));
}

}  // namespace

void BindShare(py::module_& module) {
  module.def("_npu_hostView", torch::wrap_pybind_function(&HostView));
  module.def("_npu_storageOver", torch::wrap_pybind_function(&StorageOver));
  module.def("_npu_exportMemory", torch::wrap_pybind_function([](uint64_t address, size_t bytes) {
               std::array<char, kKeyBytes> key{};
               // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers in Python
               void* const data = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
               Check(aclrtIpcMemGetExportKey(data, bytes, key.data(), key.size(),
                                             ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION),
                     "aclrtIpcMemGetExportKey");
               return std::string(key.data());
             }));
  module.def("_npu_importMemory", torch::wrap_pybind_function([](const std::string& key) {
               void* data = nullptr;
               Check(aclrtIpcMemImportByKey(&data, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT),
                     "aclrtIpcMemImportByKey");
               return reinterpret_cast<uint64_t>(data);
             }));
  module.def("_npu_closeMemory", torch::wrap_pybind_function([](const std::string& key) {
               Check(aclrtIpcMemClose(key.c_str()), "aclrtIpcMemClose");
             }));
  module.def("_npu_toolkitVersion", torch::wrap_pybind_function([](const std::string& package) {
               static const std::map<std::string, aclCANNPackageName> kPackages = {
                   {"CANN", ACL_PKG_NAME_CANN},
                   {"RUNTIME", ACL_PKG_NAME_RUNTIME},
                   {"COMPILER", ACL_PKG_NAME_COMPILER},
                   {"HCCL", ACL_PKG_NAME_HCCL},
                   {"TOOLKIT", ACL_PKG_NAME_TOOLKIT},
                   {"OPP", ACL_PKG_NAME_OPP},
                   {"OPP_KERNEL", ACL_PKG_NAME_OPP_KERNEL},
                   {"DRIVER", ACL_PKG_NAME_DRIVER}};
               const auto found = kPackages.find(package);
               aclCANNPackageVersion version{};
               if (found == kPackages.end() || aclsysGetCANNVersion(found->second, &version) != 0) return std::string();
               return std::string(version.version);
             }));
}

}  // namespace torch_npu
