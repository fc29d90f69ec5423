// SPDX-License-Identifier: Apache-2.0
//
// Functions that compare, choose and work on bits, element by element (elementwise.h).
//
//   kEqFn, kNeFn                 a == b, a != b; every type; NaN equals nothing
//   kLtFn, kLeFn, kGtFn, kGeFn   a < b and so on; not complex; false for NaN
//   kIsCloseFn                   a == b, or |a - b| finite and <= n1 + |n0 * b|, or, where n2 is not 0, both NaN;
//   floating
//                                and complex
//   kIsFiniteFn                  neither infinite nor NaN; every type
//   kIsPosInfFn, kIsNegInfFn     the infinity of that sign; not complex
//   kLogicalAndFn, kLogicalOrFn, kLogicalXorFn, kLogicalNotFn   of bools
//   kAndFn, kOrFn, kXorFn, kNotFn   bit by bit; integers, bool
//   kWhereFn                     a (a bool) ? b : c; every type, bit by bit
//
// The result is a bool, but for those of bits and kWhereFn.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels {

extern const ElementFn kEqFn;
extern const ElementFn kNeFn;
extern const ElementFn kLtFn;
extern const ElementFn kLeFn;
extern const ElementFn kGtFn;
extern const ElementFn kGeFn;
extern const ElementFn kIsCloseFn;
extern const ElementFn kIsFiniteFn;
extern const ElementFn kIsPosInfFn;
extern const ElementFn kIsNegInfFn;
extern const ElementFn kLogicalAndFn;
extern const ElementFn kLogicalOrFn;
extern const ElementFn kLogicalXorFn;
extern const ElementFn kLogicalNotFn;
extern const ElementFn kAndFn;
extern const ElementFn kOrFn;
extern const ElementFn kXorFn;
extern const ElementFn kNotFn;
extern const ElementFn kWhereFn;

}  // namespace reprise::kernels
