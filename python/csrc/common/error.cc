// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

#include <acl/acl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/python_stack.h"
#include "common/words.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "ops/launch.h"

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
                          const reprise::Exception& error, const std::string& place) {
  const pybind11::gil_scoped_acquire gil;
  python_error raised;
  {
    const pybind11::object cls = pybind11::module_::import(module).attr(type);
    pybind11::object value = cls(message);
    value.attr("code") = error.code();
    value.attr("cause") = error.cause();
    value.attr("culprit") = error.culprit();
    value.attr("hint") = error.hint();
    value.attr("place") = place;
    PyErr_SetObject(cls.ptr(), value.ptr());
  }
  raised.persist();
  throw std::move(raised);
}

[[noreturn]] void RaiseWith(const reprise::Exception& error, const std::string& message, const std::string& place) {
  const std::string text = place.empty() ? message : message + " (called at " + place + ")";
  if (dynamic_cast<const reprise::OutOfMemory*>(&error) != nullptr) {
    RaiseAs("torch", "OutOfMemoryError", text, error, place);
  }
  RaiseAs("torch_npu._errors", "NpuError", text, error, place);
}

// What a kernel did wrong is reported by a call that has nothing to do with it; how to learn which one has.
std::string HowToFindTheLine(int code, const std::string& cause, const std::string& culprit) {
  constexpr int kKernelFailed = 507015;
  if (code != kKernelFailed || IsBlocking()) return "";
  if (!cause.starts_with("operation ") || culprit.starts_with("at ")) return "";
  return "; it was queued by an earlier call: with ASCEND_LAUNCH_BLOCKING=1 in the environment that call raises, with "
         "REPRISE_TORCH_STACKS=1 this message names its line";
}

// Whether this thread runs Python: others must not wait for the GIL here.
bool IsPythonThread() { return CanTakeGil() && PyGILState_GetThisThreadState() != nullptr; }

std::string CurrentStreamText() {
  if (!IsInitialized()) return "";
  const NPUStream stream = CurrentStream();
  return stream.device().str() + " stream_id=" + std::to_string(stream.id());
}

void DescribeRefusal(reprise::Refusal& refusal) {
  if (!IsPythonThread()) return;
  constexpr int kNoMemory = 207001;
  refusal.kind = refusal.code == kNoMemory ? "OutOfMemoryError" : "NpuError";
  refusal.hint = WordsInPython(refusal.hint) + HowToFindTheLine(refusal.code, refusal.cause, refusal.culprit);
  refusal.culprit = WordsInPython(refusal.culprit) + ForkInPython(refusal.culprit);
  refusal.cause = WordsInPython(refusal.cause);
  refusal.stream = CurrentStreamText();
  refusal.place = PythonPlace();
}

// The number of an exception that has none: that of the runtime for what it says.
int NumberOf(std::string_view type) {
  if (type == "NotImplementedError") return 207000;
  if (type == "OutOfMemoryError") return 207001;
  return 107000;
}

// A kernel's check fails in its task, and whoever waits for that is told.
bool IsInKernel() { return c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::PythonTLSSnapshot); }

thread_local size_t t_noted = 0;  // hash of the words that NoteRefusal wrote last

void WriteOwn(const char* type, const char* call, const std::string& words) {
  WriteRefusalOfPython(type, NumberOf(type), call, words);
}

}  // namespace

void DescribeRefusals() { reprise::SetRefusalDescriber(&DescribeRefusal); }

void WriteRefusalOfPython(const std::string& type, int code, const std::string& call, const std::string& words) {
  if (!reprise::WritesRefusals()) return;
  reprise::Refusal refusal;
  refusal.call = call;
  refusal.code = code;
  refusal.cause = words;
  refusal.kind = type;
  if (IsPythonThread()) {
    refusal.stream = CurrentStreamText();
    refusal.place = PythonPlace();
  }
  reprise::WriteRefusal(refusal);
}

std::string NoteRefusal(const char* type, const char* function, std::string words) noexcept {
  try {
    if (!reprise::WritesRefusals() || IsInKernel()) return words;
    t_noted = std::hash<std::string>{}(words);
    const std::string_view name = type;
    WriteOwn(name == "Error" ? "RuntimeError" : type, function, words);
  } catch (...) {  // no memory for the line
  }
  return words;
}

void NoteError(const c10::Error& error, const char* function) noexcept {
  try {
    if (!reprise::WritesRefusals()) return;
    const std::string words = error.what_without_backtrace();
    if (std::exchange(t_noted, 0) == std::hash<std::string>{}(words)) return;
    const char* type = "RuntimeError";
    if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) type = "IndexError";
    if (dynamic_cast<const c10::ValueError*>(&error) != nullptr) type = "ValueError";
    if (dynamic_cast<const c10::TypeError*>(&error) != nullptr) type = "TypeError";
    if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) type = "NotImplementedError";
    WriteOwn(type, function, words);
  } catch (...) {  // no memory for the line
  }
}

void NoteError(const python_error& error, const char* function) noexcept {
  try {
    if (!reprise::WritesRefusals()) return;
    const pybind11::gil_scoped_acquire gil;
    const pybind11::error_scope pending;  // where the exception is while it goes through a kernel that is Python code
    PyObject* const kind = error.type != nullptr ? error.type : pending.type;
    PyObject* const value = error.type != nullptr ? error.value : pending.value;
    if (kind == nullptr || value == nullptr) return;
    std::string type = reinterpret_cast<PyTypeObject*>(kind)->tp_name;
    type.erase(0, type.rfind('.') + 1);
    if (type == "NpuError" || type == "OutOfMemoryError") return;  // written where it was raised
    WriteOwn(type.c_str(), function, pybind11::str(pybind11::handle(value)).cast<std::string>());
  } catch (...) {  // no words, no line
  }
}

void Raise(const reprise::Exception& error) {
  const std::string more = HowToFindTheLine(error.code(), error.cause(), error.culprit());
  const std::string fork = ForkInPython(error.culprit());
  const std::string culprit = WordsInPython(error.culprit()) + fork;
  const std::string hint = WordsInPython(error.hint()) + more;
  const std::string cause = WordsInPython(error.cause());
  const std::string_view whole = error.what();
  // The core's text is "function failed with number (name): cause; culprit: …; next step: …".
  std::string message = WordsInPython(whole.substr(0, whole.find(": ")));
  message += ": " + cause;
  if (!culprit.empty()) message += "; culprit: " + culprit;
  if (!hint.empty()) message += "; next step: " + hint;
  const std::string place = PythonPlace();
  if (dynamic_cast<const reprise::OutOfMemory*>(&error) != nullptr) {
    RaiseWith(reprise::OutOfMemory(error.code(), message, cause, culprit, hint), message, place);
  }
  RaiseWith(reprise::Exception(error.code(), message, cause, culprit, hint), message, place);
}

void RefuseCall(const std::string& call, int code, const std::string& cause, const std::string& culprit,
                const std::string& hint) {
  std::string message = cause;
  if (cause.find(culprit) == std::string::npos) message += "; culprit: " + culprit;
  if (!hint.empty()) message += "; next step: " + hint;
  const std::string place = PythonPlace();
  if (reprise::WritesRefusals()) {
    reprise::WriteRefusal({call, code, cause, culprit, hint, "NpuError", CurrentStreamText(), place});
  }
  RaiseWith(reprise::Exception(code, message, cause, culprit, hint), message, place);
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
