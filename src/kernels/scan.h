// SPDX-License-Identifier: Apache-2.0
//
// Running folds along one dim.
//
// Formula   kSum, kProd: out[i] = cast(self[0], compute) + .. + cast(self[i],
//   compute) (products likewise). kMax, kMin: values[i] = largest of self[0 .. i],
//   indices[i] = the last place where it is; NaN stays once it was seen.
// Accumulation  sums and products in float64 for floating types, complex128 for
//   complex ones, modulo 2^64 for integers and bool; each element is rounded
//   once on its way out (through float32 to a 16-bit type).
// Order     sequential.
// Aliasing  out may be the very same view as self.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class ScanOp : uint8_t { kSum, kProd, kMax, kMin };

/// Rows along dim: what the ranges below count.
int64_t ScanRowCount(const TensorRef& self, int dim);

/// \pre op is kSum or kProd; out has the shape of self.
void Scan(ScanOp op, const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range);

/// \pre op is kMax or kMin; values and indices have the shape of self; no complex types.
void ScanExtreme(ScanOp op, const TensorRef& self, int dim, const TensorRef& values, const TensorRef& indices,
                 Range range);

}  // namespace reprise::kernels
