// SPDX-License-Identifier: Apache-2.0
//
// Dispatch keys in front of the device's kernels: derivatives are torch's own, and autocast lets pass what has no
// policy.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

namespace torch_npu {
namespace {

TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::autograd::autogradNotImplementedFallback()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace torch_npu
