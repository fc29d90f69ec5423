// SPDX-License-Identifier: Apache-2.0
//
// Mathematical functions, element by element (elementwise.h):
//
//   kExpFn   e^a         floating, complex; within 2 ulp
//   kNegFn   -a          sign bit flipped; integers modulo 2^bits; not bool
//   kAbsFn   |a|         complex: the modulus, a real number; |min| = min; bool: a
//
// Sameness  vector body, tail and instruction sets agree; float64 and complex functions are the C library's.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kExpFn;
extern const ElementFn kNegFn;
extern const ElementFn kAbsFn;

}  // namespace reprise::kernels
