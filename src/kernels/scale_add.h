// SPDX-License-Identifier: Apache-2.0
//
// The last step of a matrix product as BLAS has it.
//
// Formula   out = alpha * product + beta * out; where beta is 0, out is not read, so that NaN in it does not spread.
// Accumulation  in the type of `product`: float32, float64 or int32 (modulo 2^32). alpha, beta and out convert to it,
//   the result converts to the type of out, once.
// Aliasing  none but out with itself.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// `range` counts elements of out.
/// \pre product has the shape of out and type float32, float64 or int32; alpha and beta have one element.
void ScaleAdd(const TensorRef& product, const TensorRef& alpha, const TensorRef& beta, const TensorRef& out,
              Range range);

}  // namespace reprise::kernels
