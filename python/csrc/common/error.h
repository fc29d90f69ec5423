// SPDX-License-Identifier: Apache-2.0
//
// From errors of the core to Python exceptions. A reprise::Exception becomes torch_npu.NpuError (a RuntimeError), or
// torch.OutOfMemoryError, with the attributes code, cause, culprit and hint.
#pragma once

#include <reprise/error.h>

#include <string>
#include <utility>

struct python_error;  // torch's

namespace torch_npu {

/// Throws what the core has refused, in the words of Python, as a Python exception. Takes the GIL if the thread does
/// not hold it, so no lock that is taken under the GIL elsewhere may be held.
[[noreturn]] void Raise(const reprise::Exception& error);

/// What this extension refuses by itself. Written to REPRISE_ERROR_JSON, too. `call`: what the program called;
/// `culprit` and `hint` may be empty.
[[noreturn]] void RefuseCall(const std::string& call, int code, const std::string& cause, const std::string& culprit,
                             const std::string& hint);

/// Writes a line there for an exception that Python code of torch has raised in a call of this extension.
void NoteError(const python_error& error, const char* function) noexcept;

/// Lines of REPRISE_ERROR_JSON for refusals of the core get the Python line, the stream and the words of Python.
void DescribeRefusals();

/// A line there for an exception that Python code of the package raises.
void WriteRefusalOfPython(const std::string& type, int code, const std::string& call, const std::string& words);

/// Runs `body`, which calls the C++ interface of the core.
template <class Body>
decltype(auto) Guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const reprise::Exception& error) {
    Raise(error);
  }
}

/// For functions of the C interface: throws unless `code` is 0, with the words of aclGetRecentErrMsg.
void Check(int code, const char* function);

}  // namespace torch_npu
