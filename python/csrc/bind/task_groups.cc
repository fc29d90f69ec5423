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
  module.def("_graph_task_group_begin", [](const c10::Stream& stream) { TaskGroupBegin(NPUStream(stream)); });
  module.def("_graph_task_group_end", [](const c10::Stream& stream) { return TaskGroupEnd(NPUStream(stream)); });
  module.def("_graph_task_update_begin", [](const c10::Stream& stream, const NPUTaskGroupHandle& group) {
    TaskUpdateBegin(NPUStream(stream), group);
  });
  module.def("_graph_task_update_end", [](const c10::Stream& stream) { TaskUpdateEnd(NPUStream(stream)); });
}

}  // namespace torch_npu
