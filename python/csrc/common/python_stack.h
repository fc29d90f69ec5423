// SPDX-License-Identifier: Apache-2.0
//
// Where in the user's Python program a call was made.
#pragma once

#include <reprise/memory_types.h>

#include <string_view>
#include <vector>

namespace torch_npu {

/// Whether there is an interpreter that is not about to end.
bool CanTakeGil();

/// Releases the GIL for a scope, if this thread holds it: around everything that may wait.
class ReleaseGil {
 public:
  ReleaseGil();
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  void* state_;
};

/// The Python frames of the calling thread, innermost first, without those of torch and torch_npu themselves. Takes
/// the GIL. Empty when there is no Python frame (a thread of the autograd engine).
std::vector<reprise::Frame> PythonStack(size_t most = 32);

/// Whether code of torch or torch_npu from a file with this end of its name called, and no code of the user since.
bool IsCalledFrom(std::string_view file_name);

/// "file:line in function" of the innermost frame; "" when there is none.
std::string PythonPlace();

}  // namespace torch_npu
