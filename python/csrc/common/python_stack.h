// SPDX-License-Identifier: Apache-2.0
//
// Where in the user's Python program a call was made.
#pragma once

#include <reprise/memory_types.h>

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

/// "file:line in function" of the innermost frame; "" when there is none.
std::string PythonPlace();

}  // namespace torch_npu
