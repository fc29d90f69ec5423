// SPDX-License-Identifier: Apache-2.0
//
// Gradients of activation functions, and activation functions that are seldom worth vectors, element by element
// (elementwise.h). g is the gradient of the result, a the input, y the result, s(a) is 1 / (1 + e^-a), n are numbers:
//
//   kHardshrinkFn             -n0 <= a <= n0 ? 0 : a
//   kSoftshrinkFn             a > n0 ? a - n0 : a < -n0 ? a + n0 : 0, and NaN for NaN
//   kLogSigmoidFn             min(a, 0) - log(1 + e^-|a|)
//   kPreluFn                  a > 0 ? a : b a
//   kLeakyReluBackwardFn      a > 0 ? g : g n0
//   kEluBackwardFn            a <= 0 ? g n2 n0 e^(a n2) : g n1
//   kEluResultBackwardFn      y <= 0 ? g n2 (y + n0) : g n1
//   kHardsigmoidBackwardFn    -3 < a < 3 ? g / 6 : 0
//   kHardswishBackwardFn      a <= -3 ? 0 : a < 3 ? g (a / 3 + 1 / 2) : g
//   kHardtanhBackwardFn       n0 < a < n1 ? g : 0
//   kShrinkBackwardFn         -n0 <= a <= n0 ? 0 : g
//   kSoftplusBackwardFn       a n0 > n1 ? g : g s(a n0)
//   kLogSigmoidBackwardFn     g s(-a)
//   kMishBackwardFn           g (t + a s(a) (1 - t^2)) with t = tanh(log(1 + e^a))
//   kFastGeluBackwardFn       g s(u) (1 + u (1 - s(u))) with u = 1.702 a
//   kPreluBackwardFn          a > 0 ? g : g b, with b the weight
//
// All are for floating types. Rounding and NaN as activation_functions.h.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kEluBackwardFn;
extern const ElementFn kEluResultBackwardFn;
extern const ElementFn kFastGeluBackwardFn;
extern const ElementFn kHardshrinkFn;
extern const ElementFn kHardsigmoidBackwardFn;
extern const ElementFn kHardswishBackwardFn;
extern const ElementFn kHardtanhBackwardFn;
extern const ElementFn kLeakyReluBackwardFn;
extern const ElementFn kLogSigmoidBackwardFn;
extern const ElementFn kLogSigmoidFn;
extern const ElementFn kMishBackwardFn;
extern const ElementFn kPreluBackwardFn;
extern const ElementFn kPreluFn;
extern const ElementFn kShrinkBackwardFn;
extern const ElementFn kSoftplusBackwardFn;
extern const ElementFn kSoftshrinkFn;

}  // namespace reprise::kernels
