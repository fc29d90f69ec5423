// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

#include <acl/acl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

namespace torch_npu {
namespace {

[[noreturn]] void RaiseAs(const char* module, const char* type, const std::string& message,
                          const reprise::Exception& error) {
  const pybind11::gil_scoped_acquire gil;
  python_error raised;
  {
    const pybind11::object cls = pybind11::module_::import(module).attr(type);
    pybind11::object value = cls(message);
    value.attr("code") = error.code();
    value.attr("cause") = error.cause();
    value.attr("culprit") = error.culprit();
    value.attr("hint") = error.hint();
    PyErr_SetObject(cls.ptr(), value.ptr());
  }
  raised.persist();
  throw std::move(raised);
}

}  // namespace

void Raise(const reprise::Exception& error) {
  if (dynamic_cast<const reprise::OutOfMemory*>(&error) != nullptr) {
    RaiseAs("torch", "OutOfMemoryError", error.what(), error);
  }
  RaiseAs("torch_npu._errors", "NpuError", error.what(), error);
}

void Check(int code, const char* function) {
  if (code == 0) [[likely]]
    return;
  const char* const words = aclGetRecentErrMsg();
  const std::string cause = words != nullptr ? words : "";
  const std::string message = std::string(function) + " failed with " + std::to_string(code) + ": " + cause;
  Raise(reprise::Exception(code, message, cause, function, ""));
}

}  // namespace torch_npu
