// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic functions, element by element (elementwise.h). By category of the type that they compute in:
//
//   function     floating, complex    integer (modulo 2^bits)    bool
//   kAddFn       a + b                same                       a or b
//   kAddScaled   a + n * b            same                       a or (n and b)
//   kSubFn       a - b                same                       a xor b
//   kSubScaled   a - n * b            same                       a xor (n and b)
//   kMulFn       a * b                same                       a and b
//   kDivFn       a / b                truncated; x / 0 = 0       a and b
//
// Rounding  each written operation rounds once to nearest even in the type of the computation; nothing is fused.
// NaN, Inf  as IEEE 754. Complex division scales its operands and does not overflow in between.
// Sameness  vector body, tail and instruction sets agree. (Exception: which NaN comes out of two NaN operands.)
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kAddFn;
extern const ElementFn kAddScaledFn;
extern const ElementFn kSubFn;
extern const ElementFn kSubScaledFn;
extern const ElementFn kMulFn;
extern const ElementFn kDivFn;

}  // namespace reprise::kernels
