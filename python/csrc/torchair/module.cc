// SPDX-License-Identifier: Apache-2.0
//
// torchair.core._torchair: graphs of the engine for Python.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <acl/acl.h>

#include <cstdlib>

#include "torchair/engine.h"
#include "torchair/graph.h"
#include "torchair/log.h"

namespace torchair {
namespace {

namespace py = pybind11;

// The stream of the calling thread. torch_npu._C is asked, whose streams these are.
void* CurrentStream() {
  static PyObject* const function = [] {
    auto module = py::module_::import("torch_npu._C");
    return py::object(module.attr("_npu_getCurrentRawStream")).release().ptr();
  }();
  static PyObject* const current = PyLong_FromLong(-1);
  auto handle = py::reinterpret_steal<py::object>(PyObject_CallOneArg(function, current));
  if (!handle) throw py::error_already_set();
  return PyLong_AsVoidPtr(handle.ptr());
}

// With `optional`, entries may be None.
std::vector<at::Tensor> TensorsOf(py::handle list, const char* what, bool optional) {
  TORCH_CHECK(PyList_Check(list.ptr()) || PyTuple_Check(list.ptr()), what, " are not a list or tuple, but a ",
              Py_TYPE(list.ptr())->tp_name);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(list.ptr());
  PyObject** const items = PySequence_Fast_ITEMS(list.ptr());
  std::vector<at::Tensor> tensors(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (items[i] == Py_None) {
      TORCH_CHECK(optional, what, ": element ", i, " is None");
      continue;
    }
    TORCH_CHECK(THPVariable_Check(items[i]), what, ": element ", i, " is not a Tensor, but a ",
                Py_TYPE(items[i])->tp_name);
    tensors[static_cast<size_t>(i)] = THPVariable_Unpack(items[i]);
  }
  return tensors;
}

py::list Run(NpuGraph& graph, py::handle arguments) {
  TORCH_CHECK(PyTuple_Check(arguments.ptr()) && PyTuple_GET_SIZE(arguments.ptr()) == 3,
              "run takes a tuple of inputs, assigned outputs and a stream");
  auto inputs = TensorsOf(PyTuple_GET_ITEM(arguments.ptr(), 0), "inputs", false);
  const auto assigned = TensorsOf(PyTuple_GET_ITEM(arguments.ptr(), 1), "assigned outputs", true);
  void* const stream = CurrentStream();
  std::vector<at::Tensor> outputs;
  {
    const py::gil_scoped_release released;
    outputs = graph.Run(inputs, assigned, stream);
  }
  py::list result(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(outputs[i])));
  }
  return result;
}

py::tuple RegisteredIr(const std::string& type) {
  Names inputs;
  Names outputs;
  Names attributes;
  if (!FindOperator(type, inputs, outputs, attributes)) return py::make_tuple("ERROR", inputs, outputs, attributes);
  return py::make_tuple("SUCCESS", inputs, outputs, attributes);
}

// Empty, or why an operator cannot be used.
std::string WhyIncompatible(const std::string& type, const std::vector<std::string>& optional_inputs,
                            const std::vector<std::string>& optional_attributes) {
  Names inputs;
  Names outputs;
  Names attributes;
  if (!FindOperator(type, inputs, outputs, attributes)) return "operator " + type + " is not registered";
  const auto missing = [](const std::vector<std::string>& names, const Names& known) -> std::string {
    for (const std::string& name : names) {
      bool found = false;
      for (const auto& entry : known) found = found || entry.first == name;
      if (!found) return name;
    }
    return "";
  };
  if (const auto name = missing(optional_inputs, inputs); !name.empty())
    return "input " + name + " is not supported by " + type;
  if (const auto name = missing(optional_attributes, attributes); !name.empty()) {
    return "attribute " + name + " is not supported by " + type;
  }
  return "";
}

void SetDump(const std::string& file) {
  constexpr int kRunsAlready = 100044;
  const int begun = aclmdlInitDump();
  TORCH_CHECK(begun == ACL_SUCCESS || begun == kRunsAlready, "aclmdlInitDump failed: ", begun);
  const int status = aclmdlSetDump(file.c_str());
  if (status == ACL_SUCCESS) return;
  const char* const words = aclGetRecentErrMsg();
  TORCH_CHECK(false, "aclmdlSetDump(", file, ") failed (", status, "): ", words == nullptr ? "" : words);
}

}  // namespace

PYBIND11_MODULE(_torchair, module) {
  module.def("InitializeGraphEngine", torch::wrap_pybind_function(InitializeEngine));
  module.def("FinalizeGraphEngine", [] {
    const py::gil_scoped_release released;
    FinalizeEngine();
  });
  module.def("SetDebugLogPath", SetLogFile);
  module.def("AclmdlSetDump", torch::wrap_pybind_function(SetDump));
  module.def("GetSocName", [] {
    const char* const name = aclrtGetSocName();
    return std::string(name == nullptr ? "" : name);
  });
  module.def("get_registered_ir_def", torch::wrap_pybind_function(RegisteredIr));
  module.def("check_cann_compat", torch::wrap_pybind_function(WhyIncompatible), py::arg("type"),
             py::arg("optional_inputs") = std::vector<std::string>{},
             py::arg("optional_attributes") = std::vector<std::string>{});
  module.def("engine_type_of", torch::wrap_pybind_function([](py::handle type) {
               return static_cast<int>(TypeOf(reinterpret_cast<THPDtype*>(type.ptr())->scalar_type));
             }));
  py::class_<NpuGraph>(module, "TorchNpuGraphBase")
      .def(py::init<std::string>())
      .def("load", torch::wrap_pybind_function_no_gil([](NpuGraph& graph, const std::string& model, Options options,
                                                         std::vector<int64_t> placements,
                                                         const std::vector<int64_t>& types, int64_t executor) {
             graph.Load(model, std::move(options), std::move(placements), types, executor);
           }))
      .def("set_hint_shape",
           torch::wrap_pybind_function_no_gil([](NpuGraph& graph, std::vector<std::vector<int64_t>> inputs,
                                                 std::vector<std::vector<int64_t>> outputs) {
             graph.SetHintShape(std::move(inputs), std::move(outputs));
           }))
      .def("compile", torch::wrap_pybind_function_no_gil([](NpuGraph& graph) { graph.Compile(); }))
      .def("auto_tune", torch::wrap_pybind_function([](NpuGraph& graph, const py::tuple& arguments) {
             TORCH_CHECK(arguments.size() == 2, "auto_tune takes a tuple of inputs and a stream");
             const auto inputs = TensorsOf(arguments[0], "inputs", false);
             const py::gil_scoped_release released;
             graph.AutoTune(inputs);
           }))
      .def("run", torch::wrap_pybind_function(Run))
      .def("set_on_load",
           [](NpuGraph& graph, py::function function) {
             const std::shared_ptr<py::function> kept(new py::function(std::move(function)), [](py::function* own) {
               if (Py_IsInitialized() == 0) return;
               const py::gil_scoped_acquire acquired;
               delete own;
             });
             graph.set_on_load([kept](const std::string& timeline) {
               const py::gil_scoped_acquire acquired;
               (*kept)(timeline);
             });
           })
      .def_property_readonly("feature_address", &NpuGraph::feature_address)
      .def("summary", [](const NpuGraph&) { return std::string(); })
      .def_property_readonly("name", &NpuGraph::name)
      .def_property_readonly("is_static", &NpuGraph::is_static)
      .def_property_readonly("id", &NpuGraph::id);
}

}  // namespace torchair
