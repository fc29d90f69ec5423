// SPDX-License-Identifier: Apache-2.0
//
// Dropout: the CPU's operators would draw from the host's generator.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "graph/liveness.h"
#include "ops/alias.h"
#include "ops/launch.h"
#include "ops/random.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

std::tuple<at::Tensor, at::Tensor> Dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const c10::DeviceGuard guard(input.device());
  const auto bools = input.options().dtype(at::kBool);
  if (!train.value_or(true) || input.numel() == 0) return {input.clone(), at::ones_like(input, bools)};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, bools)};
  const std::optional<reprise::ElementType> type = ElementTypeOf(input.scalar_type());
  TORCH_CHECK(type.has_value() && at::isFloatingType(input.scalar_type()), "dropout of ", input.toString(),
              " is not supported on npu; convert it to a floating type");
  const at::Tensor in = input.is_non_overlapping_and_dense() ? input : input.contiguous();
  at::Tensor out = at::empty_like(in);
  at::Tensor mask = at::empty_like(in, bools);
  NoteUse(in);
  SubmitDraw([&](void* stream) {
    reprise::DrawDropout(stream, CoreGenerator(std::nullopt), in.const_data_ptr(), out.mutable_data_ptr(),
                         mask.mutable_data_ptr(), *type, in.numel(), p);
  });
  return {out, mask};
}

at::Tensor DropoutBackward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type, got ", mask.scalar_type());
  const c10::DeviceGuard guard(grad.device());
  // Where it is a product of a Python number and integers, it is a number, too.
  at::Tensor result = at::empty_like(
      grad,
      grad.options().dtype(c10::isIntegralType(grad.scalar_type(), true) ? c10::get_default_dtype_as_scalartype()
                                                                         : grad.scalar_type()),
      grad.suggest_memory_format());
  if (result.numel() == 0) return result;
  Aliases aliases(c10::kCPU);
  Launch("native_dropout_backward", [grad = aliases.Of(grad), mask = aliases.Of(mask), scale,
                                     result = aliases.Of(result)]() mutable {
    if (!at::isFloatingType(grad.scalar_type()) || !grad.is_non_overlapping_and_dense() ||
        grad.strides() != mask.strides() || grad.strides() != result.strides()) {
      result.copy_(grad * mask * scale);
      return;
    }
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, grad.scalar_type(), "native_dropout_backward", [&] {
      using Wide = at::opmath_type<scalar_t>;
      const auto* const from = grad.const_data_ptr<scalar_t>();
      const auto* const kept = mask.const_data_ptr<bool>();
      auto* const to = result.mutable_data_ptr<scalar_t>();
      const Wide by = static_cast<Wide>(scale);
      for (int64_t i = 0, count = grad.numel(); i < count; ++i) {
        to[i] = static_cast<scalar_t>(static_cast<Wide>(from[i]) * (static_cast<Wide>(kept[i]) * by));
      }
    });
  });
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", Dropout);
  m.impl("native_dropout_backward", DropoutBackward);
}

}  // namespace
}  // namespace torch_npu
