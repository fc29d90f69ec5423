// SPDX-License-Identifier: Apache-2.0
//
// Checks of values on the device: assertions of the program, and whether a factorisation has worked. Eagerly the host
// looks at once, so that the exception comes from the call. In a capture there is nothing to look at yet: the look
// becomes a part of the graph, and a replay that fails says so at the next synchronisation.
#include <ATen/ops/_linalg_check_errors_native.h>
#include <c10/core/DeviceGuard.h>
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

// A tensor of one element, which must not be zero when the stream gets there.
void AssertAsyncWith(const at::Tensor& condition, const std::string& message) {
  TORCH_CHECK(condition.numel() == 1, "_assert_async: Boolean value of Tensor with ",
              condition.numel() == 0 ? "no values" : "more than one value", " is ambiguous; it has sizes ",
              condition.sizes(), ", reduce it by all() or any() first");
  const c10::DeviceGuard guard(condition.device());
  Aliases aliases(c10::kCPU);
  Launch("_assert_async",
         [condition = aliases.Of(condition), message] { TORCH_CHECK(condition.is_nonzero(), message); });
}

void AssertAsync(const at::Tensor& condition) {
  AssertAsyncWith(condition, "Expected Tensor with single nonzero value, but got zero");
}

void AssertAsyncMessage(const at::Tensor& condition, c10::string_view message) {
  AssertAsyncWith(condition, message.empty() ? "Assertion failed" : std::string(message));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_linalg_check_errors", CheckErrors);
  m.impl("_assert_async", AssertAsync);
  m.impl("_assert_async.msg", AssertAsyncMessage);
}

}  // namespace
}  // namespace torch_npu
