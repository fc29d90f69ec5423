// SPDX-License-Identifier: Apache-2.0
//
// Two operands of different types. The CPU, and the Meta kernels that torch.compile asks, convert an operand before
// they decide how the result lies in memory; torch's composites for devices decide first. That is no difference unless
// the operand is expanded: it says nothing about the order of dimensions until the conversion has given it memory of
// its own.
#include <ATen/CompositeExplicitAutogradNonFunctionalFunctions.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

namespace torch_npu {
namespace {

namespace composite = at::compositeexplicitautogradnonfunctional;

enum class To { kCommon, kFloating };

at::Tensor Converted(const at::Tensor& tensor, at::ScalarType type) {
  const bool is_spread = tensor.dim() != 0 && tensor.scalar_type() != type && !tensor.is_non_overlapping_and_dense();
  return is_spread ? tensor.to(type) : tensor;
}

/// Calls `compute` with the operands, converted where that matters.
template <To to = To::kCommon, class Compute>
at::Tensor Meet(const at::Tensor& self, const at::Tensor& other, Compute compute) {
  const bool is_plain = self.scalar_type() == other.scalar_type() &&
                        (to == To::kCommon || !c10::isIntegralType(self.scalar_type(), /*includeBool=*/true));
  if (is_plain) [[likely]]
    return compute(self, other);
  at::ScalarType type = at::result_type(self, other);
  if (to == To::kFloating && c10::isIntegralType(type, true)) type = c10::get_default_dtype_as_scalartype();
  return compute(Converted(self, type), Converted(other, type));
}

template <at::Tensor (*compute)(const at::Tensor&, const at::Tensor&), To to = To::kCommon>
at::Tensor Binary(const at::Tensor& self, const at::Tensor& other) {
  return Meet<to>(self, other, compute);
}

template <at::Tensor (*compute)(const at::Tensor&, const at::Tensor&, const at::Scalar&)>
at::Tensor WithAlpha(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return Meet(self, other, [&](const at::Tensor& a, const at::Tensor& b) { return compute(a, b, alpha); });
}

// Truth values are refused, which must not be numbers by then.
at::Tensor Subtract(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (self.scalar_type() == at::kBool || other.scalar_type() == at::kBool) return composite::sub(self, other, alpha);
  return WithAlpha<&composite::sub>(self, other, alpha);
}

at::Tensor DivideRounded(const at::Tensor& self, const at::Tensor& other, std::optional<c10::string_view> rounding) {
  const auto divide = [&](const at::Tensor& a, const at::Tensor& b) { return composite::div(a, b, rounding); };
  return rounding.has_value() ? Meet(self, other, divide) : Meet<To::kFloating>(self, other, divide);
}

// What torch puts together, for operators that a kernel of the device computes (op_traits.h).
TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("add.Tensor", &WithAlpha<&composite::add>);
  m.impl("sub.Tensor", &Subtract);
  m.impl("mul.Tensor", &Binary<&composite::mul>);
  m.impl("div.Tensor", &Binary<&composite::div, To::kFloating>);
  m.impl("remainder.Tensor", &Binary<&composite::remainder>);
  m.impl("fmod.Tensor", &Binary<&composite::fmod>);
  m.impl("pow.Tensor_Tensor", &Binary<&composite::pow>);
  m.impl("eq.Tensor", &Binary<&composite::eq>);
  m.impl("ne.Tensor", &Binary<&composite::ne>);
  m.impl("lt.Tensor", &Binary<&composite::lt>);
  m.impl("le.Tensor", &Binary<&composite::le>);
  m.impl("gt.Tensor", &Binary<&composite::gt>);
  m.impl("ge.Tensor", &Binary<&composite::ge>);
  m.impl("maximum", &Binary<&composite::maximum>);
  m.impl("minimum", &Binary<&composite::minimum>);
  m.impl("bitwise_and.Tensor", &Binary<&composite::bitwise_and>);
  m.impl("bitwise_or.Tensor", &Binary<&composite::bitwise_or>);
  m.impl("bitwise_xor.Tensor", &Binary<&composite::bitwise_xor>);
  m.impl("atan2", &Binary<&composite::atan2, To::kFloating>);
  m.impl("logaddexp", &Binary<&composite::logaddexp, To::kFloating>);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("div.Tensor_mode", &DivideRounded);
  m.impl("fmax", &Binary<&composite::fmax>);
  m.impl("fmin", &Binary<&composite::fmin>);
  m.impl("hypot", &Binary<&composite::hypot>);
  m.impl("gcd", &Binary<&composite::gcd>);
  m.impl("lcm", &Binary<&composite::lcm>);
  m.impl("copysign.Tensor", &Binary<&composite::copysign, To::kFloating>);
  m.impl("xlogy.Tensor", &Binary<&composite::xlogy, To::kFloating>);
  m.impl("logaddexp2", &Binary<&composite::logaddexp2, To::kFloating>);
}

}  // namespace
}  // namespace torch_npu
