// SPDX-License-Identifier: Apache-2.0
#include "graph/npu_graph.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

#include "bind/bindings.h"

namespace torch_npu {
namespace {

reprise::CaptureMode ModeOf(const std::string& name) {
  if (name == "global") return reprise::CaptureMode::kGlobal;
  if (name == "thread_local") return reprise::CaptureMode::kThreadLocal;
  if (name == "relaxed") return reprise::CaptureMode::kRelaxed;
  TORCH_CHECK(false, "capture_error_mode is \"", name, "\": expected \"global\", \"thread_local\" or \"relaxed\"");
}

}  // namespace

void BindGraph(pybind11::module_& module) {
  namespace py = pybind11;
  using torch::wrap_pybind_function_no_gil;

  module.def("_graph_pool_handle", wrap_pybind_function_no_gil(&GraphPoolHandle));

  py::class_<NPUGraph, std::shared_ptr<NPUGraph>>(module, "_NPUGraph")
      .def(py::init([](bool keep_graph) { return std::make_shared<NPUGraph>(keep_graph); }),
           py::arg("keep_graph") = false)
      .def("capture_begin",
           wrap_pybind_function_no_gil(
               [](NPUGraph& self, std::optional<c10::MempoolId_t> pool, const std::string& mode, bool report_shape) {
                 self.capture_begin(pool.value_or(c10::MempoolId_t{0, 0}), ModeOf(mode), report_shape);
               }),
           py::arg("pool") = py::none(), py::arg("capture_error_mode") = "global", py::arg("report_shape") = true)
      .def("capture_end", wrap_pybind_function_no_gil(&NPUGraph::capture_end))
      .def("instantiate", wrap_pybind_function_no_gil(&NPUGraph::instantiate))
      .def("replay", wrap_pybind_function_no_gil(&NPUGraph::replay))
      .def("_mark_partial", &NPUGraph::mark_partial, py::arg("why"))
      .def("_forget_uses", &NPUGraph::forget_uses)
      .def("_set_waits_for_update", &NPUGraph::set_waits_for_update)
      .def("reset", wrap_pybind_function_no_gil([](NPUGraph& self) { self.reset(); }))
      .def("pool", wrap_pybind_function_no_gil(&NPUGraph::pool))
      .def_static("enable_debug_mode", wrap_pybind_function_no_gil(&NPUGraph::enable_debug_mode))
      .def("debug_dump", wrap_pybind_function_no_gil(&NPUGraph::debug_dump), py::arg("path"),
           py::arg("every_task") = false)
      .def("raw_npu_graph", wrap_pybind_function_no_gil(&NPUGraph::raw_graph))
      .def("raw_npu_graph_exec", wrap_pybind_function_no_gil(&NPUGraph::raw_executable))
      .def_static("get_currently_capturing_graph", wrap_pybind_function_no_gil(&NPUGraph::CurrentlyCapturing))
      .def("begin_capture_to_if_node", wrap_pybind_function_no_gil(&NPUGraph::begin_capture_to_if_node),
           py::arg("predicate"))
      .def("_abandon_conditional_node", wrap_pybind_function_no_gil(&NPUGraph::abandon_conditional_node),
           py::arg("why"))
      .def("end_capture_to_conditional_node", wrap_pybind_function_no_gil(&NPUGraph::end_capture_to_conditional_node));
}

}  // namespace torch_npu
