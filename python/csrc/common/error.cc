// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

#include <acl/acl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <string_view>

namespace torch_npu {
namespace {

// What stands between two marks; to the end when the second is not there; "" without the first.
std::string Between(std::string_view text, std::string_view from, std::string_view to) {
  const size_t begin = text.find(from);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + from.size());
  return std::string(text.substr(0, text.find(to)));
}

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
  const char* const recent = aclGetRecentErrMsg();
  const std::string_view words = recent != nullptr ? recent : "";
  // The parts of the message that C programs print as a block; see docs/errors.md.
  std::string cause = Between(words, std::string(function) + " failed: ", "\n        Solution: ");
  if (cause.empty()) cause = words;
  const std::string culprit = Between(words, "\n        Culprit: ", ".\n");
  const std::string hint = Between(words, "\n        Solution: ", ".\n");
  std::string message = std::string(function) + " failed with " + std::to_string(code) + ": " + cause;
  if (!culprit.empty()) message += "; culprit: " + culprit;
  if (!hint.empty()) message += "; next step: " + hint;
  Raise(reprise::Exception(code, message, cause, culprit.empty() ? function : culprit, hint));
}

}  // namespace torch_npu
