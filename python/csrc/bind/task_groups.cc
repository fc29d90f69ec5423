// SPDX-License-Identifier: Apache-2.0
#include "bind/bindings.h"
#include "graph/task_group.h"

namespace torch_npu {

void BindTaskGroups(pybind11::module_& module) {
  namespace py = pybind11;
  py::class_<NPUTaskGroupHandle>(module, "_NPUTaskGroupHandle")
      .def_property_readonly("task_group", [](const NPUTaskGroupHandle& handle) {
        return reinterpret_cast<uintptr_t>(handle.task_group);
      });
  module.def("_graph_task_group_begin", [](py::handle stream) { TaskGroupBegin(StreamOf(stream)); });
  module.def("_graph_task_group_end", [](py::handle stream) { return TaskGroupEnd(StreamOf(stream)); });
  module.def("_graph_task_update_begin",
             [](py::handle stream, const NPUTaskGroupHandle& group) { TaskUpdateBegin(StreamOf(stream), group); });
  module.def("_graph_task_update_end", [](py::handle stream) { TaskUpdateEnd(StreamOf(stream)); });
}

}  // namespace torch_npu
