// SPDX-License-Identifier: Apache-2.0
#include "graph/host_function.h"

#include "bind/bindings.h"

namespace torch_npu {

void BindHostFunctions(pybind11::module_& module) {
  namespace py = pybind11;
  module.def("_npu_launchHostFunc", [](py::handle stream, py::object function, py::object data) {
    LaunchHostFunction(StreamOf(stream), std::move(function), std::move(data));
  });
  module.def("_npu_launchHostFuncPending", [](py::handle stream, py::object function, const py::object& args) {
    LaunchPendingHostFunction(StreamOf(stream), std::move(function), args);
  });
  module.def("_npu_runPendingHostFuncs", &RunPendingHostFunctions);
  module.def("_npu_launchCallback", [](py::handle stream, py::object function, py::object data) {
    LaunchCallback(StreamOf(stream), std::move(function), std::move(data));
  });
  module.def("_npu_subscribeReport", [](py::handle stream) { SubscribeReport(StreamOf(stream)); });
  module.def("_npu_unsubscribeReport", [](py::handle stream) { UnsubscribeReport(StreamOf(stream)); });
}

}  // namespace torch_npu
