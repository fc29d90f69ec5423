// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic functions, element by element (elementwise.h). By category of the type that they compute in, with operands
// a, b, c and numbers n, m:
//
//   function          floating, complex    integer (modulo 2^bits)    bool
//   kAddFn            a + b                same                       a or b
//   kAddScaledFn      a + n * b            same                       a or (n and b)
//   kSubFn            a - b                same                       a xor b
//   kSubScaledFn      a - n * b            same                       a xor (n and b)
//   kRsubScaledFn     b - n * a            same                       -
//   kMulFn            a * b                same                       a and b
//   kDivFn            a / b                truncated; x / 0 = 0       a and b
//   kAddcmulFn        a + n * b * c        same                       -
//   kAddcdivFn        a + n * b / c        -                          -
//   kLerpFn           a + c * (b - a), from |c| = 1/2 on b - (b - a) * (1 - c); not integers
//   kLerpByFn         the same with c = n
//
// and these, which complex types do not have:
//
//   kTruncateDivFn    a / b towards zero; integers: x / 0 = 0
//   kFloorDivFn       the largest whole number not above a / b, from the remainder; x / 0 = 0 for integers
//   kFmodFn           a - b * (a / b towards zero), with the sign of a; integers: x mod 0 = 0
//   kRemainderFn      a - b * floor(a / b), with the sign of b; integers: x mod 0 = 0
//   kMaximumFn        the larger one; NaN where one is NaN
//   kMinimumFn        the smaller one
//   kClampFn          min(max(a, n), m); NaN stays
//   kClampBetweenFn   min(max(a, b), c); NaN where one is NaN
//
// Powers, where integers multiply modulo 2^bits and x to a negative power is 1 for 1, plus or minus 1 for -1, else 0:
//
//   kPowFn            a ^ b                kPowOfFn          b ^ a
//   kCubeFn           a * a * a            kInverseSquareFn  1 / (a * a)
//
// Of floating types alone: kAtan2Fn, the angle of the point (b, a); kLogAddExpFn, log(e^a + e^b), without overflow.
// kComplexFn makes complex numbers of two real ones.
//
// Rounding  each written operation rounds once to nearest even in the type of the computation; nothing is fused.
//   Powers of float32 and the 16-bit floats are within 1 ulp of float32, angles and kLogAddExpFn within 4; those of
//   float64 and complex numbers are the C library's.
// NaN, Inf  as IEEE 754. Complex division scales its operands and does not overflow in between.
// Sameness  vector body, tail and instruction sets agree. (Exception: which NaN comes out of two NaN operands.)
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kAddFn;
extern const ElementFn kAddScaledFn;
extern const ElementFn kSubFn;
extern const ElementFn kSubScaledFn;
extern const ElementFn kRsubScaledFn;
extern const ElementFn kMulFn;
extern const ElementFn kDivFn;
extern const ElementFn kAddcmulFn;
extern const ElementFn kAddcdivFn;
extern const ElementFn kLerpFn;
extern const ElementFn kLerpByFn;
extern const ElementFn kTruncateDivFn;
extern const ElementFn kFloorDivFn;
extern const ElementFn kFmodFn;
extern const ElementFn kRemainderFn;
extern const ElementFn kMaximumFn;
extern const ElementFn kMinimumFn;
extern const ElementFn kClampFn;
extern const ElementFn kClampBetweenFn;
extern const ElementFn kPowFn;
extern const ElementFn kPowOfFn;
extern const ElementFn kCubeFn;
extern const ElementFn kInverseSquareFn;
extern const ElementFn kAtan2Fn;
extern const ElementFn kLogAddExpFn;
extern const ElementFn kComplexFn;

}  // namespace reprise::kernels
