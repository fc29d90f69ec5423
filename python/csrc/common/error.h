// SPDX-License-Identifier: Apache-2.0
//
// From errors of the core to Python exceptions. A reprise::Exception becomes torch_npu.NpuError (a RuntimeError), or
// torch.OutOfMemoryError, with the attributes code, cause, culprit and hint.
#pragma once

#include <reprise/error.h>

#include <utility>

namespace torch_npu {

/// Throws `error` as a Python exception. Takes the GIL if the thread does not hold it, so no lock that is taken under
/// the GIL elsewhere may be held.
[[noreturn]] void Raise(const reprise::Exception& error);

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
