// SPDX-License-Identifier: Apache-2.0
//
// Activation functions, element by element (elementwise.h):
//
//   kReluFn   a <= 0 ? 0 : a      not complex; NaN stays, -0 becomes +0
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kReluFn;

}  // namespace reprise::kernels
