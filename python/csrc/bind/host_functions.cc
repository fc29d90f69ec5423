// SPDX-License-Identifier: Apache-2.0
#include "graph/host_function.h"

#include "bind/bindings.h"

namespace torch_npu {

void BindHostFunctions(pybind11::module_& module) {
  namespace py = pybind11;
  module.def("_npu_launchHostFunc", [](const c10::Stream& stream, py::object function, py::object data) {
    LaunchHostFunction(NPUStream(stream), std::move(function), std::move(data));
  });
  module.def("_npu_launchHostFuncPending", [](const c10::Stream& stream, py::object function, const py::object& args) {
    LaunchPendingHostFunction(NPUStream(stream), std::move(function), args);
  });
  module.def("_npu_runPendingHostFuncs", &RunPendingHostFunctions);
  module.def("_npu_launchCallback", [](const c10::Stream& stream, py::object function, py::object data) {
    LaunchCallback(NPUStream(stream), std::move(function), std::move(data));
  });
  module.def("_npu_subscribeReport", [](const c10::Stream& stream) { SubscribeReport(NPUStream(stream)); });
  module.def("_npu_unsubscribeReport", [](const c10::Stream& stream) { UnsubscribeReport(NPUStream(stream)); });
}

}  // namespace torch_npu
