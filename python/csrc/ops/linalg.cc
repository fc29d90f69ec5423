// SPDX-License-Identifier: Apache-2.0
//
// Whether a factorisation has worked. Eagerly the host looks at once, so that the exception comes from the call. In a
// capture there is nothing to look at yet: the look becomes a part of the graph, and a replay that fails says so at the
// next synchronisation.
#include <ATen/ops/_linalg_check_errors_native.h>
#include <torch/library.h>

#include <string>

#include "device/stream.h"
#include "ops/alias.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

void CheckErrors(const at::Tensor& info, std::string_view function, bool is_matrix) {
  if (!CurrentStream(info.device().index()).is_capturing()) {
    at::native::_linalg_check_errors(info, function, is_matrix);
    return;
  }
  if (info.numel() == 0) return;
  Aliases aliases(c10::kCPU);
  Launch("_linalg_check_errors", [info = aliases.Of(info), function = std::string(function), is_matrix] {
    at::native::_linalg_check_errors(info, function, is_matrix);
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_linalg_check_errors", CheckErrors); }

}  // namespace
}  // namespace torch_npu
