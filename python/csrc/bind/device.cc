// SPDX-License-Identifier: Apache-2.0
#include "bind/bindings.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "rng/generator.h"

#include <torch/csrc/Generator.h>

namespace torch_npu {

void BindDevice(pybind11::module_& module) {
  namespace py = pybind11;
  module.def("_npu_init", [] {
    LazyInit();
    EnsureContext();
  });
  module.def("_npu_shutdown", &Shutdown);
  module.def("_npu_getDeviceCount", [] { return static_cast<int>(DeviceCount()); });
  module.def("_npu_getDevice", [] { return static_cast<int>(CurrentDevice()); });
  module.def("_npu_setDevice", [](int device) { SetDevice(static_cast<c10::DeviceIndex>(device)); });
  module.def("_npu_synchronize", [](int device) { SynchronizeDevice(static_cast<c10::DeviceIndex>(device)); });
  module.def("_npu_isInitialized", &IsInitialized);
  module.def("_npu_isCurrentStreamCapturing", [] { return IsInitialized() && CurrentStream().is_capturing(); });
  module.def("_npu_defaultGenerator", [](int device) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(DefaultGenerator(static_cast<c10::DeviceIndex>(device))));
  });
}

}  // namespace torch_npu
