// SPDX-License-Identifier: Apache-2.0
//
// Dispatch keys in front of the device's kernels: derivatives are torch's own, and autocast lets pass what has no
// policy.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

namespace torch_npu {
namespace {

TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::autograd::autogradNotImplementedFallback()); }

// Copies see conjugated and negated tensors as they are: resolving them would begin with a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace torch_npu
