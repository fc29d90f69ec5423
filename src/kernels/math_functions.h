// SPDX-License-Identifier: Apache-2.0
//
// Mathematical functions, element by element (elementwise.h); f is the function named so:
//
//   floating, complex   Acos Asin Atan Cos Cosh Exp Exp2 Expm1 Log Log10 Log1p Log2 Reciprocal Rsqrt Sin Sinh Sqrt Tan
//                       Tanh
//   floating            Erf Erfc Erfinv; Frac a - trunc(a)
//   real                Ceil Floor Trunc; Round (half to even); integers stay as they are
//                       RoundScaledUp round(a n) / n, RoundScaledDown round(a / n) n: floating
//                       NanToNum NaN becomes n0, infinity n1, -infinity n2
//                       Sign -1, 0 or 1, 0 for NaN; complex: a / |a|; bool: a
//   kNegFn              sign bit flipped; integers modulo 2^bits; not bool
//   kAbsFn              complex: the modulus, a real number; |min| = min; bool: a
//
// Error     float32 within 3 ulp, Erfc and Erfinv within 6 (simd/math-inl.h); Reciprocal, Sqrt and what rounds to
//   integers are exact as far as each operation rounds once. float64 is the C library's, but Erfinv (two of Halley's
//   steps); complex64 computes in complex128.
// NaN, Inf  as the C library.
// Sameness  vector body, tail and instruction sets agree, but for those without fused multiply-add; float64 and complex
//   functions are the C library's.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kAbsFn;
extern const ElementFn kAcosFn;
extern const ElementFn kAsinFn;
extern const ElementFn kAtanFn;
extern const ElementFn kCeilFn;
extern const ElementFn kCosFn;
extern const ElementFn kCoshFn;
extern const ElementFn kErfFn;
extern const ElementFn kErfcFn;
extern const ElementFn kErfinvFn;
extern const ElementFn kExp2Fn;
extern const ElementFn kExpFn;
extern const ElementFn kExpm1Fn;
extern const ElementFn kFloorFn;
extern const ElementFn kFracFn;
extern const ElementFn kLog10Fn;
extern const ElementFn kLog1pFn;
extern const ElementFn kLog2Fn;
extern const ElementFn kLogFn;
extern const ElementFn kNanToNumFn;
extern const ElementFn kNegFn;
extern const ElementFn kReciprocalFn;
extern const ElementFn kRoundFn;
extern const ElementFn kRoundScaledDownFn;
extern const ElementFn kRoundScaledUpFn;
extern const ElementFn kRsqrtFn;
extern const ElementFn kSignFn;
extern const ElementFn kSinFn;
extern const ElementFn kSinhFn;
extern const ElementFn kSqrtFn;
extern const ElementFn kTanFn;
extern const ElementFn kTanhFn;
extern const ElementFn kTruncFn;

}  // namespace reprise::kernels
