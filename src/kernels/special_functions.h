// SPDX-License-Identifier: Apache-2.0
//
// Functions that models use now and then, element by element (elementwise.h), as plain loops. n are their numbers:
//
//   kAcoshFn, kAsinhFn, kAtanhFn   inverse hyperbolic functions; complex, too
//   kSincFn          sin(pi a) / (pi a), 1 at 0; complex, too
//   kAngleFn         0, or pi below 0; NaN stays; complex: the argument, a real number
//   kSignbitFn       whether the sign bit is set; integers: a < 0; a bool
//   kLogitFn         log(a / (1 - a));  kLogitBetweenFn  the same of min(max(a, n0), n1)
//   kLogitGradFn     g / (a (1 - a)), NaN outside [0, 1];  kLogitBetweenGradFn  0 outside [n0, n1]
//   kXLogYFn         0 where a is 0, else a log(b); NaN where b is NaN;  kXLogYOfFn  the operands swapped
//   kLogAddExp2Fn    log2(2^a + 2^b), without overflow
//   kGcdFn           the greatest common divisor, not negative; integers
//   kLeftShiftFn     a 2^b modulo 2^bits; 0 where b is negative or too large; integers
//   kRightShiftFn    a / 2^b, rounded down; the sign alone is left where b is negative or too large; integers
//   kPolarFn         a (cos b + i sin b), complex
//   kAddReluFn       max(a + n b, 0); NaN stays; integers modulo 2^bits
//   kRoundByFn       a as n says: 1 halves to even, 2 down, 3 up, 4 halves away from 0, 5 towards 0, 6 halves to odd, 7
//   the
//                    fraction; a itself for other n
//   kOuterSumFn      n0 a + n1 b c; a is not looked at if n0 is 0; integers modulo 2^bits
//
// Functions without a remark are for floating types. Rounding  kSinc, kLogit and kXLogY of float32 compute in float64;
//   the others in their type, with the functions of the C library.
// NaN, Inf  as the C library.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kAcoshFn;
extern const ElementFn kAddReluFn;
extern const ElementFn kAngleFn;
extern const ElementFn kAsinhFn;
extern const ElementFn kAtanhFn;
extern const ElementFn kGcdFn;
extern const ElementFn kLeftShiftFn;
extern const ElementFn kLogAddExp2Fn;
extern const ElementFn kLogitBetweenFn;
extern const ElementFn kLogitBetweenGradFn;
extern const ElementFn kLogitFn;
extern const ElementFn kLogitGradFn;
extern const ElementFn kOuterSumFn;
extern const ElementFn kPolarFn;
extern const ElementFn kRightShiftFn;
extern const ElementFn kRoundByFn;
extern const ElementFn kSignbitFn;
extern const ElementFn kSincFn;
extern const ElementFn kXLogYFn;
extern const ElementFn kXLogYOfFn;

}  // namespace reprise::kernels
