// SPDX-License-Identifier: Apache-2.0
#include "common/python_stack.h"

#include <torch/csrc/utils/pybind.h>

#include <string_view>

namespace torch_npu {
namespace {

bool IsOurs(std::string_view file) {
  return file.find("-packages/torch/") != std::string_view::npos ||
         file.find("/torch_npu/") != std::string_view::npos || file.find("/torchinductor_") != std::string_view::npos ||
         file.ends_with("/typing_extensions.py") ||  // around functions of torch that are deprecated
         (file.starts_with("<") && file != "<string>" && file != "<stdin>" && !file.starts_with("<ipython-input"));
}

}  // namespace

bool CanTakeGil() { return Py_IsInitialized() != 0 && !_Py_IsFinalizing(); }

ReleaseGil::ReleaseGil() : state_(CanTakeGil() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
ReleaseGil::~ReleaseGil() {
  if (state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

std::vector<reprise::Frame> PythonStack(size_t most) {
  std::vector<reprise::Frame> stack;
  if (!CanTakeGil()) return stack;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::error_scope pending;  // also asked for while an exception unwinds
  auto frame = pybind11::reinterpret_borrow<pybind11::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame && stack.size() < most) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    std::string file = code.attr("co_filename").cast<std::string>();
    if (!IsOurs(file)) {
      stack.push_back({std::move(file), PyFrame_GetLineNumber(raw), code.attr("co_name").cast<std::string>()});
    }
    frame = pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return stack;
}

bool IsCalledFrom(std::string_view file_name) {
  if (!CanTakeGil()) return false;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::error_scope pending;
  auto frame = pybind11::reinterpret_borrow<pybind11::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const std::string file = code.attr("co_filename").cast<std::string>();
    if (!IsOurs(file)) return false;
    if (std::string_view(file).ends_with(file_name)) return true;
    frame = pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return false;
}

std::string PythonPlace() {
  const std::vector<reprise::Frame> stack = PythonStack(1);
  if (stack.empty()) return "";
  return stack[0].filename + ":" + std::to_string(stack[0].line) + " in " + stack[0].name;
}

}  // namespace torch_npu
