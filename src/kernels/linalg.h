// SPDX-License-Identifier: Apache-2.0
//
// Square matrices: inverse, determinant, triangular systems; each for a batch of matrices, of which one work item is
// one.
//
// Formula   Inverse: out * a = 1. SignLogDet: sign * exp(log) = det(a), |sign| = 1. TriangularSolve: x such that
//   op(a) * x = b, where op transposes or not and only one triangle of a is read.
// Accumulation  float64 and complex128 for every type: matrices are copied in that type to scratch memory.
// Order     Gaussian elimination, rows pivoted by the largest |re| + |im|, the first of equals. Depends on the matrix
//   alone. Blocks of 32 rows and columns; float64 fuses multiply and add where the processor can.
// Rounding  once, to the type of the output.
// Singular  Inverse divides by the zero pivot, which gives Inf and NaN; SignLogDet gives 0 and -Inf; TriangularSolve
//   divides by the zero of the diagonal.
// NaN, Inf  as IEEE 754; a NaN is never a pivot while there is a number.
// Aliasing  outputs may not overlap inputs.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Bytes of scratch, aligned to 16, for n by n matrices; TriangularSolve with `columns` right-hand sides.
int64_t InverseScratchBytes(DType dtype, int64_t n);
int64_t SignLogDetScratchBytes(DType dtype, int64_t n);
int64_t TriangularSolveScratchBytes(DType dtype, int64_t n, int64_t columns);

/// \pre a and out: [.., n, n], float32, float64 or complex.
void Inverse(const TensorRef& a, const TensorRef& out, Range batches, void* scratch);

/// \pre a: [.., n, n]; sign, log: [..], of a's type, log real.
void SignLogDet(const TensorRef& a, const TensorRef& sign, const TensorRef& log, Range batches, void* scratch);

struct TriangularSystem {
  bool upper = false;      ///< which triangle of a there is
  bool transpose = false;  ///< a is transposed
  bool unit = false;       ///< the diagonal counts as ones
};

/// \pre b and x: [.., n, columns], a: [.., n, n]; batch dims of a and b broadcast to those of x.
void TriangularSolve(const TensorRef& b, const TensorRef& a, TriangularSystem system, const TensorRef& x, Range batches,
                     void* scratch);

}  // namespace reprise::kernels
