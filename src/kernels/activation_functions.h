// SPDX-License-Identifier: Apache-2.0
//
// Activation functions and their gradients, element by element (elementwise.h). n are their numbers, s(a) is
// 1 / (1 + e^-a), g the gradient of the result:
//
//   kReluFn                a <= 0 ? 0 : a                    real; NaN stays, -0 becomes +0
//   kLeakyReluFn           a > 0 ? a : a n0
//   kEluFn                 a <= 0 ? (e^(a n2) - 1) n0 : a n1
//   kHardtanhFn            min(max(a, n0), n1)               real; NaN stays
//   kHardsigmoidFn         min(max(a + 3, 0), 6) / 6
//   kHardswishFn           a min(max(a + 3, 0), 6) / 6
//   kThresholdFn           a <= n0 ? n1 : a                  real; NaN stays
//   kSigmoidFn, kSiluFn    s(a), a s(a)                      complex, too
//   kFastGeluFn            a s(1.702 a)
//   kGeluFn                a (1 + erf(a / sqrt 2)) / 2
//   kGeluTanhFn            a (1 + tanh u) / 2 = a s(2 u) with u = sqrt(2 / pi) (a + 0.044715 a^3)
//   kMishFn                a tanh(log(1 + e^a))
//   kSoftplusFn            a n0 > n1 ? a : log(1 + e^(a n0)) / n0
//   kGluFn                 a s(b)
//   kSwiGluFn              silu(a) b
//   kGeGluFn, …TanhFn      gelu(a) b
//   kSigmoidBackwardFn     g y (1 - y)                       complex: with the conjugate of y (1 - y)
//   kTanhBackwardFn        g (1 - y^2)                       complex: with the conjugate of 1 - y^2
//   kThresholdBackwardFn   a <= n0 ? 0 : g                   real
//   kSiluBackwardFn, kGeluBackwardFn, kGeluTanhBackwardFn    g f'(a)
//   kGluGateBackwardFn     g a s(b) (1 - s(b)): of b in GLU
//   kSwiGluGateBackwardFn  g b silu'(a): of a in SwiGLU
//
// Functions without a remark are for floating types. Rounding: each step rounds in the type of the arithmetic; what is
// close to 0 because 1 + erf or 1 - y is has the absolute error of that sum. Sameness: as math_functions.h.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kEluFn;
extern const ElementFn kFastGeluFn;
extern const ElementFn kGeGluFn;
extern const ElementFn kGeGluTanhFn;
extern const ElementFn kGeluBackwardFn;
extern const ElementFn kGeluFn;
extern const ElementFn kGeluTanhBackwardFn;
extern const ElementFn kGeluTanhFn;
extern const ElementFn kGluFn;
extern const ElementFn kGluGateBackwardFn;
extern const ElementFn kHardsigmoidFn;
extern const ElementFn kHardswishFn;
extern const ElementFn kHardtanhFn;
extern const ElementFn kLeakyReluFn;
extern const ElementFn kMishFn;
extern const ElementFn kReluFn;
extern const ElementFn kSigmoidBackwardFn;
extern const ElementFn kSigmoidFn;
extern const ElementFn kSiluBackwardFn;
extern const ElementFn kSiluFn;
extern const ElementFn kSoftplusFn;
extern const ElementFn kSwiGluFn;
extern const ElementFn kSwiGluGateBackwardFn;
extern const ElementFn kTanhBackwardFn;
extern const ElementFn kThresholdBackwardFn;
extern const ElementFn kThresholdFn;

}  // namespace reprise::kernels
